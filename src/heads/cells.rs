//! Candidates with an objectness: four numbers of a box, the objectness, the class scores, one behind another.
//!
//! A class's score is its own number times the objectness.

use super::boxes::BoxLayout;
use super::classes::ClassScores;
use super::outputs::BoundOutput;
use super::yolox::Cell;
use super::{Decoded, Head, HeadError};
use crate::tensor::Tensor;
use crate::vision::BoundingBox;

/// Numbers of a candidate ahead of its class scores.
pub(super) const HEADER: usize = 5;

/// A head of such candidates, bound to a network.
#[derive(Debug)]
pub(super) struct CellHead {
    /// `[N, A, 5 + C]`.
    pub(super) output: BoundOutput,
    pub(super) boxes: CellBoxes,
    pub(super) classes: ClassScores,
}

/// What the four numbers of a box mean.
#[derive(Debug)]
pub(super) enum CellBoxes {
    /// They count from the cell that the candidate belongs to.
    Grid(Vec<Cell>),
    /// They are a box.
    Decoded(BoxLayout),
}

// === impl CellBoxes ===

impl CellBoxes {
    fn bbox(&self, index: usize, numbers: [f32; 4]) -> BoundingBox {
        match self {
            Self::Grid(cells) => cells[index].bbox(numbers),
            Self::Decoded(layout) => layout.bbox(numbers),
        }
    }
}

// === impl CellHead ===

impl Head for CellHead {
    fn decode(
        &self,
        outputs: &[Tensor],
        index: usize,
        score_threshold: f32,
    ) -> Result<Decoded, HeadError> {
        let numbers = self.output.floats(outputs, index)?;
        let reader = self.classes.at(score_threshold);
        let mut decoded = Decoded::default();
        let candidates = numbers.chunks_exact(HEADER + self.classes.columns());
        for (index, candidate) in candidates.enumerate() {
            let [a, b, c, d, objectness, ref classes @ ..] = *candidate else {
                continue;
            };
            // No class score is above one, so nothing here can reach the threshold: true of all but a few
            // candidates, which makes this the line that counts. A NaN is not below and goes on.
            if objectness < score_threshold {
                continue;
            }
            let scores = classes.iter().map(|class| objectness * class);
            reader.read(
                scores,
                || self.boxes.bbox(index, [a, b, c, d]),
                &mut decoded,
            );
        }
        Ok(decoded)
    }
}
