//! A loaded model, ready to serve: everything that a request for it needs.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use super::error::DetectError;
use super::memory::ModelMemory;
use super::request::{DetectOptions, Detection, EffectiveOptions, ModelRef};
use crate::device::Loaded;
use crate::heads::{Head, HeadError};
use crate::model::{LabelMap, MAX_DETECTIONS, ModelSpec};
use crate::scheduling::ModelKey;
use crate::tensor::{Tensor, TensorPool};
use crate::vision::{
    BoundingBox, ImageSize, LetterboxTransform, NonMaxSuppression, Picture, PixelRect,
    Preprocessor, ScoredBox,
};

/// Candidates that suppression looks at, the surest first. Its work grows with the square of what stays; at a
/// threshold of 0 a head with 80 classes gives 280,000 of them.
const MAX_CANDIDATES: usize = 30_000;

/// One loaded version of a model. Shared by the requests for it.
#[derive(Debug)]
pub(super) struct ServedModel {
    pub(super) key: ModelKey,
    pub(super) reference: ModelRef,
    pub(super) labels: LabelMap,
    defaults: EffectiveOptions,
    preprocessor: Preprocessor,
    head: Box<dyn Head>,
    tensors: TensorPool,
    /// What its inputs take; set by whoever knows its instances.
    pub(super) memory: ModelMemory,
}

/// What is read from one picture's row of a batch's outputs.
pub(super) struct Found {
    pub(super) detections: Vec<Detection>,
    pub(super) total: usize,
    /// Candidates that were no boxes: not finite, without an area, of no class.
    pub(super) dropped: usize,
}

// === impl ServedModel ===

impl ServedModel {
    /// Fits a card to what its network turned out to be. `shelf` is how many tensors may be ready at a time.
    ///
    /// # Errors
    /// A line that says what does not fit.
    pub(super) fn new(
        key: ModelKey,
        reference: ModelRef,
        spec: &ModelSpec,
        labels: LabelMap,
        loaded: &Loaded,
        shelf: usize,
    ) -> Result<Self, String> {
        let dtype = loaded.signature.input.dtype;
        let preprocessor =
            Preprocessor::new(spec.input.clone(), dtype).map_err(|error| error.to_string())?;
        let head = spec
            .head
            .bind(spec.input.size, labels.len(), &loaded.signature.outputs)
            .map_err(|error| error.to_string())?;
        Ok(Self {
            key,
            reference,
            defaults: EffectiveOptions {
                score_threshold: spec.defaults.score_threshold,
                iou_threshold: spec.defaults.iou_threshold,
                max_detections: spec.defaults.max_detections,
                class_agnostic_nms: spec.defaults.class_agnostic_nms,
                labels: Vec::new(),
                region: None,
            },
            tensors: TensorPool::new(dtype, &preprocessor.tensor_shape(), shelf),
            labels,
            preprocessor,
            head,
            memory: ModelMemory::default(),
        })
    }

    /// What is in force for a caller's wishes.
    ///
    /// # Errors
    /// [`DetectError::InvalidOption`] for a label that the model does not have, and for suppression across classes
    /// where there is none.
    pub(super) fn effective(
        &self,
        wishes: &DetectOptions,
    ) -> Result<EffectiveOptions, DetectError> {
        if let Some(unknown) = wishes
            .labels
            .iter()
            .find(|label| self.labels.class(label).is_none())
        {
            return Err(DetectError::InvalidOption {
                field: "labels",
                detail: format!("model {} has no label {unknown:?}", self.reference.name),
            });
        }
        let iou_threshold = wishes.iou_threshold.or(self.defaults.iou_threshold);
        if wishes.class_agnostic_nms == Some(true) && iou_threshold.is_none() {
            return Err(DetectError::InvalidOption {
                field: "class_agnostic_nms",
                detail: format!(
                    "model {} suppresses no boxes by itself; set iou_threshold too",
                    self.reference.name
                ),
            });
        }
        let most = NonZeroU32::new(MAX_DETECTIONS).unwrap_or(NonZeroU32::MIN);
        Ok(EffectiveOptions {
            score_threshold: wishes
                .score_threshold
                .unwrap_or(self.defaults.score_threshold),
            iou_threshold,
            max_detections: wishes
                .max_detections
                .unwrap_or(self.defaults.max_detections)
                .min(most),
            class_agnostic_nms: wishes
                .class_agnostic_nms
                .unwrap_or(self.defaults.class_agnostic_nms),
            // Each once, so that the reply repeats no more of them than the model has.
            labels: wishes
                .labels
                .iter()
                .cloned()
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect(),
            region: wishes.region,
        })
    }

    /// The network's input.
    pub(super) fn input_size(&self) -> ImageSize {
        self.preprocessor.spec().size
    }

    /// What one picture's input takes, in bytes.
    pub(super) fn input_bytes(&self) -> u64 {
        let elements: usize = self.preprocessor.tensor_shape().iter().product();
        (elements * self.preprocessor.dtype().size()) as u64
    }

    /// The card's defaults.
    pub(super) fn defaults(&self) -> &EffectiveOptions {
        &self.defaults
    }

    /// Turns a picture, or the pixels that `region` touches, into the network's input. A region lies within
    /// the picture.
    pub(super) fn preprocess(
        &self,
        picture: &Picture,
        region: Option<&BoundingBox>,
    ) -> (Tensor, LetterboxTransform) {
        let mut tensor = self.tensors.take();
        let part = region.map_or(PixelRect::whole(picture.size()), BoundingBox::pixels);
        let transform = self.preprocessor.run_on(picture, part, &mut tensor);
        (tensor, transform)
    }

    /// Turns row `row` of a batch's outputs into boxes of the upright picture.
    ///
    /// # Errors
    /// Whatever the head says; none for any picture that the network was made for.
    pub(super) fn postprocess(
        &self,
        outputs: &[Tensor],
        row: usize,
        transform: &LetterboxTransform,
        image_size: ImageSize,
        options: &EffectiveOptions,
    ) -> Result<Found, HeadError> {
        let decoded = self
            .head
            .decode(outputs, row, options.score_threshold.get())?;
        let mut boxes = decoded.boxes;
        match options.iou_threshold {
            Some(iou_threshold) => {
                let suppression = NonMaxSuppression {
                    iou_threshold: iou_threshold.get(),
                    class_agnostic: options.class_agnostic_nms,
                    max_candidates: MAX_CANDIDATES,
                };
                boxes = suppression.apply(boxes);
            }
            None => boxes.sort_by(|a, b| b.score.total_cmp(&a.score)),
        }
        let mut dropped = decoded.dropped;
        let mut detections: Vec<Detection> = Vec::new();
        for found in boxes {
            let Some(label) = self.labels.label(found.class) else {
                dropped += 1;
                continue;
            };
            if !options.labels.is_empty() && !options.labels.iter().any(|wanted| wanted == label) {
                continue;
            }
            // A box that lies in the padding alone, or outside of the region, is none.
            let Some(bbox) = map_back(&found, transform, image_size, options.region) else {
                dropped += 1;
                continue;
            };
            detections.push(Detection {
                bbox,
                score: found.score,
                class: found.class,
                label: label.to_owned(),
                track: None,
            });
        }
        let total = detections.len();
        detections.truncate(limit(options.max_detections));
        Ok(Found {
            detections,
            total,
            dropped,
        })
    }
}

fn map_back(
    found: &ScoredBox,
    transform: &LetterboxTransform,
    image_size: ImageSize,
    region: Option<BoundingBox>,
) -> Option<BoundingBox> {
    let bbox = transform.invert(found.bbox);
    match region {
        // It lies in the picture, so what lies in it does too.
        Some(region) => bbox.clip_to(&region),
        None => bbox.clip(image_size),
    }
}

fn limit(max_detections: NonZeroU32) -> usize {
    usize::try_from(max_detections.get()).unwrap_or(usize::MAX)
}
