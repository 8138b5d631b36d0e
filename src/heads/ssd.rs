//! SSD: boxes that count from anchors, `[N, P, 4]`, and class scores `[N, P, columns]`, both raw.
//!
//! A box's numbers are the centre's shift, as a part of the anchor's size, and the logarithm of its size over the
//! anchor's, each divided by a variance. TensorFlow writes them y first and calls the inverse of a variance a scale.

mod anchors;
mod priors;
#[cfg(test)]
mod tests;

use serde::Deserialize;

pub(super) use anchors::Anchors;
pub use anchors::{AnchorSpec, AnchorTable, MAX_ANCHORS};
pub use priors::{Positive, PriorMap, PriorMaps};

use super::classes::{Activation, Background, ClassScores};
use super::outputs::{BoundOutput, Kind};
use super::rows::{RowBoxes, RowHead, usual_background, usual_boxes, usual_scores};
use super::{Head, HeadError};
use crate::tensor::TensorSignature;
use crate::vision::ImageSize;

/// What a card says about an SSD head. `F` is how its anchors are given where they are not computed: in a card the
/// name of a file, in a [`HeadSpec`](super::HeadSpec) that can be bound the numbers themselves.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SsdSpec<F = AnchorTable> {
    /// The order of a box's numbers.
    pub coding: BoxCoding,
    /// The boxes that the network's boxes count from.
    pub anchors: AnchorSpec<F>,
    /// The variances of the centre and of the size.
    #[serde(default = "usual_variances")]
    pub variances: [Positive; 2],
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

/// The order of the four numbers of a raw box, and of an anchor in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BoxCoding {
    /// x, y, width, height.
    SsdPytorch,
    /// y, x, height, width.
    Tensorflow,
}

// === impl BoxCoding ===

impl BoxCoding {
    /// The numbers as x, y, width, height.
    fn x_first(self, [a, b, c, d]: [f32; 4]) -> [f32; 4] {
        match self {
            Self::SsdPytorch => [a, b, c, d],
            Self::Tensorflow => [b, a, d, c],
        }
    }
}

// === impl SsdSpec ===

impl<F> SsdSpec<F> {
    /// Puts the anchors in that `read` gives for a file of them.
    pub(super) fn resolve<E>(
        self,
        read: impl FnOnce(F) -> Result<AnchorTable, E>,
    ) -> Result<SsdSpec, E> {
        Ok(SsdSpec {
            coding: self.coding,
            anchors: self.anchors.resolve(read)?,
            variances: self.variances,
            boxes: self.boxes,
            scores: self.scores,
            activation: self.activation,
            background: self.background,
            label_offset: self.label_offset,
            multi_label: self.multi_label,
        })
    }
}

impl SsdSpec {
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
        let anchors = Anchors::new(self, input)?;
        let find = |name: &str, columns| {
            let row = [Some(anchors.len()), Some(columns)];
            BoundOutput::find(outputs, Some(name), Kind::Float, &row)
        };
        Ok(Box::new(RowHead {
            boxes: find(&self.boxes, 4)?,
            scores: find(&self.scores, classes.columns())?,
            coding: RowBoxes::Anchored(anchors),
            classes,
        }))
    }
}

fn usual_variances() -> [Positive; 2] {
    [Positive::TENTH, Positive::FIFTH]
}
