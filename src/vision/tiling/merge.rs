//! What was found in a picture's views, put together: each object once.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::super::bbox::{ClassId, ScoredBox};
use super::super::nms::{Kept, is_finite, min, surer_first};

/// Boxes of whole objects that were seen in different views are of one when they overlap (IoU) by more than this, even
/// where a view tells objects apart that overlap more: it sees both, and two views draw one a little differently.
pub const SAME_OBJECT: f32 = 0.5;

/// What is no whole object yields to one when they share more than this of it. IoU does not tell: a piece may be a
/// small part of its object.
const YIELDS_ABOVE: f32 = 0.5;

/// What is no whole object yields to one that is at least this share as sure.
const YIELDS_TO: f32 = 0.25;

/// Pieces that were seen in different tiles are of one object when they share more than this of the smaller. Both reach
/// over the strip that the tiles share, and only there do they meet: at the default overlap that is a third or
/// more of the smaller one for any object no larger than a tile.
const SAME_PIECES: f32 = 0.25;

/// How well a view sees an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sight {
    /// All of it, and no view sees it better for certain.
    Whole,
    /// In the view of all of the picture, where it is so small that a tile has it larger, and whole.
    Coarse,
    /// Cut by the border of a tile, or nearly so.
    Piece,
}

/// A box that was found in one view of a picture, in the picture's pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TileBox {
    /// What was found.
    pub found: ScoredBox,
    /// How well it is seen there.
    pub sight: Sight,
    /// The number of the view.
    pub view: u32,
}

/// How boxes of different views are told to be of one object.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Merging {
    /// Boxes of whole objects that overlap (IoU) by more than this are of one.
    pub iou_threshold: f32,
    /// Whether boxes of different classes may be of one object.
    pub class_agnostic: bool,
    /// Boxes that are less sure take the place of none that is at least as sure: a stream's tracker wants those as well, and
    /// what is shown is to be what would be without it. Zero where all are shown.
    pub shown_from: f32,
    /// How many of the surest boxes are looked at.
    pub max_candidates: usize,
}

/// Boxes of one class that stay.
#[derive(Debug, Default)]
struct Staying {
    /// Tagged with the view in which each was seen, like the others.
    whole: Kept,
    /// And likenesses.
    pieces: Kept,
}

/// Returns one box for each object, surest first: greedy suppression across views. Those of one view are not compared, for
/// a view tells its own objects apart.
///
/// - Of boxes of whole objects that overlap by more than the threshold the surest stays.
/// - Pieces and coarse likenesses come after these, unless they are four times as sure. One goes that mostly lies in a box
///   of a whole object (a likeness also when it covers one), or overlaps one by more than the threshold.
/// - Of pieces that meet the surest stays.
///
/// So of an object at the border of tiles its whole box stays, and of one that no view has whole a single piece, as
/// long as it is no larger than a tile.
///
/// A box with a number that is not finite is dropped. The result does not depend on the order of `boxes`.
pub fn merge(mut boxes: Vec<TileBox>, merging: &Merging) -> Vec<ScoredBox> {
    boxes.retain(|one| is_finite(&one.found));
    keep_surest(&mut boxes, merging.max_candidates);
    boxes.sort_unstable_by(|a, b| {
        let shown = |one: &TileBox| one.found.score >= merging.shown_from;
        let ranks = rank(b).total_cmp(&rank(a));
        shown(b)
            .cmp(&shown(a))
            .then(ranks)
            .then(a.sight.cmp(&b.sight))
            .then_with(|| surer(a, b))
    });
    let mut staying: HashMap<ClassId, Staying> = HashMap::new();
    boxes.retain(|one| {
        let class = match merging.class_agnostic {
            true => ClassId(0),
            false => one.found.class,
        };
        let rivals = staying.entry(class).or_default();
        let stays = !rivals.have(one, merging.iou_threshold);
        if stays {
            rivals.push(one);
        }
        stays
    });
    let mut merged: Vec<ScoredBox> = boxes.into_iter().map(|one| one.found).collect();
    merged.sort_unstable_by(surer_first);
    merged
}

/// Keeps the surest of `boxes`, in no order.
pub fn keep_surest(boxes: &mut Vec<TileBox>, most: usize) {
    if let Some(last) = most.checked_sub(1)
        && boxes.len() > most
    {
        boxes.select_nth_unstable_by(last, surer);
    }
    boxes.truncate(most);
}

/// Its place among all: the higher goes first.
fn rank(one: &TileBox) -> f32 {
    match one.sight {
        Sight::Whole => one.found.score,
        Sight::Coarse | Sight::Piece => one.found.score * YIELDS_TO,
    }
}

fn surer(a: &TileBox, b: &TileBox) -> Ordering {
    let sure = surer_first(&a.found, &b.found);
    sure.then((a.sight, a.view).cmp(&(b.sight, b.view)))
}

// === impl Staying ===

impl Staying {
    fn push(&mut self, one: &TileBox) {
        let seen = match one.sight {
            Sight::Whole => &mut self.whole,
            Sight::Coarse | Sight::Piece => &mut self.pieces,
        };
        seen.push(&one.found.bbox, one.view);
    }

    /// Whether one of these, seen elsewhere, is of the same object.
    fn have(&self, one: &TileBox, iou_threshold: f32) -> bool {
        let (bbox, seen_in) = (&one.found.bbox, one.view);
        // No short cuts within: the compiler compares several boxes at once.
        let same =
            |shared: f32, other: f32, own: f32| shared > iou_threshold * (own + other - shared);
        let in_pieces = || {
            self.pieces.any(bbox, |view, shared, piece, own| {
                (view != seen_in) & (shared > SAME_PIECES * min(own, piece))
            })
        };
        match one.sight {
            Sight::Whole => self.whole.any(bbox, |view, shared, whole, own| {
                (view != seen_in) & same(shared, whole, own)
            }),
            Sight::Piece => {
                let in_whole = self.whole.any(bbox, |view, shared, whole, own| {
                    let lies_in = shared > YIELDS_ABOVE * own;
                    (view != seen_in) & (lies_in | same(shared, whole, own))
                });
                in_whole || in_pieces()
            }
            Sight::Coarse => {
                let in_whole = self.whole.any(bbox, |view, shared, whole, own| {
                    let lies_in_or_covers = shared > YIELDS_ABOVE * min(own, whole);
                    (view != seen_in) & (lies_in_or_covers | same(shared, whole, own))
                });
                in_whole || in_pieces()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::super::bbox::BoundingBox;
    use super::*;
    use Sight::{Coarse, Piece, Whole};

    const USUAL: Merging = Merging {
        iou_threshold: 0.5,
        class_agnostic: false,
        shown_from: 0.0,
        max_candidates: usize::MAX,
    };

    fn tile_box(view: u32, sight: Sight, score: f32, [x, y, w, h]: [f32; 4]) -> TileBox {
        TileBox {
            found: ScoredBox {
                bbox: BoundingBox::new(x, y, x + w, y + h),
                score,
                class: ClassId(0),
            },
            sight,
            view,
        }
    }

    fn of_class(class: u32, mut one: TileBox) -> TileBox {
        one.found.class = ClassId(class);
        one
    }

    fn scores(boxes: &[ScoredBox]) -> Vec<f32> {
        boxes.iter().map(|kept| kept.score).collect()
    }

    #[test]
    fn an_object_in_two_tiles_is_found_once() {
        let boxes = vec![
            tile_box(1, Whole, 0.8, [80.0, 0.0, 30.0, 30.0]),
            tile_box(2, Whole, 0.9, [81.0, 0.0, 30.0, 30.0]),
        ];
        assert_eq!(scores(&merge(boxes, &USUAL)), [0.9]);
    }

    #[test]
    fn a_piece_yields_to_the_whole_object_though_it_is_surer() {
        let whole = tile_box(1, Whole, 0.4, [80.0, 0.0, 40.0, 40.0]);
        let piece = tile_box(2, Piece, 0.9, [80.0, 0.0, 10.0, 40.0]);
        assert!(whole.found.bbox.iou(&piece.found.bbox) < 0.3);
        assert_eq!(scores(&merge(vec![piece, whole], &USUAL)), [0.4]);
        // But not to what is hardly told to be one.
        let mut guess = whole;
        guess.found.score = 0.1;
        assert_eq!(scores(&merge(vec![piece, guess], &USUAL)), [0.9, 0.1]);
    }

    #[test]
    fn what_is_shown_yields_to_nothing_that_is_not() {
        let whole = tile_box(1, Whole, 0.27, [80.0, 0.0, 40.0, 40.0]);
        let piece = tile_box(2, Piece, 0.75, [80.0, 0.0, 10.0, 40.0]);
        assert_eq!(scores(&merge(vec![piece, whole], &USUAL)), [0.27]);
        let tracked = Merging {
            shown_from: 0.3,
            ..USUAL
        };
        assert_eq!(scores(&merge(vec![piece, whole], &tracked)), [0.75, 0.27]);
    }

    #[test]
    fn the_pieces_of_an_object_larger_than_a_tile_yield_to_the_view_of_all() {
        let object = tile_box(0, Whole, 0.5, [0.0, 0.0, 300.0, 100.0]);
        let pieces = (0..4u8).map(|n| {
            let left = 80.0 * f32::from(n);
            tile_box(1 + u32::from(n), Piece, 0.9, [left, 0.0, 90.0, 100.0])
        });
        let boxes = pieces.take(3).chain([object]).collect();
        assert_eq!(merge(boxes, &USUAL), [object.found]);
    }

    #[test]
    fn of_an_object_that_no_view_has_whole_one_piece_stays() {
        // Tiles of 100 that share 20; the object is 60, and then 100 long.
        for seen in [40.0, 60.0] {
            let boxes = vec![
                tile_box(1, Piece, 0.6, [100.0 - seen, 0.0, seen, 20.0]),
                tile_box(2, Piece, 0.7, [80.0, 0.0, seen, 20.0]),
            ];
            assert_eq!(scores(&merge(boxes, &USUAL)), [0.7]);
        }
    }

    #[test]
    fn what_one_view_sees_it_tells_apart() {
        let crowd = [
            tile_box(1, Whole, 0.9, [0.0, 0.0, 30.0, 30.0]),
            tile_box(1, Whole, 0.7, [8.0, 0.0, 30.0, 30.0]),
        ];
        assert!(crowd[0].found.bbox.iou(&crowd[1].found.bbox) > USUAL.iou_threshold);
        // The second as another view has it is too much like the first, but stays as the first view has it.
        let again = tile_box(2, Whole, 0.8, [7.0, 0.0, 30.0, 30.0]);
        let boxes = vec![crowd[0], crowd[1], again];
        assert_eq!(scores(&merge(boxes, &USUAL)), [0.9, 0.7]);
        let pieces = vec![
            tile_box(1, Piece, 0.9, [60.0, 0.0, 40.0, 20.0]),
            tile_box(1, Piece, 0.7, [80.0, 0.0, 20.0, 20.0]),
        ];
        assert_eq!(scores(&merge(pieces, &USUAL)), [0.9, 0.7]);
    }

    #[test]
    fn a_small_object_before_the_piece_of_a_large_one_takes_nothing_from_it() {
        let boxes = vec![
            tile_box(1, Whole, 0.9, [70.0, 10.0, 10.0, 10.0]),
            tile_box(1, Piece, 0.8, [20.0, 0.0, 80.0, 80.0]),
        ];
        assert_eq!(scores(&merge(boxes, &USUAL)), [0.9, 0.8]);
    }

    #[test]
    fn a_coarse_likeness_yields_to_what_a_tile_sees_in_or_around_it() {
        let coarse = tile_box(0, Coarse, 0.9, [6.0, 6.0, 32.0, 32.0]);
        for seen in [[10.0, 10.0, 20.0, 20.0], [0.0, 0.0, 50.0, 50.0]] {
            let boxes = vec![coarse, tile_box(3, Whole, 0.5, seen)];
            assert_eq!(scores(&merge(boxes, &USUAL)), [0.5]);
        }
        assert_eq!(merge(vec![coarse], &USUAL), [coarse.found]);
    }

    #[test]
    fn objects_that_lie_in_one_another_are_no_pieces() {
        let boxes = vec![
            tile_box(1, Whole, 0.9, [0.0, 0.0, 100.0, 100.0]),
            tile_box(2, Whole, 0.8, [10.0, 10.0, 20.0, 20.0]),
        ];
        assert_eq!(scores(&merge(boxes, &USUAL)), [0.9, 0.8]);
    }

    #[test]
    fn pieces_of_other_classes_are_spared_unless_it_is_agnostic() {
        let boxes = vec![
            tile_box(1, Whole, 0.9, [0.0, 0.0, 40.0, 40.0]),
            of_class(1, tile_box(2, Piece, 0.8, [0.0, 0.0, 10.0, 40.0])),
        ];
        assert_eq!(scores(&merge(boxes.clone(), &USUAL)), [0.9, 0.8]);
        let agnostic = Merging {
            class_agnostic: true,
            ..USUAL
        };
        assert_eq!(scores(&merge(boxes, &agnostic)), [0.9]);
    }

    #[test]
    fn the_surest_are_kept() {
        let at = |n: u8| {
            tile_box(
                0,
                Whole,
                f32::from(n) / 10.0,
                [f32::from(n) * 20.0, 0.0, 9.0, 9.0],
            )
        };
        let boxes: Vec<TileBox> = [3, 1, 4, 0, 2].map(at).to_vec();
        for (most, kept) in [(0, 0), (2, 2), (5, 5), (9, 5)] {
            let mut left = boxes.clone();
            keep_surest(&mut left, most);
            let expected: Vec<f32> = (0..5u8)
                .rev()
                .take(kept)
                .map(|n| f32::from(n) / 10.0)
                .collect();
            assert_eq!(scores(&merge(left, &USUAL)), expected);
        }
    }

    /// Coarse numbers, so that ties and equal boxes do occur.
    fn any_boxes() -> impl Strategy<Value = Vec<TileBox>> {
        let side = || (1u8..8).prop_map(f32::from);
        let place = || (0u8..16).prop_map(f32::from);
        let sight = prop_oneof![Just(Whole), Just(Coarse), Just(Piece)];
        let what = (0u8..10, 0u32..2, 0u32..4, sight);
        let one = (what, place(), place(), side(), side()).prop_map(
            |((score, class, view, sight), x, y, w, h)| {
                let score = f32::from(score) / 10.0;
                of_class(class, tile_box(view, sight, score, [x, y, w, h]))
            },
        );
        // No two as sure, so that each is known again.
        prop::collection::vec(one, 0..80).prop_map(|mut boxes| {
            let sure = (0u16..).map(|n| f32::from(n) * 1e-4);
            boxes
                .iter_mut()
                .zip(sure)
                .for_each(|(one, more)| one.found.score += more);
            boxes
        })
    }

    proptest! {
        #[test]
        fn whole_objects_stay_as_if_there_were_nothing_else(boxes in any_boxes()) {
            let whole = boxes.iter().filter(|one| one.sight == Whole).copied();
            let alone = merge(whole.collect(), &USUAL);
            let merged = merge(boxes, &USUAL);
            prop_assert!(merged.is_sorted_by(|a, b| a.score >= b.score));
            prop_assert!(alone.iter().all(|stays| merged.contains(stays)));
        }

        #[test]
        fn nothing_stays_that_another_view_shows_better(boxes in any_boxes()) {
            let merged = merge(boxes.clone(), &USUAL);
            let stays: Vec<&TileBox> = boxes.iter().filter(|one| merged.contains(&one.found)).collect();
            prop_assert_eq!(stays.len(), merged.len());
            for (one, other) in stays.iter().flat_map(|one| stays.iter().map(move |other| (one, other))) {
                if one.view == other.view || one.found.class != other.found.class {
                    continue;
                }
                let (a, b) = (&one.found.bbox, &other.found.bbox);
                if other.sight == Whole {
                    let surer = one.sight != Whole && one.found.score > 4.0 * other.found.score;
                    prop_assert!(surer || a.iou(b) <= 0.5 + 1e-6);
                    prop_assert!(one.sight == Whole || surer || a.clip_to(b) != Some(*a));
                }
            }
        }

        #[test]
        fn what_goes_is_much_like_something_that_stays_elsewhere(boxes in any_boxes()) {
            let merged = merge(boxes.clone(), &USUAL);
            let (stays, gone): (Vec<TileBox>, Vec<TileBox>) = boxes.iter().copied().partition(|one| merged.contains(&one.found));
            for one in gone {
                let meets = |other: &TileBox| {
                    other.view != one.view
                        && other.found.class == one.found.class
                        && other.found.bbox.iou(&one.found.bbox) > 0.0
                        && (other.sight == Whole || one.sight != Whole)
                };
                prop_assert!(stays.iter().any(meets));
            }
        }

        #[test]
        fn the_order_of_the_boxes_does_not_matter(
            (boxes, shuffled) in any_boxes().prop_flat_map(|boxes| (Just(boxes.clone()), Just(boxes).prop_shuffle())),
        ) {
            prop_assert_eq!(merge(boxes, &USUAL), merge(shuffled, &USUAL));
        }
    }
}
