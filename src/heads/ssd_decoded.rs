//! SSD with its boxes decoded in the network: boxes `[N, P, 4]` and class scores `[N, P, columns]`, nothing suppressed.

use serde::Deserialize;

use super::boxes::{BoxFormat, BoxLayout};
use super::classes::{Activation, Background, ClassScores};
use super::rows::{RowHead, usual_background, usual_boxes, usual_scores};
use super::{Head, HeadError};
use crate::tensor::TensorSignature;
use crate::vision::ImageSize;

/// What a card says about a decoded SSD head.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SsdDecodedSpec {
    /// What a box's four numbers mean. Nothing but the card tells.
    pub box_format: BoxFormat,
    /// Whether boxes run from 0 to 1 over the network's input.
    #[serde(default = "yes")]
    pub normalized: bool,
    /// The name of the boxes' output.
    #[serde(default = "usual_boxes")]
    pub boxes: String,
    /// The name of the scores' output.
    #[serde(default = "usual_scores")]
    pub scores: String,
    /// What is still to be done to the scores.
    #[serde(default)]
    pub activation: Activation,
    /// Where the background's column stands.
    #[serde(default = "usual_background")]
    pub background: Background,
    /// The column of the first label; unset = the first that is not the background's.
    pub label_offset: Option<u32>,
    /// Whether a candidate gives a box for every class that reaches the threshold, rather than for its best alone.
    #[serde(default)]
    pub multi_label: bool,
}

// === impl SsdDecodedSpec ===

impl SsdDecodedSpec {
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
        RowHead::decoded(outputs, &self.boxes, &self.scores, classes, layout)
    }
}

fn yes() -> bool {
    true
}
