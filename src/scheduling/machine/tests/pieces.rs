//! Pictures that are cut: how many are open, who is charged for the pieces, what becomes of them together.

use super::*;

fn source(key: u64) -> Share {
    Share {
        source: SourceKey(key),
        stream: StreamKey::CALLS,
    }
}

impl Script {
    /// A picture of source 0 that is to be cut into so many and itself.
    fn arrive_cut(&mut self, id: u64, pieces: usize) -> Vec<Action<u64, u64>> {
        let interactive = Priority::Interactive;
        self.arrive_to_be_cut(0, id, source(0), interactive, None, Some(pieces))
    }

    /// Teaches it that a picture takes 5 ms of a worker and one of a device, a piece 1 ms and as much.
    fn learned(workers: usize) -> Self {
        let mut script = Self::with_instances(workers, 1, &[(1, 10)]);
        for round in 0..10u64 {
            let id = 1_000_000 + 10 * round;
            script.arrive_cut(id, 2);
            script.now_ms += 5;
            let mut todo = script.cut_in(id, &[id + 1, id + 2], 5);
            while let Some(action) = todo.pop() {
                match action {
                    Action::Prepare { payload, .. } => {
                        script.now_ms += 1;
                        todo.extend(script.prepared_in(payload, 1));
                    }
                    Action::Run { .. } => {
                        script.now_ms += 10;
                        todo.extend(script.finished_in(0, 10));
                    }
                    _ => panic!("{action:?}"),
                }
            }
        }
        assert_eq!(script.machine.pending(), 0);
        script
    }
}

fn is_refused(actions: &[Action<u64, u64>]) -> bool {
    matches!(
        actions,
        [Action::DropWaiting(_, Outcome::Infeasible { .. }), ..]
    )
}

#[test]
fn the_first_piece_goes_on_and_the_others_stand_in_their_pictures_place() {
    let mut script = Script::with_instances(1, 1, &[(1, 10), (2, 11), (4, 12)]);
    assert_eq!(script.arrive_cut(1, 3), [prepare(1, 0)]);
    assert_eq!(script.at(5).arrive(2, None), []);
    // Due as their picture is, before who came after it.
    assert_eq!(
        script.at(9).cut_in(1, &[10, 11, 12], 9),
        [run(0, 1, &[1]), prepare(10, 0)]
    );
    assert_eq!(script.at(10).prepared(10), [prepare(11, 1)]);
    assert_eq!(script.at(11).prepared(11), [prepare(12, 2)]);
    assert_eq!(script.at(12).prepared(12), [prepare(2, 7)]);
    assert_eq!(script.at(13).prepared(2), []);
    // And they fill one batch with whoever is ready.
    assert_eq!(script.finished(0), [run(0, 4, &[10, 11, 12, 2])]);
    assert_eq!(script.machine.cut.counts(), (0, 1));
    script.finished(0);
    assert_eq!(script.machine.cut.counts(), (0, 0));
    assert_eq!(script.machine.pending(), 0);
}

#[test]
fn more_pieces_than_the_shelf_has_slots_all_run() {
    let mut script = Script::with_instances(2, 1, &[(1, 10)]);
    script.arrive_cut(0, 20);
    let pieces: Vec<u64> = (100..120).collect();
    let mut todo = script.cut_in(0, &pieces, 5);
    let mut ran = Vec::new();
    while let Some(action) = todo.pop() {
        match action {
            Action::Prepare { payload, .. } => todo.extend(script.prepared(payload)),
            Action::Run { batch, .. } => {
                ran.extend(batch.into_iter().map(|(_, id)| id));
                todo.extend(script.finished(0));
            }
            _ => panic!("{action:?}"),
        }
    }
    assert_eq!(ran.len(), 21);
    assert_eq!(script.machine.pending(), 0);
}

#[test]
fn no_more_pictures_are_open_than_may_be_and_others_go_on() {
    let mut script = Script::with_instances(3, 1, &[(8, 10)]);
    for id in 0..3 {
        assert_eq!(script.arrive_cut(id, 2), [prepare(id, 0)]);
    }
    assert_eq!(script.arrive_cut(3, 2), []);
    // A worker is free again, and takes the pieces, and what is not to be cut, but no fourth picture.
    assert_eq!(
        script.cut_in(0, &[10, 11], 5),
        [run(0, 8, &[0]), prepare(10, 0)]
    );
    script.at(1).arrive(4, None);
    assert_eq!(script.prepared(10), [prepare(11, 1)]);
    assert_eq!(script.machine.cut.counts(), (3, 1));
    // The last piece is prepared: the first picture's pixels are gone.
    assert_eq!(script.prepared(11), [prepare(3, 1)]);
    assert_eq!(script.prepare_failed(3), [prepare(4, 0)]);
    assert_eq!(script.machine.cut.counts(), (2, 1));
}

#[test]
fn batch_work_leaves_places_for_pictures_of_others() {
    let mut script = Script::with_instances(4, 1, &[(8, 10)]);
    let mut arrive = |id, priority| {
        let share = source(id % 2);
        script.arrive_to_be_cut(0, id, share, priority, None, Some(2))
    };
    assert_eq!(arrive(0, Priority::Batch), [prepare(0, 0)]);
    assert_eq!(arrive(1, Priority::Batch), [prepare(1, 0)]);
    assert_eq!(arrive(2, Priority::Batch), []);
    assert_eq!(arrive(3, Priority::Interactive), [prepare(3, 0)]);
    assert_eq!(arrive(4, Priority::Interactive), [prepare(4, 0)]);
    assert_eq!(arrive(5, Priority::Interactive), []);
}

#[test]
fn all_that_is_left_of_a_picture_leaves_with_its_caller() {
    let mut script = Script::with_instances(1, 1, &[(1, 10)]);
    script.arrive_cut(0, 3);
    script.cut_in(0, &[10, 11, 12], 5);
    assert_eq!(script.prepared(10), []); // ready; 11 waits for its slot
    let gone = Outcome::Abandoned;
    assert_eq!(
        script.send(Event::Abandoned(RequestId(0))),
        [
            Action::DropReady(10, gone),
            Action::DropWaiting(11, gone),
            Action::DropWaiting(12, gone),
        ]
    );
    assert_eq!(script.machine.cut.counts(), (0, 1));
    script.finished(0);
    assert_eq!(script.machine.cut.counts(), (0, 0));
    assert_eq!(script.machine.pending(), 0);
}

#[test]
fn pieces_of_a_picture_whose_caller_left_meanwhile_never_stand_in_the_line() {
    let mut script = Script::with_instances(1, 1, &[(1, 10)]);
    script.arrive_cut(0, 2);
    assert_eq!(script.send(Event::Abandoned(RequestId(0))), []);
    let gone = Outcome::Abandoned;
    assert_eq!(
        script.cut_in(0, &[10, 11], 5),
        [
            Action::DropReady(0, gone),
            Action::DropWaiting(10, gone),
            Action::DropWaiting(11, gone),
        ]
    );
    assert_eq!(script.machine.cut.counts(), (0, 0));
}

#[test]
fn pieces_expire_with_their_picture() {
    let mut script = Script::with_instances(1, 1, &[(1, 10)]);
    let share = source(0);
    script.arrive_to_be_cut(0, 0, share, Priority::Interactive, Some(50), Some(2));
    script.at(5).cut_in(0, &[10, 11], 5);
    script.prepared(10);
    assert_eq!(
        script.at(50).send(Event::Tick),
        [
            Action::DropReady(10, Outcome::Expired),
            Action::DropWaiting(11, Outcome::Expired),
        ]
    );
    assert_eq!(script.machine.cut.counts(), (0, 1));
}

#[test]
fn what_a_frame_that_was_begun_is_cut_into_is_finished() {
    let mut script = Script::with_instances(1, 1, &[(1, 10)]);
    let (share, priority) = (source(0), Priority::Interactive);
    script.arrive_kind(0, 0, share, priority, Kind::Frame, Some(50), Some(2));
    script.at(5).cut_in(0, &[10, 11], 5);
    assert_eq!(script.prepared(10), []);
    assert_eq!(script.at(60).send(Event::Tick), []);
    assert_eq!(script.finished(0), [run(0, 1, &[10]), prepare(11, 55)]);
    script.prepared(11);
    assert_eq!(script.finished(0), [run(0, 1, &[11])]);
    script.finished(0);
    assert_eq!(script.machine.pending(), 0);
}

#[test]
fn a_share_is_charged_for_every_piece() {
    let mut script = Script::with_instances(1, 1, &[(1, 10)]);
    // Source 1 sends pictures of ten pieces, source 2 pictures of one; both always have more.
    let mut todo = script.arrive_to_be_cut(0, 0, source(1), Priority::Interactive, None, Some(9));
    for id in 1..100 {
        script.arrive_to_be_cut(0, id, source(1), Priority::Interactive, None, Some(9));
    }
    for id in 100..400 {
        script.arrive_as(0, id, source(2), Priority::Interactive, None);
    }
    let (mut next, mut order) = (1_000, Vec::new());
    while order.len() < 300 {
        let mut follow = Vec::new();
        for action in std::mem::take(&mut todo) {
            match action {
                Action::Prepare { payload, .. } => {
                    order.push(payload);
                    script.now_ms += 1;
                    if payload < 100 {
                        let pieces: Vec<u64> = (next..next + 9).collect();
                        next += 9;
                        follow.extend(script.cut_in(payload, &pieces, 1));
                    } else {
                        follow.extend(script.prepared_in(payload, 1));
                    }
                }
                Action::Run { .. } => {
                    script.now_ms += 10;
                    follow.extend(script.finished_in(0, 10));
                }
                _ => panic!("{action:?}"),
            }
        }
        todo = follow;
    }
    let of_two = order.iter().filter(|id| (100..400).contains(*id)).count();
    assert!((140..=160).contains(&of_two), "{of_two} of 300");
}

#[test]
fn a_picture_whose_pieces_cannot_run_in_time_is_refused_at_the_door() {
    let mut script = Script::learned(1);
    let now = script.now_ms;
    // Where nothing at all is to be done, one is let in to see what it takes.
    script.arrive_as(0, 9, source(9), Priority::Interactive, None);
    script.prepared_in(9, 5);
    let mut arrive = |id, pieces, left_ms| {
        let deadline = Some(now + left_ms);
        script.arrive_to_be_cut(0, id, source(0), Priority::Interactive, deadline, pieces)
    };
    // Twenty runs of 10 ms.
    assert!(is_refused(&arrive(0, Some(19), 150)));
    assert!(!is_refused(&arrive(1, Some(19), 300)));
    // It is with a worker, and what it will be cut into is in the way of who comes after it.
    assert!(is_refused(&arrive(2, None, 150)));
    assert!(!is_refused(&arrive(3, None, 300)));
    // But not of another source, whose turn is between them.
    let interactive = Priority::Interactive;
    let other = script.arrive_as(0, 4, source(1), interactive, Some(now + 60));
    assert!(!is_refused(&other));
    let batch = script.arrive_as(0, 5, source(1), Priority::Batch, Some(now + 150));
    assert!(is_refused(&batch));
}

#[test]
fn a_picture_that_waits_stands_for_all_its_pieces() {
    let mut script = Script::learned(1);
    let now = script.now_ms;
    script.arrive_as(0, 0, source(0), Priority::Interactive, None);
    script.arrive_cut(1, 19);
    let late = script.arrive_as(0, 2, source(0), Priority::Interactive, Some(now + 10_050));
    assert!(!is_refused(&late));
    let deadline = Some(now + 120);
    let other = script.arrive_as(0, 3, source(0), Priority::Interactive, deadline);
    assert!(!is_refused(&other), "it is due before the picture");
    script.at(now + 9_990);
    let behind = script.arrive_as(0, 4, source(0), Priority::Interactive, Some(now + 10_120));
    assert!(is_refused(&behind));
}

#[test]
fn whoever_sets_no_deadline_waits_for_all_the_pieces_of_his_own() {
    let mut script = Script::learned(1);
    // Twenty seconds of the device, where a request without a deadline may wait for ten.
    assert!(!is_refused(&script.arrive_cut(0, 2_000)));
    // The next would have to wait for those.
    assert!(is_refused(&script.arrive(1, None)));
}
