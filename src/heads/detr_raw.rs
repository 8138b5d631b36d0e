//! DETR and its kin without the last step: logits `[N, Q, C]` and boxes `[N, Q, 4]`, nothing to suppress.
//!
//! RT-DETR's logits go through the sigmoid. DETR's own have a last column for "no object" and go through the softmax.

use serde::Deserialize;

use super::boxes::{BoxFormat, BoxLayout};
use super::classes::{Activation, Background, ClassScores};
use super::rows::RowHead;
use super::{Head, HeadError};
use crate::tensor::TensorSignature;
use crate::vision::ImageSize;

/// What a card says about a raw DETR head.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DetrRawSpec {
    /// The name of the logits' output.
    pub logits: String,
    /// The name of the boxes' output.
    pub boxes: String,
    /// What is still to be done to the logits.
    pub activation: Activation,
    /// Where the column of "no object" stands.
    pub background: Background,
    /// The column of the first label; unset = the first that is not the background's.
    pub label_offset: Option<u32>,
    /// What a box's four numbers mean.
    pub box_format: BoxFormat,
    /// Whether boxes run from 0 to 1 over the network's input.
    pub normalized: bool,
    /// Whether a query gives a box for every class that reaches the threshold, rather than for its best alone.
    pub multi_label: bool,
}

// === impl DetrRawSpec ===

impl Default for DetrRawSpec {
    fn default() -> Self {
        Self {
            logits: "logits".to_owned(),
            boxes: "pred_boxes".to_owned(),
            activation: Activation::Sigmoid,
            background: Background::None,
            label_offset: None,
            box_format: BoxFormat::Cxcywh,
            normalized: true,
            multi_label: false,
        }
    }
}

impl DetrRawSpec {
    pub(super) fn bind(
        &self,
        input: ImageSize,
        class_count: usize,
        outputs: &[TensorSignature],
    ) -> Result<Box<dyn Head>, HeadError> {
        let classes = ClassScores::new(
            class_count,
            self.activation,
            self.background,
            self.label_offset,
            self.multi_label,
        );
        let layout = BoxLayout::new(self.box_format, self.normalized, input);
        RowHead::decoded(outputs, &self.boxes, &self.logits, classes, layout)
    }
}
