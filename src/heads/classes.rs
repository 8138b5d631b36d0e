//! Which class a candidate is of: rows of class scores, and labels by number.

use std::ops::Range;

use serde::Deserialize;

use super::Decoded;
use crate::vision::{BoundingBox, ClassId, ScoredBox};

/// What is still to be done to a network's class scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// Nothing: they are probabilities.
    #[default]
    None,
    /// The sigmoid, each by itself.
    Sigmoid,
    /// The softmax over all columns, the background's included.
    Softmax,
}

/// Where among the columns of the class scores that of "nothing here" stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Background {
    /// There is none.
    #[default]
    None,
    /// Ahead of the classes.
    First,
    /// Behind the classes.
    Last,
}

/// How a row of class scores is read.
#[derive(Debug, Clone)]
pub(super) struct ClassScores {
    activation: Activation,
    /// The background's column.
    background: Option<usize>,
    /// The columns that may be reported.
    classes: Range<usize>,
    /// The column of the first label.
    offset: usize,
    columns: usize,
    multi_label: bool,
}

/// The same at a threshold.
#[derive(Debug)]
pub(super) struct ClassReader<'a> {
    scores: &'a ClassScores,
    threshold: f32,
    /// What a number of the network must be at least for its class to reach the threshold; under the softmax, beyond
    /// the background's.
    cut: f32,
}

/// Labels that a network gives by number.
#[derive(Debug, Clone, Copy)]
pub(super) struct LabelNumbers {
    pub(super) offset: u32,
    pub(super) class_count: usize,
}

// === impl ClassScores ===

impl ClassScores {
    /// Probabilities of the classes and of nothing else.
    pub(super) fn plain(class_count: usize, multi_label: bool) -> Self {
        Self::new(
            class_count,
            Activation::None,
            Background::None,
            None,
            multi_label,
        )
    }

    /// `label_offset` is the column of the first label; unset = the first that is not the background's.
    pub(super) fn new(
        class_count: usize,
        activation: Activation,
        background: Background,
        label_offset: Option<u32>,
        multi_label: bool,
    ) -> Self {
        let ahead = usize::from(background == Background::First);
        let offset = label_offset.map_or(ahead, |offset| {
            usize::try_from(offset).unwrap_or(usize::MAX)
        });
        let end = offset.saturating_add(class_count);
        Self {
            activation,
            background: match background {
                Background::None => None,
                Background::First => Some(0),
                Background::Last => Some(end),
            },
            // Where labels are counted from the background, it has one, and is no object all the same.
            classes: offset.max(ahead)..end,
            offset,
            columns: end.saturating_add(usize::from(background == Background::Last)),
            multi_label,
        }
    }

    /// Columns of a row.
    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    pub(super) fn at(&self, threshold: f32) -> ClassReader<'_> {
        ClassReader {
            scores: self,
            threshold,
            cut: match self.activation {
                Activation::None => threshold,
                // Both are below the threshold where the number is below its logit. Rounding must not lose a class, so
                // the cut is a little lower, and past 10, where probabilities are hard to tell apart, it does not go.
                Activation::Sigmoid | Activation::Softmax => {
                    ((threshold / (1.0 - threshold)).ln() - 0.05).min(10.0)
                }
            },
        }
    }
}

// === impl ClassReader ===

impl ClassReader<'_> {
    /// What a class's number must reach, where it depends on nothing else in its row.
    pub(super) fn cut(&self) -> f32 {
        self.cut
    }

    /// Whether the threshold may be reached in `row`: false for all but a few rows, which makes this the line that
    /// counts. It has no branches, so that several numbers are compared at once. A NaN is not below.
    pub(super) fn may_reach(&self, row: &[f32]) -> bool {
        let cut = match (self.scores.activation, self.scores.background) {
            (Activation::Softmax, Some(column)) => row[column] + self.cut,
            (Activation::Softmax, None) => return true,
            _ => self.cut,
        };
        let classes = &row[self.scores.classes.clone()];
        let all_below = classes.iter().fold(true, |all, score| all & (*score < cut));
        !all_below
    }

    /// Takes in what of a candidate reaches the threshold: its best class, or all where the head is told so.
    ///
    /// A candidate with a score that is not finite is dropped whole.
    pub(super) fn read(
        &self,
        row: impl Iterator<Item = f32> + Clone,
        bbox: impl FnOnce() -> BoundingBox,
        decoded: &mut Decoded,
    ) {
        if row.clone().any(|score| !score.is_finite()) {
            decoded.dropped += 1;
            return;
        }
        match self.scores.activation {
            Activation::None => self.take(row, bbox, decoded),
            Activation::Sigmoid => {
                let sigmoid = |logit: f32| 1.0 / (1.0 + (-logit).exp());
                self.take(row.map(sigmoid), bbox, decoded);
            }
            Activation::Softmax => {
                let highest = row.clone().fold(f32::MIN, f32::max);
                let sum: f32 = row.clone().map(|logit| (logit - highest).exp()).sum();
                let softmax = |logit: f32| (logit - highest).exp() / sum;
                self.take(row.map(softmax), bbox, decoded);
            }
        }
    }

    fn take(
        &self,
        row: impl Iterator<Item = f32>,
        bbox: impl FnOnce() -> BoundingBox,
        decoded: &mut Decoded,
    ) {
        let Range { start, end } = self.scores.classes;
        let classes = row.enumerate().take(end).skip(start);
        let mut reaching = classes.filter(|(_, score)| *score >= self.threshold);
        let Some(first) = reaching.next() else {
            return;
        };
        let bbox = bbox();
        let scored = |(column, score): (usize, f32)| ScoredBox {
            bbox,
            score,
            class: ClassId((column - self.scores.offset) as u32),
        };
        if self.scores.multi_label {
            decoded.push(scored(first));
            reaching.for_each(|class| decoded.push(scored(class)));
        } else {
            // Of equals the lowest class wins.
            let best = reaching.fold(
                first,
                |best, next| if next.1 > best.1 { next } else { best },
            );
            decoded.push(scored(best));
        }
    }
}

// === impl LabelNumbers ===

impl LabelNumbers {
    /// The class that a label names, if the model has it.
    pub(super) fn class(self, label: i64) -> Option<ClassId> {
        let index = label.checked_sub(i64::from(self.offset))?;
        let known = usize::try_from(index).is_ok_and(|index| index < self.class_count);
        u32::try_from(index).ok().filter(|_| known).map(ClassId)
    }
}

/// The whole number that a float holds. One that holds none gives a label that no model has.
pub(super) fn whole(number: f32) -> i64 {
    match number.fract() == 0.0 {
        true => number as i64,
        false => i64::MIN,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BOX: BoundingBox = BoundingBox::new(0.0, 0.0, 1.0, 1.0);

    fn read(scores: &ClassScores, row: &[f32], threshold: f32) -> Vec<(u32, f32)> {
        let mut decoded = Decoded::default();
        let reader = scores.at(threshold);
        if reader.may_reach(row) {
            reader.read(row.iter().copied(), || BOX, &mut decoded);
        }
        let boxes = decoded.boxes.iter();
        boxes.map(|found| (found.class.0, found.score)).collect()
    }

    #[test]
    fn the_background_and_what_is_ahead_of_the_first_label_are_no_classes() {
        let row = [0.9, 0.5, 0.6, 0.7];
        for (background, offset, classes, expected) in [
            (Background::None, None, 4, &[0, 1, 2, 3][..]),
            (Background::None, Some(1), 3, &[0, 1, 2]),
            (Background::First, None, 3, &[0, 1, 2]),
            // Labels of which the first is the background's own.
            (Background::First, Some(0), 4, &[1, 2, 3]),
            (Background::First, Some(2), 2, &[0, 1]),
            (Background::Last, None, 3, &[0, 1, 2]),
            (Background::Last, Some(1), 2, &[0, 1]),
        ] {
            let scores = ClassScores::new(classes, Activation::None, background, offset, true);
            assert_eq!(scores.columns(), 4, "{background:?} {offset:?}");
            let found = read(&scores, &row, 0.1);
            let found: Vec<_> = found.iter().map(|(class, _)| *class).collect();
            assert_eq!(found, expected, "{background:?} {offset:?}");
        }
    }

    #[test]
    fn of_equal_classes_the_lowest_is_the_best() {
        let scores = ClassScores::plain(4, false);
        assert_eq!(read(&scores, &[0.1, 0.5, 0.5, 0.2], 0.3), [(1, 0.5)]);
    }

    #[test]
    fn a_label_counts_from_its_offset() {
        let numbers = LabelNumbers {
            offset: 1,
            class_count: 2,
        };
        let found = [i64::MIN, -1, 0, 1, 2, 3, i64::MAX].map(|label| numbers.class(label));
        let expected = [None, None, None, Some(0), Some(1), None, None];
        assert_eq!(found, expected.map(|class| class.map(ClassId)));
    }

    proptest! {
        #[test]
        fn no_class_is_lost_by_looking_at_numbers_before_they_are_probabilities(
            row in prop::collection::vec(-20.0f32..20.0, 4),
            threshold in prop_oneof![0.0f32..=1.0, 0.99f32..=1.0, 0.0f32..0.01, Just(1.0)],
        ) {
            for activation in [Activation::None, Activation::Sigmoid, Activation::Softmax] {
                for background in [Background::None, Background::First, Background::Last] {
                    let classes = if background == Background::None { 4 } else { 3 };
                    let scores = ClassScores::new(classes, activation, background, None, true);
                    let mut decoded = Decoded::default();
                    scores.at(threshold).read(row.iter().copied(), || BOX, &mut decoded);
                    prop_assert_eq!(read(&scores, &row, threshold).len(), decoded.boxes.len());
                }
            }
        }
    }
}
