//! Candidates in two outputs, a row of each: the box, and the class scores.

use super::boxes::BoxLayout;
use super::classes::{Background, ClassScores};
use super::outputs::{BoundOutput, Kind};
use super::ssd::Anchors;
use super::{Decoded, Head, HeadError};
use crate::tensor::{Tensor, TensorSignature};
use crate::vision::BoundingBox;

/// A head of such candidates, bound to a network.
#[derive(Debug)]
pub(super) struct RowHead {
    /// `[N, P, 4]`.
    pub(super) boxes: BoundOutput,
    /// `[N, P, columns]`.
    pub(super) scores: BoundOutput,
    pub(super) coding: RowBoxes,
    pub(super) classes: ClassScores,
}

/// What the four numbers of a box mean.
#[derive(Debug)]
pub(super) enum RowBoxes {
    /// They count from the candidate's anchor.
    Anchored(Anchors),
    /// They are a box.
    Decoded(BoxLayout),
}

// === impl RowBoxes ===

impl RowBoxes {
    fn bbox(&self, index: usize, numbers: [f32; 4]) -> BoundingBox {
        match self {
            Self::Anchored(anchors) => anchors.bbox(index, numbers),
            Self::Decoded(layout) => layout.bbox(numbers),
        }
    }
}

// === impl RowHead ===

impl RowHead {
    /// Of outputs of these names whose boxes need no anchors, however many there are.
    pub(super) fn decoded(
        outputs: &[TensorSignature],
        boxes: &str,
        scores: &str,
        classes: ClassScores,
        layout: BoxLayout,
    ) -> Result<Box<dyn Head>, HeadError> {
        let find = |name: &str, columns| {
            BoundOutput::find(outputs, Some(name), Kind::Float, &[None, Some(columns)])
        };
        Ok(Box::new(Self {
            boxes: find(boxes, 4)?,
            scores: find(scores, classes.columns())?,
            coding: RowBoxes::Decoded(layout),
            classes,
        }))
    }
}

impl Head for RowHead {
    fn decode(
        &self,
        outputs: &[Tensor],
        index: usize,
        score_threshold: f32,
    ) -> Result<Decoded, HeadError> {
        let boxes = self.boxes.floats(outputs, index)?;
        let scores = self.scores.floats(outputs, index)?;
        let (boxes, _) = boxes.as_chunks::<4>();
        let rows = scores.chunks_exact(self.classes.columns());
        if boxes.len() != rows.len() {
            return Err(HeadError::Disagree(format!(
                "{} boxes, {} rows of scores",
                boxes.len(),
                rows.len()
            )));
        }

        let reader = self.classes.at(score_threshold);
        let mut decoded = Decoded::default();
        for (index, row) in rows.enumerate() {
            if reader.may_reach(row) {
                let bbox = || self.coding.bbox(index, boxes[index]);
                reader.read(row.iter().copied(), bbox, &mut decoded);
            }
        }
        Ok(decoded)
    }
}

/// What an SSD's card need not say.
pub(super) fn usual_boxes() -> String {
    "boxes".to_owned()
}

pub(super) fn usual_scores() -> String {
    "scores".to_owned()
}

pub(super) fn usual_background() -> Background {
    Background::First
}
