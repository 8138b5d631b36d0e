//! The card's `[head]` table, and the step from it to a head.

use serde::Deserialize;

use super::{
    DetrRawSpec, DetrSpec, EndToEndSpec, Head, HeadError, SsdDecodedSpec, TfDetectionsSpec,
    Yolov5Spec, Yolov8Spec, YoloxSpec,
};
use crate::tensor::TensorSignature;
use crate::vision::ImageSize;

/// The head of a model: its family, and what the family needs to be told.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "family", rename_all = "snake_case")]
pub enum HeadSpec {
    /// Grid cells with a box, an objectness and class scores each.
    Yolox(YoloxSpec),
    /// Boxes with an objectness and class scores each.
    Yolov5(Yolov5Spec),
    /// Boxes with class scores each.
    Yolov8(Yolov8Spec),
    /// Finished boxes, one a row.
    EndToEnd(EndToEndSpec),
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
            Self::Yolox(_) | Self::Yolov5(_) | Self::Yolov8(_) | Self::SsdDecoded(_) => true,
            Self::EndToEnd(_) | Self::TfDetections(_) | Self::Detr(_) | Self::DetrRaw(_) => false,
        }
    }
}
