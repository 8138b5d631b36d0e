//! Non-maximum suppression: of the boxes that show the same object, the surest stays.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::bbox::{BoundingBox, ClassId, ScoredBox};

/// Greedy suppression by overlap.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NonMaxSuppression {
    /// A box goes when its overlap (IoU) with a surer one that stays is *above* this. In `[0, 1]`: at 1
    /// none goes.
    pub iou_threshold: f32,
    /// Whether boxes suppress those of other classes too.
    pub class_agnostic: bool,
    /// How many of the surest boxes are looked at; the rest is dropped before suppression. It bounds the
    /// work, which grows with the square of what stays.
    pub max_candidates: usize,
}

/// The boxes of one class that stay, surest first: each edge in a row of its own, so that the compiler can
/// compare one box with several at once.
#[derive(Debug, Default)]
pub(super) struct Kept {
    x_min: Vec<f32>,
    y_min: Vec<f32>,
    x_max: Vec<f32>,
    y_max: Vec<f32>,
    area: Vec<f32>,
    /// A number of the caller's for each.
    tag: Vec<u32>,
}

// === impl NonMaxSuppression ===

impl NonMaxSuppression {
    /// Returns those of `boxes` that stay, surest first.
    ///
    /// A box with a number that is not finite is dropped. The result does not depend on the order of
    /// `boxes`: equal scores are ordered by class, then by the edges.
    pub fn apply(&self, mut boxes: Vec<ScoredBox>) -> Vec<ScoredBox> {
        boxes.retain(is_finite);
        if self.max_candidates == 0 {
            boxes.clear();
        }
        if boxes.len() > self.max_candidates {
            boxes.select_nth_unstable_by(self.max_candidates - 1, surer_first);
            boxes.truncate(self.max_candidates);
        }
        boxes.sort_unstable_by(surer_first);
        // No overlap is above 1, and to find that out of each pair is the most work there is.
        if self.iou_threshold >= 1.0 {
            return boxes;
        }

        let mut kept: HashMap<ClassId, Kept> = HashMap::new();
        boxes.retain(|candidate| {
            let class = if self.class_agnostic {
                ClassId(0)
            } else {
                candidate.class
            };
            let rivals = kept.entry(class).or_default();
            let stays = !rivals.overlap_above(self.iou_threshold, &candidate.bbox);
            if stays {
                rivals.push(&candidate.bbox, 0);
            }
            stays
        });
        boxes
    }
}

pub(super) fn is_finite(candidate: &ScoredBox) -> bool {
    let bbox = &candidate.bbox;
    [
        candidate.score,
        bbox.x_min,
        bbox.y_min,
        bbox.x_max,
        bbox.y_max,
    ]
    .iter()
    .all(|number| number.is_finite())
}

pub(super) fn surer_first(a: &ScoredBox, b: &ScoredBox) -> Ordering {
    let edges = |c: &ScoredBox| [c.bbox.x_min, c.bbox.y_min, c.bbox.x_max, c.bbox.y_max];
    b.score
        .total_cmp(&a.score)
        .then_with(|| a.class.cmp(&b.class))
        .then_with(|| {
            let pairs = edges(a).into_iter().zip(edges(b));
            pairs
                .map(|(a, b)| a.total_cmp(&b))
                .find(|order| order.is_ne())
                .unwrap_or(Ordering::Equal)
        })
}

// === impl Kept ===

impl Kept {
    /// Boxes compared before looking whether one of them was enough.
    const BLOCK: usize = 32;

    pub(super) fn push(&mut self, bbox: &BoundingBox, tag: u32) {
        self.x_min.push(bbox.x_min);
        self.y_min.push(bbox.y_min);
        self.x_max.push(bbox.x_max);
        self.y_max.push(bbox.y_max);
        self.area.push(bbox.area());
        self.tag.push(tag);
    }

    /// Whether one of these boxes overlaps `candidate` by more than `threshold`.
    ///
    /// The same arithmetic as [`BoundingBox::iou`], without its care for odd numbers: a quotient that is
    /// none compares as not above.
    fn overlap_above(&self, threshold: f32, candidate: &BoundingBox) -> bool {
        self.any(candidate, |_, shared, kept, own| {
            shared / (kept + own - shared) > threshold
        })
    }

    /// Whether `test` holds of one of these boxes: it is given the box's tag, the area that the box and `candidate` share,
    /// the box's own, and that of `candidate`.
    pub(super) fn any(
        &self,
        candidate: &BoundingBox,
        test: impl Fn(u32, f32, f32, f32) -> bool,
    ) -> bool {
        let area = candidate.area();
        (0..self.area.len()).step_by(Self::BLOCK).any(|start| {
            let block = start..(start + Self::BLOCK).min(self.area.len());
            let x_min = &self.x_min[block.clone()];
            let y_min = &self.y_min[block.clone()];
            let x_max = &self.x_max[block.clone()];
            let y_max = &self.y_max[block.clone()];
            let areas = &self.area[block.clone()];
            let tags = &self.tag[block];
            let mut above = false;
            for index in 0..areas.len() {
                let width = min(x_max[index], candidate.x_max) - max(x_min[index], candidate.x_min);
                let height =
                    min(y_max[index], candidate.y_max) - max(y_min[index], candidate.y_min);
                let shared = max(width, 0.0) * max(height, 0.0);
                above |= test(tags[index], shared, areas[index], area);
            }
            above
        })
    }
}

/// `f32::max` without its rule for NaN, which costs the loop above its single instruction.
fn max(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

/// `f32::min`, likewise.
pub(super) fn min(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: NonMaxSuppression = NonMaxSuppression {
        iou_threshold: 0.5,
        class_agnostic: false,
        max_candidates: usize::MAX,
    };

    fn scored(score: f32, class: u32, [x, y, w, h]: [f32; 4]) -> ScoredBox {
        ScoredBox {
            bbox: BoundingBox::new(x, y, x + w, y + h),
            score,
            class: ClassId(class),
        }
    }

    fn scores(boxes: &[ScoredBox]) -> Vec<f32> {
        boxes.iter().map(|kept| kept.score).collect()
    }

    #[test]
    fn the_surest_of_overlapping_boxes_stays() {
        let boxes = vec![
            scored(0.5, 1, [1.0, 0.0, 10.0, 10.0]),
            scored(0.9, 1, [0.0, 0.0, 10.0, 10.0]),
            scored(0.3, 1, [50.0, 0.0, 10.0, 10.0]),
        ];
        assert_eq!(scores(&ALL.apply(boxes)), [0.9, 0.3]);
    }

    #[test]
    fn other_classes_are_spared_unless_it_is_agnostic() {
        let boxes = vec![
            scored(0.9, 1, [0.0, 0.0, 10.0, 10.0]),
            scored(0.8, 2, [0.0, 0.0, 10.0, 10.0]),
        ];
        assert_eq!(scores(&ALL.apply(boxes.clone())), [0.9, 0.8]);
        let agnostic = NonMaxSuppression {
            class_agnostic: true,
            ..ALL
        };
        assert_eq!(scores(&agnostic.apply(boxes)), [0.9]);
    }

    #[test]
    fn an_overlap_of_just_the_threshold_stays() {
        let boxes = vec![
            scored(0.9, 0, [0.0, 0.0, 4.0, 4.0]),
            scored(0.8, 0, [0.0, 0.0, 4.0, 2.0]),
        ];
        assert_eq!(boxes[0].bbox.iou(&boxes[1].bbox), 0.5);
        assert_eq!(ALL.apply(boxes.clone()).len(), 2);
        let stricter = NonMaxSuppression {
            iou_threshold: 0.499,
            ..ALL
        };
        assert_eq!(stricter.apply(boxes).len(), 1);
    }

    #[test]
    fn at_a_threshold_of_one_all_stay_in_order() {
        let same = scored(0.9, 0, [0.1, 0.2, 0.3, 0.7]);
        let surer = scored(0.95, 1, [0.1, 0.2, 0.3, 0.7]);
        let nms = NonMaxSuppression {
            iou_threshold: 1.0,
            class_agnostic: true,
            ..ALL
        };
        assert_eq!(
            scores(&nms.apply(vec![same, same, surer])),
            [0.95, 0.9, 0.9]
        );
    }

    #[test]
    fn a_suppressed_box_suppresses_nothing() {
        let chain = (0..4)
            .map(|n| scored(0.9 - n as f32 / 10.0, 0, [3.0 * n as f32, 0.0, 10.0, 10.0]))
            .collect();
        assert_eq!(scores(&ALL.apply(chain)), [0.9, 0.9 - 0.2]);
    }

    #[test]
    fn boxes_without_numbers_are_dropped() {
        let mut boxes = vec![scored(0.4, 0, [0.0, 0.0, 1.0, 1.0]); 5];
        boxes[0].score = f32::NAN;
        boxes[1].bbox.x_min = f32::NAN;
        boxes[2].bbox.y_max = f32::INFINITY;
        boxes[3].bbox.x_min = f32::NEG_INFINITY;
        assert_eq!(ALL.apply(boxes).len(), 1);
    }

    #[test]
    fn only_the_surest_candidates_are_looked_at() {
        let boxes: Vec<_> = (0..10)
            .map(|n| scored(n as f32, 0, [20.0 * n as f32, 0.0, 10.0, 10.0]))
            .collect();
        for (max_candidates, kept) in [(0, 0), (1, 1), (3, 3), (10, 10), (11, 10)] {
            let nms = NonMaxSuppression {
                max_candidates,
                ..ALL
            };
            let result = scores(&nms.apply(boxes.clone()));
            let expected: Vec<f32> = (0..10).rev().take(kept).map(|n| n as f32).collect();
            assert_eq!(result, expected);
        }
    }

    #[test]
    fn boxes_without_area_neither_suppress_nor_go() {
        let point = scored(0.9, 0, [5.0, 5.0, 0.0, 0.0]);
        let reversed = scored(0.8, 0, [9.0, 9.0, -8.0, -8.0]);
        let whole = scored(0.7, 0, [0.0, 0.0, 10.0, 10.0]);
        assert_eq!(ALL.apply(vec![point, point, reversed, whole]).len(), 4);
    }

    /// Coarse numbers, so that ties, equal boxes and overlaps at the threshold do occur.
    fn any_boxes() -> impl Strategy<Value = Vec<ScoredBox>> {
        let side = || (1u8..8).prop_map(f32::from);
        let place = || (0u8..16).prop_map(f32::from);
        let one = (0u8..10, 0u32..3, place(), place(), side(), side()).prop_map(
            |(score, class, x, y, w, h)| scored(f32::from(score) / 10.0, class, [x, y, w, h]),
        );
        prop::collection::vec(one, 0..120)
    }

    fn any_nms() -> impl Strategy<Value = NonMaxSuppression> {
        (0.0f32..1.0, any::<bool>(), 1usize..150).prop_map(
            |(iou_threshold, class_agnostic, max_candidates)| NonMaxSuppression {
                iou_threshold,
                class_agnostic,
                max_candidates,
            },
        )
    }

    proptest! {
        #[test]
        fn what_stays_was_there_and_comes_surest_first(boxes in any_boxes(), nms in any_nms()) {
            let mut left = boxes.clone();
            let kept = nms.apply(boxes);
            for stays in &kept {
                let at = left.iter().position(|one| one == stays);
                prop_assert!(at.is_some());
                left.swap_remove(at.unwrap());
            }
            prop_assert!(kept.is_sorted_by(|a, b| a.score >= b.score));
            prop_assert!(kept.len() <= nms.max_candidates);
        }

        #[test]
        fn no_two_that_stay_overlap_above_the_threshold(boxes in any_boxes(), nms in any_nms()) {
            let kept = nms.apply(boxes);
            for (index, a) in kept.iter().enumerate() {
                for b in &kept[..index] {
                    if nms.class_agnostic || a.class == b.class {
                        prop_assert!(a.bbox.iou(&b.bbox) <= nms.iou_threshold);
                    }
                }
            }
        }

        #[test]
        fn what_goes_is_overlapped_by_a_surer_one_that_stays(boxes in any_boxes(), nms in any_nms()) {
            let nms = NonMaxSuppression { max_candidates: usize::MAX, ..nms };
            let kept = nms.apply(boxes.clone());
            for gone in boxes.iter().filter(|one| !kept.contains(one)) {
                let by = |stays: &&ScoredBox| {
                    stays.score >= gone.score
                        && (nms.class_agnostic || stays.class == gone.class)
                        && stays.bbox.iou(&gone.bbox) > nms.iou_threshold
                };
                prop_assert!(kept.iter().any(|stays| by(&stays)));
            }
        }

        #[test]
        fn a_second_time_changes_nothing(boxes in any_boxes(), nms in any_nms()) {
            let once = nms.apply(boxes);
            prop_assert_eq!(nms.apply(once.clone()), once);
        }

        #[test]
        fn the_order_of_the_boxes_does_not_matter(
            (boxes, shuffled) in any_boxes().prop_flat_map(|boxes| (Just(boxes.clone()), Just(boxes).prop_shuffle())),
            nms in any_nms(),
        ) {
            prop_assert_eq!(nms.apply(boxes), nms.apply(shuffled));
        }
    }
}
