//! A loaded model, ready to serve: everything that a request for it needs.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use super::error::DetectError;
use super::memory::ModelMemory;
use super::request::{DetectOptions, Detection, EffectiveOptions, Image, ModelRef, TilingOptions};
use crate::device::Loaded;
use crate::heads::{Head, HeadError};
use crate::model::{LabelMap, MAX_DETECTIONS, ModelSpec, Threshold};
use crate::scheduling::ModelKey;
use crate::tensor::{Tensor, TensorPool};
use crate::vision::tiling::{DEFAULT_OVERLAP, MAX_VIEWS, Merging, SAME_OBJECT, merge};
use crate::vision::{
    BoundingBox, ImageSize, LetterboxTransform, NonMaxSuppression, Picture, PixelRect,
    Preprocessor, ScoredBox, TileBox, Tiling,
};

/// Candidates that suppression looks at, the surest first. Its work grows with the square of what stays; at a
/// threshold of 0 a head with 80 classes gives 280,000 of them.
pub(super) const MAX_CANDIDATES: usize = 30_000;

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
pub(super) struct Read {
    pub(super) boxes: Vec<ScoredBox>,
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
                tiling: None,
                shown_from: None,
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
        let tiling = wishes.tiling.map(|tiling| self.tiling(tiling));
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
            tiling,
            shown_from: None,
        })
    }

    fn tiling(&self, wishes: TilingOptions) -> Tiling {
        let side = wishes.tile_size.map(NonZeroU32::get);
        Tiling {
            tile: side.map_or(self.input_size(), |side| ImageSize::new(side, side)),
            overlap: wishes.overlap.unwrap_or(DEFAULT_OVERLAP),
        }
    }

    /// Into how many pieces a picture will be cut, besides the first; `None` for one that is not to be. An estimate, from
    /// the picture's header, of what [`Tiling::views`] will say.
    pub(super) fn pieces(options: &EffectiveOptions, image: &Image) -> Option<usize> {
        let tiling = options.tiling?;
        let stored = image.stored_size();
        let part = stored.map(|size| match options.region {
            None => size,
            Some(region) => region
                .clip(size)
                .map_or(size, |region| region.pixels().size),
        });
        let views = part.map_or(1, |size| tiling.count(size).clamp(1, MAX_VIEWS));
        usize::try_from(views - 1).ok()
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

    /// Turns a part of a picture into the network's input.
    pub(super) fn preprocess(
        &self,
        picture: &Picture,
        part: PixelRect,
    ) -> (Tensor, LetterboxTransform) {
        let mut tensor = self.tensors.take();
        let transform = self.preprocessor.run_on(picture, part, &mut tensor);
        (tensor, transform)
    }

    /// Turns row `row` of a batch's outputs into boxes of the upright picture, surest first: those that the options ask
    /// for, suppressed, cut off at `bounds`.
    ///
    /// # Errors
    /// Whatever the head says; none for any picture that the network was made for.
    pub(super) fn read(
        &self,
        outputs: &[Tensor],
        row: usize,
        transform: &LetterboxTransform,
        bounds: &BoundingBox,
        options: &EffectiveOptions,
    ) -> Result<Read, HeadError> {
        let decoded = self
            .head
            .decode(outputs, row, options.score_threshold.get())?;
        let mut boxes = decoded.boxes;
        match suppression(options) {
            Some(suppression) => boxes = suppression.apply(boxes),
            None => boxes.sort_by(|a, b| b.score.total_cmp(&a.score)),
        }
        let mut dropped = decoded.dropped;
        boxes.retain_mut(|found| {
            let Some(label) = self.labels.label(found.class) else {
                dropped += 1;
                return false;
            };
            if !options.labels.is_empty() && !options.labels.iter().any(|wanted| wanted == label) {
                return false;
            }
            // A box that lies in the padding alone, or outside of the bounds, is none.
            let inside = transform.invert(found.bbox).clip_to(bounds);
            match inside {
                Some(bbox) => found.bbox = bbox,
                None => dropped += 1,
            }
            inside.is_some()
        });
        Ok(Read { boxes, dropped })
    }

    /// Puts together what was found in the pieces of a picture.
    pub(super) fn merge(boxes: Vec<TileBox>, options: &EffectiveOptions) -> Vec<ScoredBox> {
        // Of a model without suppression too: what two tiles share is found in both.
        let own = options.iou_threshold.map_or(SAME_OBJECT, Threshold::get);
        let merging = Merging {
            iou_threshold: own.min(SAME_OBJECT),
            class_agnostic: options.class_agnostic_nms,
            shown_from: options.shown_from.map_or(0.0, Threshold::get),
            max_candidates: MAX_CANDIDATES,
        };
        merge(boxes, &merging)
    }

    /// The reply's objects: of boxes that were [`read`](Self::read), no more than asked for, and how many there were.
    pub(super) fn name(
        &self,
        boxes: &[ScoredBox],
        options: &EffectiveOptions,
    ) -> (Vec<Detection>, usize) {
        let detection = |found: &ScoredBox| {
            Some(Detection {
                bbox: found.bbox,
                score: found.score,
                class: found.class,
                label: self.labels.label(found.class)?.to_owned(),
                track: None,
            })
        };
        let most = limit(options.max_detections);
        let detections = boxes.iter().take(most).filter_map(detection).collect();
        (detections, boxes.len())
    }
}

fn suppression(options: &EffectiveOptions) -> Option<NonMaxSuppression> {
    let iou_threshold = options.iou_threshold?.get();
    Some(NonMaxSuppression {
        iou_threshold,
        class_agnostic: options.class_agnostic_nms,
        max_candidates: MAX_CANDIDATES,
    })
}

fn limit(max_detections: NonZeroU32) -> usize {
    usize::try_from(max_detections.get()).unwrap_or(usize::MAX)
}
