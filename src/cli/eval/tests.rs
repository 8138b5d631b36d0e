//! The marks, beside those of COCO's own tools (`tests/golden/make_coco_ap.py`).

use serde::Deserialize;

use super::coco::{Found, Truth};
use super::metric::Scores;

#[derive(Deserialize)]
struct Case {
    name: String,
    truth: Truth,
    found: Vec<Found>,
    scores: Scores,
}

fn cases() -> Vec<Case> {
    serde_json::from_str(include_str!("../../../tests/golden/coco_ap.json")).unwrap()
}

fn numbers(scores: &Scores) -> [Option<f64>; 7] {
    let s = scores;
    [
        s.ap,
        s.ap50,
        s.ap75,
        s.ap_small,
        s.ap_medium,
        s.ap_large,
        s.ar100,
    ]
}

#[test]
fn the_marks_are_those_of_cocos_own_tools() {
    let cases = cases();
    assert!(cases.len() > 5);
    for case in cases {
        let ours = Scores::new(&case.truth, &case.found);
        for (ours, theirs) in numbers(&ours).into_iter().zip(numbers(&case.scores)) {
            let same = match (ours, theirs) {
                (Some(ours), Some(theirs)) => (ours - theirs).abs() < 1e-9,
                (ours, theirs) => ours == theirs,
            };
            assert!(same, "{}: {ours:?} is not {theirs:?}", case.name);
        }
    }
}
