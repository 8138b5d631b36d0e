//! DETR and its kin: finished candidates in three outputs, nothing to suppress.
//!
//! Labels are `[N, Q]` class indices, boxes `[N, Q, 4]` corners (x_min, y_min, x_max, y_max) in pixels of the
//! network's input, scores `[N, Q]`. A network that is told a size to scale its boxes to
//! (`size_input`) is told its own input's; see [`HeadSpec::size_input`](super::HeadSpec::size_input).

use serde::Deserialize;

use super::outputs::{BoundOutput, Kind};
use super::{Decoded, Head, HeadError};
use crate::tensor::{Tensor, TensorSignature};
use crate::vision::{BoundingBox, ClassId, ScoredBox};

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
}

/// A DETR head bound to a network.
#[derive(Debug)]
struct DetrHead {
    labels: BoundOutput,
    boxes: BoundOutput,
    scores: BoundOutput,
    class_count: usize,
}

// === impl DetrSpec ===

impl Default for DetrSpec {
    fn default() -> Self {
        Self {
            labels: "labels".to_owned(),
            boxes: "boxes".to_owned(),
            scores: "scores".to_owned(),
            size_input: None,
        }
    }
}

impl DetrSpec {
    pub(super) fn bind(
        &self,
        class_count: usize,
        outputs: &[TensorSignature],
    ) -> Result<Box<dyn Head>, HeadError> {
        let find = |name: &str, kind, row: &[_]| BoundOutput::find(outputs, Some(name), kind, row);
        Ok(Box::new(DetrHead {
            labels: find(&self.labels, Kind::Integer, &[None])?,
            boxes: find(&self.boxes, Kind::Float, &[None, Some(4)])?,
            scores: find(&self.scores, Kind::Float, &[None])?,
            class_count,
        }))
    }
}

// === impl DetrHead ===

impl DetrHead {
    /// The class that a label names, if the model has it.
    fn class(&self, label: i64) -> Option<ClassId> {
        let known = usize::try_from(label).is_ok_and(|label| label < self.class_count);
        u32::try_from(label).ok().filter(|_| known).map(ClassId)
    }
}

impl Head for DetrHead {
    fn decode(
        &self,
        outputs: &[Tensor],
        index: usize,
        score_threshold: f32,
    ) -> Result<Decoded, HeadError> {
        let labels = self.labels.integers(outputs, index)?;
        let boxes = self.boxes.floats(outputs, index)?;
        let scores = self.scores.floats(outputs, index)?;
        let boxes = boxes.chunks_exact(4);
        if labels.len() != scores.len() || boxes.len() != scores.len() {
            return Err(HeadError::Disagree {
                labels: labels.len(),
                boxes: boxes.len(),
                scores: scores.len(),
            });
        }

        let mut decoded = Decoded::default();
        for ((&label, corners), &score) in labels.iter().zip(boxes).zip(scores.iter()) {
            // A NaN is not below and goes on, to be counted.
            if score < score_threshold {
                continue;
            }
            let Some(class) = self.class(label) else {
                decoded.dropped += 1;
                continue;
            };
            decoded.push(ScoredBox {
                bbox: BoundingBox {
                    x_min: corners[0],
                    y_min: corners[1],
                    x_max: corners[2],
                    y_max: corners[3],
                },
                score,
                class,
            });
        }
        Ok(decoded)
    }
}
