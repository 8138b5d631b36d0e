//! Finished candidates in outputs of their own: labels, boxes, scores, and perhaps how many there are.

use super::boxes::BoxLayout;
use super::classes::LabelNumbers;
use super::outputs::BoundOutput;
use super::{Decoded, Head, HeadError};
use crate::tensor::Tensor;
use crate::vision::ScoredBox;

/// A head of such candidates, bound to a network.
#[derive(Debug)]
pub(super) struct FinishedHead {
    /// `[N, K]`.
    pub(super) labels: BoundOutput,
    /// `[N, K, 4]`.
    pub(super) boxes: BoundOutput,
    /// `[N, K]`.
    pub(super) scores: BoundOutput,
    /// `[N]`: how many of the K mean something.
    pub(super) count: Option<BoundOutput>,
    pub(super) layout: BoxLayout,
    pub(super) numbers: LabelNumbers,
}

// === impl FinishedHead ===

impl Head for FinishedHead {
    fn decode(
        &self,
        outputs: &[Tensor],
        index: usize,
        score_threshold: f32,
    ) -> Result<Decoded, HeadError> {
        let labels = self.labels.labels(outputs, index)?;
        let boxes = self.boxes.floats(outputs, index)?;
        let scores = self.scores.floats(outputs, index)?;
        let (boxes, _) = boxes.as_chunks::<4>();
        if labels.len() != scores.len() || boxes.len() != scores.len() {
            return Err(HeadError::Disagree(format!(
                "{} labels, {} boxes, {} scores",
                labels.len(),
                boxes.len(),
                scores.len()
            )));
        }

        let mut decoded = Decoded::default();
        let mut count = scores.len();
        if let Some(output) = &self.count {
            let said = output.labels(outputs, index)?.first().copied();
            match said.and_then(|said| usize::try_from(said).ok()) {
                Some(said) => count = count.min(said),
                // No number at all: whatever lies there is taken for what it is.
                None => decoded.dropped += 1,
            }
        }
        let candidates = labels.iter().zip(boxes).zip(scores.iter()).take(count);
        for ((&label, &numbers), &score) in candidates {
            // A NaN is not below and goes on, to be counted.
            if score < score_threshold {
                continue;
            }
            let Some(class) = self.numbers.class(label) else {
                decoded.dropped += 1;
                continue;
            };
            decoded.push(ScoredBox {
                bbox: self.layout.bbox(numbers),
                score,
                class,
            });
        }
        Ok(decoded)
    }
}
