//! YOLOv5 and YOLOv7: one output `[N, A, 5 + classes]` of finished boxes with an objectness.
//!
//! A candidate's numbers are its box, the objectness and the class scores, all through the sigmoid where they have to
//! be. How many candidates there are the network alone knows: it has several for each cell.

use serde::Deserialize;

use super::boxes::{BoxFormat, BoxLayout};
use super::cells::{CellBoxes, CellHead, HEADER};
use super::classes::ClassScores;
use super::outputs::{BoundOutput, Kind};
use super::{Head, HeadError};
use crate::tensor::TensorSignature;
use crate::vision::ImageSize;

/// What a card says about a YOLOv5 head.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Yolov5Spec {
    /// The output's name; unset = the network's only one.
    pub output: Option<String>,
    /// What a box's four numbers mean.
    pub box_format: BoxFormat,
    /// Whether boxes run from 0 to 1 over the network's input.
    pub normalized: bool,
    /// Whether a candidate gives a box for every class that reaches the threshold, rather than for its best alone.
    pub multi_label: bool,
}

// === impl Yolov5Spec ===

impl Default for Yolov5Spec {
    fn default() -> Self {
        Self {
            output: None,
            box_format: BoxFormat::Cxcywh,
            normalized: false,
            multi_label: false,
        }
    }
}

impl Yolov5Spec {
    pub(super) fn bind(
        &self,
        input: ImageSize,
        class_count: usize,
        outputs: &[TensorSignature],
    ) -> Result<Box<dyn Head>, HeadError> {
        let row = [None, Some(HEADER + class_count)];
        Ok(Box::new(CellHead {
            output: BoundOutput::find(outputs, self.output.as_deref(), Kind::Float, &row)?,
            boxes: CellBoxes::Decoded(BoxLayout::new(self.box_format, self.normalized, input)),
            classes: ClassScores::plain(class_count, self.multi_label),
        }))
    }
}
