//! Boxes and settings that nobody should send.

use std::collections::HashSet;
use std::num::NonZeroU32;

use proptest::prelude::*;

use crate::tracking::{TrackId, Tracker, TrackerConfig};
use crate::vision::{BoundingBox, ClassId, ScoredBox};

/// Few ordinary places, so that things meet, and all the odd ones.
fn any_edge() -> impl Strategy<Value = f32> {
    prop_oneof![
        8 => (0u8..12).prop_map(|edge| 10.0 * f32::from(edge)),
        1 => any::<f32>(),
        1 => prop::sample::select(vec![
            0.0,
            -0.0,
            f32::MAX,
            f32::MIN,
            f32::MIN_POSITIVE,
            1e-45,
            1e19,
            -1e19,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
        ]),
    ]
}

prop_compose! {
    fn any_box()(
        edges in [any_edge(), any_edge(), any_edge(), any_edge()],
        score in prop_oneof![9 => 0.0f32..1.0, 1 => any::<f32>()],
        class in 0u32..3,
    ) -> ScoredBox {
        let [x_min, y_min, x_max, y_max] = edges;
        ScoredBox { bbox: BoundingBox::new(x_min, y_min, x_max, y_max), score, class: ClassId(class) }
    }
}

fn any_frames() -> impl Strategy<Value = Vec<(NonZeroU32, Vec<ScoredBox>)>> {
    let steps = prop_oneof![4 => 1u32..4, 1 => 1u32..=u32::MAX];
    let steps = steps.prop_map(|steps| NonZeroU32::new(steps).unwrap());
    prop::collection::vec((steps, prop::collection::vec(any_box(), 0..20)), 0..20)
}

prop_compose! {
    fn any_config()(
        numbers in prop::array::uniform6(prop_oneof![3 => 0.0f32..1.0, 1 => any::<f32>()]),
        lost_frames in prop_oneof![3 => 0u32..40, 1 => any::<u32>()],
    ) -> TrackerConfig {
        let [low_threshold, high_threshold, new_threshold, sure_overlap, unsure_overlap, new_overlap] = numbers;
        TrackerConfig {
            low_threshold, high_threshold, new_threshold, sure_overlap, unsure_overlap, new_overlap, lost_frames,
        }
    }
}

fn names(
    config: TrackerConfig,
    frames: &[(NonZeroU32, Vec<ScoredBox>)],
) -> Vec<Vec<Option<TrackId>>> {
    let mut tracker = Tracker::new(config);
    let frames = frames.iter();
    frames
        .map(|(steps, boxes)| tracker.update(*steps, boxes))
        .collect()
}

proptest! {
    #[test]
    fn anything_is_answered_box_by_box_and_no_name_is_there_twice(
        config in any_config(),
        frames in any_frames(),
    ) {
        let mut class_of = std::collections::HashMap::new();
        for ((_, boxes), names) in frames.iter().zip(names(config, &frames)) {
            prop_assert_eq!(boxes.len(), names.len());
            let mut here = HashSet::new();
            for (found, name) in boxes.iter().zip(names) {
                let Some(name) = name else { continue };
                prop_assert!(here.insert(name));
                prop_assert!(name.get() >= 1);
                prop_assert!(found.bbox.area() > 0.0 && found.bbox.area().is_finite());
                prop_assert!(found.score >= config.low_threshold);
                let class = class_of.entry(name).or_insert(found.class);
                prop_assert_eq!(*class, found.class);
            }
        }
    }

    #[test]
    fn the_same_frames_give_the_same_names(frames in any_frames()) {
        let config = TrackerConfig::for_score_threshold(0.3);
        prop_assert_eq!(names(config, &frames), names(config, &frames));
    }
}

#[test]
fn boxes_heaped_on_one_another_are_named_apart() {
    let heap: Vec<_> = (0..3000)
        .map(|n| ScoredBox {
            bbox: BoundingBox::new(0.0, 0.0, 100.0 + n as f32 / 30.0, 100.0),
            score: 0.9,
            class: ClassId(0),
        })
        .collect();
    let mut tracker = Tracker::new(TrackerConfig::for_score_threshold(0.3));
    for _ in 0..3 {
        let names = tracker.update(NonZeroU32::MIN, &heap);
        let named: HashSet<_> = names.iter().flatten().collect();
        assert_eq!(named.len(), names.iter().flatten().count());
        assert!(tracker.known() <= Tracker::MAX_BOXES + Tracker::MAX_LOST);
    }
}
