//! Row by row, what a camera's objects do: how well their identities are kept.

use std::num::NonZeroU32;

use super::identities::{Labelled, Score};
use super::world::{Detector, Frame, HEIGHT, Object, Random, WIDTH};
use crate::tracking::{TrackId, Tracker, TrackerConfig};
use crate::vision::ScoredBox;

/// What a stream's replies show.
const SHOWN: f32 = 0.4;
const FRAMES: usize = 300;
const SEEDS: u64 = 20;

/// What makes the frames of one seed.
type Scenario = fn(&mut Random) -> Vec<Frame>;

/// What names the boxes of one stream, frame by frame.
type Namer = Box<dyn FnMut(u32, &[ScoredBox]) -> Vec<Option<TrackId>>>;

/// Makes one a stream: a tracker, good or bad.
type Naming = fn() -> Namer;

fn run(scenario: Scenario, naming: Naming) -> Score {
    let mut score = Score::default();
    for seed in 0..SEEDS {
        let frames = scenario(&mut Random::new(seed));
        let mut name = naming();
        let shown: Vec<Vec<Labelled>> = frames
            .iter()
            .map(|frame| {
                let boxes: Vec<ScoredBox> = frame.boxes.iter().map(|(_, found)| *found).collect();
                let names = name(frame.steps, &boxes);
                assert_eq!(names.len(), boxes.len());
                let all = frame.boxes.iter().zip(names);
                all.filter(|((_, found), _)| found.score >= SHOWN)
                    .map(|((object, _), name)| (*object, name))
                    .collect()
            })
            .collect();
        score.add(Score::of(&shown));
    }
    score
}

fn tracker(config: TrackerConfig) -> Namer {
    let mut tracker = Tracker::new(config);
    Box::new(move |steps, boxes| tracker.update(NonZeroU32::new(steps).unwrap(), boxes))
}

fn ours() -> Namer {
    tracker(TrackerConfig::for_score_threshold(SHOWN))
}

/// Looks at sure boxes only.
fn one_round() -> Namer {
    tracker(TrackerConfig {
        low_threshold: SHOWN,
        ..TrackerConfig::for_score_threshold(SHOWN)
    })
}

/// Expects objects where they were last seen and takes the first that overlaps.
fn without_motion() -> Namer {
    let mut known: Vec<(TrackId, ScoredBox, u32)> = Vec::new();
    let mut next = TrackId::FIRST;
    Box::new(move |steps, boxes| {
        for (_, _, age) in &mut known {
            *age += steps;
        }
        let mut names = vec![None; boxes.len()];
        let mut pairs = Vec::new();
        for (index, found) in boxes.iter().enumerate() {
            for (track, (_, last, _)) in known.iter().enumerate() {
                let overlap = last.bbox.iou(&found.bbox);
                if last.class == found.class && overlap >= 0.2 {
                    pairs.push((overlap, index, track));
                }
            }
        }
        pairs.sort_by(|a, b| b.0.total_cmp(&a.0));
        for (_, index, track) in pairs {
            let (id, last, age) = &mut known[track];
            if *age > 0 && names[index].is_none() {
                (*last, *age) = (boxes[index], 0);
                names[index] = Some(*id);
            }
        }
        for (found, name) in boxes.iter().zip(&mut names) {
            if name.is_none() && found.score >= SHOWN {
                *name = Some(next);
                known.push((next, *found, 0));
                next = next.next();
            }
        }
        known.retain(|(_, _, age)| *age <= 30);
        names
    })
}

/// Frames of objects that `act` before each.
fn film(
    mut objects: Vec<Object>,
    detector: Detector,
    random: &mut Random,
    mut act: impl FnMut(usize, &mut [Object], &mut Random),
    hidden: impl Fn(usize, &Object, usize) -> bool,
) -> Vec<Frame> {
    let frames = 0..FRAMES;
    frames
        .map(|frame| {
            act(frame, &mut objects, random);
            objects.iter_mut().for_each(Object::step);
            let hidden = |index| hidden(frame, &objects[index], index);
            Frame {
                steps: 1,
                boxes: detector.look(&objects, hidden, random),
            }
        })
        .collect()
}

fn never(_: usize, _: &Object, _: usize) -> bool {
    false
}

/// Ten lanes, people and cars, left and right.
fn lanes(random: &mut Random) -> Vec<Object> {
    let mut lanes = Vec::new();
    for lane in 0..10 {
        let y = 70.0 + 105.0 * f64::from(lane);
        let height = random.within(60.0, 95.0);
        let speed = random.within(2.0, 5.0);
        let (x, velocity) = match lane % 2 {
            0 => (random.within(0.0, 400.0), [speed, 0.0]),
            _ => (WIDTH - random.within(0.0, 400.0), [-speed, 0.0]),
        };
        lanes.push(match lane % 3 {
            0 => Object::car([x, y], velocity, height),
            _ => Object::person([x, y], velocity, height),
        });
    }
    lanes
}

/// People in all directions, turning at the borders.
fn crowd(count: usize, random: &mut Random) -> Vec<Object> {
    let person = |_| {
        let at = [
            random.within(100.0, WIDTH - 100.0),
            random.within(100.0, HEIGHT - 100.0),
        ];
        let velocity = [3.0 * random.normal(), 1.5 * random.normal()];
        let height = random.within(70.0, 160.0);
        let mut one = match random.chance(0.75) {
            true => Object::person(at, velocity, height),
            false => Object::car(at, velocity, 0.6 * height),
        };
        one.score = random.within(0.6, 0.92);
        one
    };
    (0..count).map(person).collect()
}

fn amble(_: usize, objects: &mut [Object], random: &mut Random) {
    for one in objects {
        one.wander(0.001, random);
        one.stay_inside();
    }
}

// The simple ones.

fn parallel(random: &mut Random) -> Vec<Frame> {
    let lanes = lanes(random);
    film(lanes, Detector::GOOD, random, |_, _, _| (), never)
}

fn trembling(random: &mut Random) -> Vec<Frame> {
    let lanes = lanes(random);
    let detector = Detector {
        tremble: 0.05,
        ..Detector::GOOD
    };
    film(lanes, detector, random, |_, _, _| (), never)
}

fn approaching(random: &mut Random) -> Vec<Frame> {
    let mut lanes = lanes(random);
    for one in &mut lanes {
        one.size = one.size.map(|side| side / 2.0);
        one.velocity[0] /= 2.0;
        one.growth = 0.003;
    }
    film(lanes, Detector::GOOD, random, |_, _, _| (), never)
}

/// Two by two, on paths that cross at the picture's middle, at their own times; the one behind is hidden for a while.
fn crossing(random: &mut Random) -> Vec<Frame> {
    let mut pairs = Vec::new();
    for pair in 0..5 {
        let middle = [200.0 + 380.0 * f64::from(pair), HEIGHT / 2.0];
        let meeting = random.within(80.0, 200.0);
        for sign in [-1.0, 1.0] {
            let velocity = [sign * random.within(1.0, 2.0), random.within(-1.0, 1.0)];
            let at = [0, 1].map(|axis| middle[axis] - meeting * velocity[axis]);
            pairs.push(Object::person(at, velocity, random.within(100.0, 140.0)));
        }
    }
    film(pairs, Detector::GOOD, random, |_, _, _| (), never)
}

/// Lanes behind pillars: each hides what passes for 5 to 20 frames.
fn gaps(random: &mut Random) -> Vec<Frame> {
    let lanes = lanes(random);
    let starts: Vec<Vec<(usize, usize)>> = lanes
        .iter()
        .map(|_| {
            let gap = |n: usize| {
                let start = 20 + 70 * n + random.within(0.0, 30.0) as usize;
                (start, start + random.within(5.0, 21.0) as usize)
            };
            (0..4).map(gap).collect()
        })
        .collect();
    let hidden = |frame: usize, _: &Object, index: usize| {
        starts[index]
            .iter()
            .any(|&(from, to)| (from..to).contains(&frame))
    };
    let wander = |_: usize, objects: &mut [Object], random: &mut Random| {
        for one in objects {
            one.wander(0.0005, random);
        }
    };
    let detector = Detector {
        tremble: 0.05,
        ..Detector::GOOD
    };
    film(lanes, detector, random, wander, hidden)
}

fn clutter(random: &mut Random) -> Vec<Frame> {
    let crowd = crowd(12, random);
    let detector = Detector {
        clutter: 6.0,
        ..Detector::GOOD
    };
    film(crowd, detector, random, amble, never)
}

fn misses(random: &mut Random) -> Vec<Frame> {
    let crowd = crowd(12, random);
    let detector = Detector {
        misses: 0.2,
        ..Detector::GOOD
    };
    film(crowd, detector, random, amble, never)
}

/// In turn each is seen badly for 15 to 30 frames, and turns round meanwhile.
fn unsure(random: &mut Random) -> Vec<Frame> {
    const TURN: usize = 12;
    let lanes = lanes(random);
    let mut turns: Vec<(usize, f64)> = lanes.iter().map(|_| (0, 0.0)).collect();
    let act = move |frame: usize, objects: &mut [Object], random: &mut Random| {
        for (one, (until, speed)) in objects.iter_mut().zip(&mut turns) {
            let left = until.saturating_sub(frame);
            if left == 0 {
                one.score = 0.85;
            }
            if (1..=TURN).contains(&left) {
                one.velocity[0] -= 2.0 * *speed / TURN as f64;
            }
            if frame > *until + 30 && random.chance(0.03) {
                *until = frame + random.within(15.0, 31.0) as usize;
                *speed = one.velocity[0];
                one.score = 0.25;
            }
        }
    };
    film(lanes, Detector::GOOD, random, act, never)
}

/// Only every first to fourth frame is answered.
fn uneven(random: &mut Random) -> Vec<Frame> {
    let crowd = crowd(12, random);
    let frames = film(crowd, Detector::GOOD, random, amble, never);
    answered(frames, |steps| steps > random.within(0.0, 4.0) as u32)
}

/// Thirty of them, hiding each other, with misses, clutter, trembling and dropped frames.
fn everything(random: &mut Random) -> Vec<Frame> {
    let crowd = crowd(30, random);
    let detector = Detector {
        tremble: 0.02,
        misses: 0.05,
        clutter: 4.0,
    };
    let frames = film(crowd, detector, random, amble, never);
    answered(frames, |_| !random.chance(0.2))
}

/// Those of the frames that are, by how far each is from the last one that was.
fn answered(frames: Vec<Frame>, mut is_answered: impl FnMut(u32) -> bool) -> Vec<Frame> {
    let mut steps = 0;
    let mut answered = Vec::new();
    for frame in frames {
        steps += 1;
        if is_answered(steps) {
            answered.push(Frame { steps, ..frame });
            steps = 0;
        }
    }
    answered
}

/// At least this everywhere.
const GOOD: f64 = 0.95;

fn check(scenario: Scenario) -> Score {
    let score = run(scenario, ours);
    println!("IDF1 {:.4}, {} switches", score.idf1(), score.switches);
    assert!(score.idf1() >= GOOD, "{}", score.idf1());
    score
}

/// Nothing changes its name.
fn check_simple(scenario: Scenario) {
    assert_eq!(check(scenario).switches, 0);
}

#[test]
fn objects_side_by_side_keep_their_names() {
    check_simple(parallel);
}

#[test]
fn trembling_boxes_keep_their_names() {
    check_simple(trembling);
}

#[test]
fn objects_that_come_closer_keep_their_names() {
    check_simple(approaching);
}

#[test]
fn objects_that_cross_keep_their_names() {
    check_simple(crossing);
}

#[test]
fn objects_that_are_hidden_for_twenty_frames_keep_their_names() {
    check(gaps);
}

#[test]
fn boxes_of_nothing_confuse_little() {
    check(clutter);
}

#[test]
fn a_detector_that_misses_a_fifth_costs_few_names() {
    check(misses);
}

#[test]
fn objects_that_turn_while_they_are_seen_badly_keep_their_names() {
    check_simple(unsure);
}

#[test]
fn frames_without_an_answer_cost_few_names() {
    check(uneven);
}

#[test]
fn a_crowd_with_all_of_it_is_kept_apart() {
    check(everything);
}

// What these streams tell apart: a tracker that lacks a part of this one.

#[test]
fn without_motion_names_are_lost() {
    for (name, scenario) in [
        ("crossing", crossing as Scenario),
        ("gaps", gaps),
        ("clutter", clutter),
        ("everything", everything),
    ] {
        let idf1 = run(scenario, without_motion).idf1();
        println!("{name}: IDF1 {idf1:.4}");
        assert!(idf1 < GOOD, "{name} asks nothing of a tracker: {idf1}");
    }
}

#[test]
fn without_the_second_round_names_are_lost() {
    let score = run(unsure, one_round);
    println!("IDF1 {:.4}, {} switches", score.idf1(), score.switches);
    assert!(score.idf1() < GOOD, "{}", score.idf1());
}
