//! The card's `[head]` table, and the step from it to a head.

use serde::Deserialize;

use super::{
    AnchorTable, DetrRawSpec, DetrSpec, EndToEndSpec, Head, HeadError, SsdDecodedSpec, SsdSpec,
    TfDetectionsSpec, Yolov5Spec, Yolov8Spec, YoloxSpec,
};
use crate::tensor::TensorSignature;
use crate::vision::ImageSize;

/// The head of a model: its family, and what the family needs to be told.
///
/// A card may name files beside it, and heads read none. So a card holds a `HeadSpec<F>`, where `F` is the name of a
/// file, and [`resolve`](Self::resolve) makes of it the only one that can be bound, which holds what was in the file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "family", rename_all = "snake_case")]
pub enum HeadSpec<F = AnchorTable> {
    /// Grid cells with a box, an objectness and class scores each.
    Yolox(YoloxSpec),
    /// Boxes with an objectness and class scores each.
    Yolov5(Yolov5Spec),
    /// Boxes with class scores each.
    Yolov8(Yolov8Spec),
    /// Finished boxes, one a row.
    EndToEnd(EndToEndSpec),
    /// Boxes that count from anchors, and class scores.
    Ssd(SsdSpec<F>),
    /// Boxes and class scores.
    SsdDecoded(SsdDecodedSpec),
    /// Finished candidates: boxes, classes, scores and their number.
    TfDetections(TfDetectionsSpec),
    /// Finished candidates: labels, boxes and scores.
    Detr(DetrSpec),
    /// Queries with logits and a box each.
    DetrRaw(DetrRawSpec),
}

// === impl HeadSpec ===

impl<F> HeadSpec<F> {
    /// Puts in what the card's files hold; `read` is asked for a file of anchors.
    ///
    /// # Errors
    /// Whatever `read` says.
    pub fn resolve<E>(self, read: impl FnOnce(F) -> Result<AnchorTable, E>) -> Result<HeadSpec, E> {
        Ok(match self {
            Self::Yolox(spec) => HeadSpec::Yolox(spec),
            Self::Yolov5(spec) => HeadSpec::Yolov5(spec),
            Self::Yolov8(spec) => HeadSpec::Yolov8(spec),
            Self::EndToEnd(spec) => HeadSpec::EndToEnd(spec),
            Self::Ssd(spec) => HeadSpec::Ssd(spec.resolve(read)?),
            Self::SsdDecoded(spec) => HeadSpec::SsdDecoded(spec),
            Self::TfDetections(spec) => HeadSpec::TfDetections(spec),
            Self::Detr(spec) => HeadSpec::Detr(spec),
            Self::DetrRaw(spec) => HeadSpec::DetrRaw(spec),
        })
    }
}

impl HeadSpec {
    /// Checks a network's outputs against the card and gives the head that reads them.
    ///
    /// `input` is the network's input size in pixels, `class_count` the number of the model's labels, and
    /// `outputs` are the network's outputs in the order in which a run gives them.
    ///
    /// # Errors
    /// [`HeadError`], naming the outputs found, when they are not what the card says.
    pub fn bind(
        &self,
        input: ImageSize,
        class_count: usize,
        outputs: &[TensorSignature],
    ) -> Result<Box<dyn Head>, HeadError> {
        match self {
            Self::Yolox(spec) => spec.bind(input, class_count, outputs),
            Self::Yolov5(spec) => spec.bind(input, class_count, outputs),
            Self::Yolov8(spec) => spec.bind(input, class_count, outputs),
            Self::EndToEnd(spec) => spec.bind(input, class_count, outputs),
            Self::Ssd(spec) => spec.bind(input, class_count, outputs),
            Self::SsdDecoded(spec) => spec.bind(input, class_count, outputs),
            Self::TfDetections(spec) => spec.bind(input, class_count, outputs),
            Self::Detr(spec) => spec.bind(input, class_count, outputs),
            Self::DetrRaw(spec) => spec.bind(input, class_count, outputs),
        }
    }

    /// The name of a second input, i64 `[N, 2]`, to be fed the network's input size as (width, height).
    ///
    /// Such a network scales its boxes to whatever size it is told. It is always told its own input's, so
    /// that boxes come out in pixels of the network's input like every other head's, and are mapped back to
    /// the picture in the same way.
    pub fn size_input(&self) -> Option<&str> {
        match self {
            Self::Detr(spec) => spec.size_input.as_deref(),
            _ => None,
        }
    }

    /// Whether the raw boxes repeat each object, so that they are of no use without suppression.
    ///
    /// Where this is false, boxes are suppressed only when a request sets an IoU threshold.
    pub fn needs_nms(&self) -> bool {
        match self {
            Self::Yolox(_)
            | Self::Yolov5(_)
            | Self::Yolov8(_)
            | Self::Ssd(_)
            | Self::SsdDecoded(_) => true,
            Self::EndToEnd(_) | Self::TfDetections(_) | Self::Detr(_) | Self::DetrRaw(_) => false,
        }
    }
}
