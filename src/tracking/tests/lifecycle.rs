//! When an object gets its name, keeps it, and is forgotten.

use std::num::NonZeroU32;

use crate::tracking::{Tracker, TrackerConfig};
use crate::vision::{BoundingBox, ClassId, ScoredBox};

const ONE: NonZeroU32 = NonZeroU32::MIN;

/// Low is 0.1, sure and new are 0.5.
fn tracker() -> Tracker {
    Tracker::new(TrackerConfig::for_score_threshold(0.5))
}

/// A box of 40 by 80 whose left edge is at `x`.
fn at(x: f32, score: f32) -> ScoredBox {
    ScoredBox {
        bbox: BoundingBox::new(x, 100.0, x + 40.0, 180.0),
        score,
        class: ClassId(0),
    }
}

fn frames(frames: u32) -> NonZeroU32 {
    NonZeroU32::new(frames).unwrap()
}

fn names(tracker: &mut Tracker, steps: u32, boxes: &[ScoredBox]) -> Vec<Option<u64>> {
    let names = tracker.update(frames(steps), boxes);
    names.into_iter().map(|name| Some(name?.get())).collect()
}

#[test]
fn the_first_frame_names_its_boxes_from_one() {
    let mut tracker = tracker();
    let boxes = [at(0.0, 0.9), at(500.0, 0.6), at(900.0, 0.4)];
    assert_eq!(names(&mut tracker, 1, &boxes), [Some(1), Some(2), None]);
}

#[test]
fn a_later_object_gets_its_name_with_its_second_box() {
    let mut tracker = tracker();
    names(&mut tracker, 1, &[at(0.0, 0.9)]);
    let boxes = [at(500.0, 0.9), at(0.0, 0.9)];
    assert_eq!(names(&mut tracker, 1, &boxes), [None, Some(1)]);
    assert_eq!(names(&mut tracker, 1, &boxes), [Some(2), Some(1)]);
}

#[test]
fn what_is_seen_once_uses_no_name_up() {
    let mut tracker = tracker();
    names(&mut tracker, 1, &[]);
    for place in 0..50 {
        assert_eq!(
            names(&mut tracker, 1, &[at(100.0 * place as f32, 0.9)]),
            [None]
        );
        assert_eq!(tracker.known(), 1);
    }
    names(&mut tracker, 1, &[at(0.0, 0.9)]);
    assert_eq!(names(&mut tracker, 1, &[at(0.0, 0.9)]), [Some(1)]);
}

#[test]
fn an_unsure_box_continues_what_is_in_sight_and_nothing_else() {
    let mut tracker = tracker();
    names(&mut tracker, 1, &[at(0.0, 0.9)]);
    assert_eq!(
        names(&mut tracker, 1, &[at(0.0, 0.2), at(500.0, 0.4)]),
        [Some(1), None]
    );
    assert_eq!(
        names(&mut tracker, 1, &[at(0.0, 0.05)]),
        [None],
        "below low"
    );
    // Lost since: it takes a sure box to be found again.
    assert_eq!(names(&mut tracker, 1, &[at(0.0, 0.4)]), [None]);
    assert_eq!(names(&mut tracker, 1, &[at(0.0, 0.5)]), [Some(1)]);
}

#[test]
fn sure_boxes_choose_before_unsure_ones() {
    let mut tracker = tracker();
    names(&mut tracker, 1, &[at(0.0, 0.9)]);
    assert_eq!(
        names(&mut tracker, 1, &[at(0.0, 0.4), at(12.0, 0.5)]),
        [None, Some(1)]
    );
}

#[test]
fn a_second_box_of_an_object_does_not_take_its_name() {
    let mut tracker = tracker();
    names(&mut tracker, 1, &[at(0.0, 0.9)]);
    let twice = [at(6.0, 0.8), at(0.0, 0.9)];
    for _ in 0..3 {
        assert_eq!(names(&mut tracker, 1, &twice)[1], Some(1));
    }
    for _ in 0..10 {
        assert_eq!(names(&mut tracker, 1, &[at(0.0, 0.9)]), [Some(1)]);
    }
}

#[test]
fn an_object_is_kept_for_as_long_as_configured() {
    for (gap, name) in [(31, Some(1)), (32, None)] {
        let mut tracker = tracker();
        names(&mut tracker, 1, &[at(0.0, 0.9)]);
        (1..gap).for_each(|_| drop(names(&mut tracker, 1, &[])));
        assert_eq!(tracker.known(), usize::from(gap == 31), "{gap}");
        assert_eq!(names(&mut tracker, 1, &[at(0.0, 0.9)]), [name], "{gap}");
    }
}

#[test]
fn frames_without_an_answer_count_but_each_answer_is_a_chance() {
    let mut tracker = tracker();
    names(&mut tracker, 1, &[at(0.0, 0.9)]);
    assert_eq!(names(&mut tracker, 100, &[at(0.0, 0.9)]), [Some(1)]);
    names(&mut tracker, 31, &[]);
    assert_eq!(tracker.known(), 0);
}

#[test]
fn a_mover_is_expected_as_far_on_as_frames_have_passed() {
    let mut tracker = tracker();
    for frame in 0..20 {
        names(&mut tracker, 1, &[at(10.0 * frame as f32, 0.9)]);
    }
    assert_eq!(names(&mut tracker, 6, &[at(250.0, 0.9)]), [Some(1)]);
    assert_eq!(names(&mut tracker, 1, &[]), []);
    assert_eq!(names(&mut tracker, 9, &[at(350.0, 0.9)]), [Some(1)]);
    assert_eq!(
        names(&mut tracker, 6, &[at(350.0, 0.9)]),
        [None],
        "it stood still"
    );
}

#[test]
fn a_lost_object_keeps_its_size() {
    let grown = |frame: f32| ScoredBox {
        bbox: BoundingBox::new(500.0 - 2.0 * frame, 100.0, 540.0 + 2.0 * frame, 180.0),
        ..at(0.0, 0.9)
    };
    let mut tracker = Tracker::new(TrackerConfig {
        sure_overlap: 0.8,
        ..TrackerConfig::for_score_threshold(0.5)
    });
    for frame in 0..20 {
        names(&mut tracker, 1, &[grown(frame as f32)]);
    }
    (0..25).for_each(|_| drop(names(&mut tracker, 1, &[])));
    assert_eq!(names(&mut tracker, 1, &[grown(20.0)]), [Some(1)]);
}

#[test]
fn other_classes_have_names_of_their_own() {
    let mut tracker = tracker();
    let other = ScoredBox {
        class: ClassId(1),
        ..at(0.0, 0.9)
    };
    assert_eq!(
        names(&mut tracker, 1, &[at(0.0, 0.9), other]),
        [Some(1), Some(2)]
    );
    assert_eq!(
        names(&mut tracker, 1, &[other, at(0.0, 0.9)]),
        [Some(2), Some(1)]
    );
    assert_eq!(names(&mut tracker, 1, &[other]), [Some(2)]);
}

#[test]
fn after_a_reset_names_go_on() {
    let mut tracker = tracker();
    names(&mut tracker, 1, &[at(0.0, 0.9)]);
    tracker.reset();
    assert_eq!(tracker.known(), 0);
    assert_eq!(names(&mut tracker, 1, &[at(0.0, 0.9)]), [Some(2)]);
}

#[test]
fn of_too_many_boxes_the_surest_are_named() {
    let mut tracker = tracker();
    let boxes: Vec<_> = (0..Tracker::MAX_BOXES + 500)
        .map(|n| at(100.0 * n as f32, if n % 3 == 0 { 0.6 } else { 0.9 }))
        .collect();
    let names = tracker.update(ONE, &boxes);
    assert_eq!(tracker.known(), Tracker::MAX_BOXES);
    assert!((0..boxes.len()).all(|n| names[n].is_some() == (n % 3 != 0)));
}

#[test]
fn of_too_many_lost_objects_those_seen_last_are_kept() {
    let mut tracker = tracker();
    let group = |number: usize| -> Vec<ScoredBox> {
        let place = |n| at(100.0 * n as f32, 0.9);
        (number * 400..number * 400 + 400).map(place).collect()
    };
    let first = tracker.update(ONE, &group(0));
    for number in [1, 2, 3] {
        tracker.update(ONE, &group(number));
        tracker.update(ONE, &group(number));
    }
    tracker.update(ONE, &[]);
    assert_eq!(tracker.known(), Tracker::MAX_LOST);
    let again = tracker.update(ONE, &group(0));
    let kept = first.iter().zip(&again).filter(|(a, b)| a == b).count();
    assert_eq!(kept, 0);
    let last = tracker.update(ONE, &group(3));
    assert!(last.iter().all(Option::is_some));
}
