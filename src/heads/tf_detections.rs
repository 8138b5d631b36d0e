//! TensorFlow's detection post-processing inside the network: boxes, classes, scores and their number.
//!
//! Boxes are `[N, K, 4]` corners (y first) from 0 to 1, classes and scores `[N, K]`, the number `[N]`; classes and
//! number are often floats. Suppression has been done.

use serde::Deserialize;

use super::boxes::{BoxFormat, BoxLayout};
use super::classes::LabelNumbers;
use super::finished::FinishedHead;
use super::outputs::{BoundOutput, Kind};
use super::{Head, HeadError};
use crate::tensor::TensorSignature;
use crate::vision::ImageSize;

/// What a card says about such a head.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TfDetectionsSpec {
    /// The name of the boxes' output.
    pub boxes: String,
    /// The name of the classes' output.
    pub classes: String,
    /// The name of the scores' output.
    pub scores: String,
    /// The name of the output with the number of boxes.
    pub count: String,
    /// What a box's four numbers mean.
    pub box_format: BoxFormat,
    /// Whether boxes run from 0 to 1 over the network's input.
    pub normalized: bool,
    /// The number that the network gives the first label.
    pub label_offset: u32,
}

// === impl TfDetectionsSpec ===

impl Default for TfDetectionsSpec {
    fn default() -> Self {
        Self {
            boxes: "detection_boxes".to_owned(),
            classes: "detection_classes".to_owned(),
            scores: "detection_scores".to_owned(),
            count: "num_detections".to_owned(),
            box_format: BoxFormat::Yxyx,
            normalized: true,
            label_offset: 1,
        }
    }
}

impl TfDetectionsSpec {
    pub(super) fn bind(
        &self,
        input: ImageSize,
        class_count: usize,
        outputs: &[TensorSignature],
    ) -> Result<Box<dyn Head>, HeadError> {
        let find = |name: &str, kind, row: &[_]| BoundOutput::find(outputs, Some(name), kind, row);
        Ok(Box::new(FinishedHead {
            labels: find(&self.classes, Kind::Label, &[None])?,
            boxes: find(&self.boxes, Kind::Float, &[None, Some(4)])?,
            scores: find(&self.scores, Kind::Float, &[None])?,
            count: Some(find(&self.count, Kind::Label, &[])?),
            layout: BoxLayout::new(self.box_format, self.normalized, input),
            numbers: LabelNumbers {
                offset: self.label_offset,
                class_count,
            },
        }))
    }
}
