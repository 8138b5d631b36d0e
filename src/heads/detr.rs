//! DETR and its kin with the last step in the network: finished candidates, nothing to suppress.
//!
//! Labels are `[N, Q]` class indices, boxes `[N, Q, 4]`, scores `[N, Q]`. A network that is told a size to scale
//! its boxes to (`size_input`) is told its own input's; see [`HeadSpec::size_input`](super::HeadSpec::size_input).

use serde::Deserialize;

use super::boxes::{BoxFormat, BoxLayout};
use super::classes::LabelNumbers;
use super::finished::FinishedHead;
use super::outputs::{BoundOutput, Kind};
use super::{Head, HeadError};
use crate::tensor::TensorSignature;
use crate::vision::ImageSize;

/// What a card says about a DETR head.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DetrSpec {
    /// The name of the labels' output.
    pub labels: String,
    /// The name of the boxes' output.
    pub boxes: String,
    /// The name of the scores' output.
    pub scores: String,
    /// The name of the input that takes the size to scale boxes to, if the network has one.
    pub size_input: Option<String>,
    /// What a box's four numbers mean.
    pub box_format: BoxFormat,
    /// Whether boxes run from 0 to 1 over the network's input.
    pub normalized: bool,
    /// The number that the network gives the first label.
    pub label_offset: u32,
}

// === impl DetrSpec ===

impl Default for DetrSpec {
    fn default() -> Self {
        Self {
            labels: "labels".to_owned(),
            boxes: "boxes".to_owned(),
            scores: "scores".to_owned(),
            size_input: None,
            box_format: BoxFormat::Xyxy,
            normalized: false,
            label_offset: 0,
        }
    }
}

impl DetrSpec {
    pub(super) fn bind(
        &self,
        input: ImageSize,
        class_count: usize,
        outputs: &[TensorSignature],
    ) -> Result<Box<dyn Head>, HeadError> {
        let find = |name: &str, kind, row: &[_]| BoundOutput::find(outputs, Some(name), kind, row);
        Ok(Box::new(FinishedHead {
            labels: find(&self.labels, Kind::Label, &[None])?,
            boxes: find(&self.boxes, Kind::Float, &[None, Some(4)])?,
            scores: find(&self.scores, Kind::Float, &[None])?,
            count: None,
            layout: BoxLayout::new(self.box_format, self.normalized, input),
            numbers: LabelNumbers {
                offset: self.label_offset,
                class_count,
            },
        }))
    }
}
