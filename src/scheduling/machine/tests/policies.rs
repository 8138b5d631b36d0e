//! Who is let in, whose turn it is, what runs together, what becomes of what is lost.

use super::*;

fn source(key: u64) -> Share {
    Share {
        source: SourceKey(key),
        stream: StreamKey::CALLS,
    }
}

/// A machine that has learned: one worker that takes 5 ms a picture, one instance that takes 10 ms.
fn learned() -> Script {
    let mut script = Script::with_instances(1, 1, &[(1, 10)]);
    for id in 0..20 {
        script.arrive(id, None);
        script.now_ms += 5;
        script.prepared_in(id, 5);
        script.now_ms += 10;
        script.finished_in(0, 10);
    }
    assert_eq!(script.machine.pending(), 0);
    script
}

/// Plays the single worker and the single instance of model 0 until everything is done, and returns the order in
/// which requests were prepared. `took_ms` says what preparing one takes.
fn order(
    script: &mut Script,
    first: Vec<Action<u64, u64>>,
    took_ms: impl Fn(u64) -> u64,
) -> Vec<u64> {
    let (mut order, mut todo) = (Vec::new(), first);
    while !todo.is_empty() {
        let mut next = Vec::new();
        for action in todo {
            match action {
                Action::Prepare { payload, .. } => {
                    order.push(payload);
                    script.now_ms += took_ms(payload);
                    next.extend(script.prepared_in(payload, took_ms(payload)));
                }
                Action::Run { .. } => {
                    script.now_ms += 1;
                    next.extend(script.finished_in(0, 1));
                }
                _ => {}
            }
        }
        todo = next;
    }
    order
}

#[test]
fn a_flood_from_one_source_does_not_hold_up_another() {
    let mut script = Script::with_instances(1, 1, &[(1, 1)]);
    let first = script.arrive_as(0, 0, source(1), Priority::Interactive, None);
    for id in 1..100 {
        script.arrive_as(0, id, source(1), Priority::Interactive, None);
    }
    for id in 100..103 {
        script.arrive_as(0, id, source(2), Priority::Interactive, None);
    }
    let order = order(&mut script, first, |_| 1);
    let place = |id| order.iter().position(|of| *of == id).unwrap();
    assert_eq!(order.len(), 103);
    assert!(place(102) <= 7, "{:?}", &order[..10]);
}

#[test]
fn a_stream_shares_what_its_source_is_given() {
    let mut script = Script::with_instances(1, 1, &[(1, 1)]);
    let stream = |source, stream| Share {
        source: SourceKey(source),
        stream: StreamKey(stream),
    };
    let first = script.arrive_as(0, 0, source(9), Priority::Interactive, None);
    for id in 1..121 {
        // Source 1 comes with three streams, source 2 with one.
        let share = match id % 6 {
            0..3 => stream(1, id % 3),
            _ => stream(2, 0),
        };
        script.arrive_as(0, id, share, Priority::Interactive, None);
    }
    let order = order(&mut script, first, |_| 1);
    let of_two = order[1..61].iter().filter(|id| *id % 6 >= 3).count();
    assert!((29..=31).contains(&of_two), "{of_two}");
}

#[test]
fn a_sender_of_large_pictures_pays_for_their_decoding() {
    let mut script = Script::with_instances(1, 1, &[(1, 1)]);
    let first = script.arrive_as(0, 0, source(9), Priority::Interactive, None);
    for id in 1..401 {
        script.arrive_as(0, id, source(1 + id % 2), Priority::Interactive, None);
    }
    // Source 1 sends what takes nine milliseconds, source 2 what takes one; each costs one on the device.
    let order = order(&mut script, first, |id| if id % 2 == 0 { 9 } else { 1 });
    let large = order[20..120].iter().filter(|id| *id % 2 == 0).count();
    assert!((14..=20).contains(&large), "{large} of 100 were large");
}

#[test]
fn batch_work_fills_what_is_left_and_does_not_starve() {
    let mut script = Script::with_instances(1, 1, &[(1, 1)]);
    let first = script.arrive_as(0, 0, source(9), Priority::Batch, None);
    for id in 1..401 {
        let priority = match id <= 200 {
            true => Priority::Batch,
            false => Priority::Interactive,
        };
        script.arrive_as(0, id, source(1), priority, None);
    }
    let order = order(&mut script, first, |_| 1);
    let batch = order[1..201].iter().filter(|id| **id <= 200).count();
    assert!((8..=12).contains(&batch), "{batch} of 200 were batch work");
    assert!(order[220..].iter().all(|id| *id <= 200));
}

#[test]
fn inside_a_stream_the_earliest_due_goes_first() {
    let mut script = Script::with_instances(1, 1, &[(1, 1)]);
    let first = script.arrive(0, None);
    script.arrive(1, None);
    script.arrive(2, Some(900));
    script.arrive(3, Some(500));
    script.arrive(4, Some(700));
    assert_eq!(order(&mut script, first, |_| 1), [0, 3, 4, 2, 1]);
}

#[test]
fn a_request_that_cannot_be_answered_in_time_is_refused_at_the_door() {
    let mut script = learned();
    let now = script.now_ms;
    // One is prepared, and the k that wait are done after 10 (k + 2) ms.
    for id in 100..105 {
        let actions = script.arrive(id, Some(now + 55));
        assert!(
            !matches!(actions[..], [Action::DropWaiting(..)]),
            "{actions:?}"
        );
    }
    let actions = script.arrive(105, Some(now + 55));
    let [Action::DropWaiting(105, Outcome::Infeasible { retry_after })] = actions[..] else {
        panic!("{actions:?}");
    };
    let expected = Some(Duration::from_millis(4))..Some(Duration::from_millis(7));
    assert!(expected.contains(&retry_after), "{retry_after:?}");
    // One that is due earlier would be served earlier.
    let actions = script.arrive(106, Some(now + 40));
    assert!(
        !matches!(actions[..], [Action::DropWaiting(..)]),
        "{actions:?}"
    );
}

#[test]
fn one_that_takes_longer_than_it_has_by_itself_is_not_told_to_come_back() {
    let mut script = learned();
    let now = script.now_ms;
    script.arrive(99, None);
    let never = Outcome::Infeasible { retry_after: None };
    let refused = [Action::DropWaiting(100, never)];
    assert_eq!(script.arrive(100, Some(now + 12)), refused);
    assert_eq!(script.arrive(101, Some(now + 40)), []);
}

/// Sends one every ten milliseconds that has so much time, for so long, to a device that takes 10 ms a picture; returns how many
/// were refused in the last second.
fn refused_in_the_end(script: &mut Script, left_ms: u64, for_ms: u64) -> usize {
    let (end, mut refused) = (script.now_ms + for_ms, 0);
    let first = 1_000_000 + script.now_ms;
    for id in first.. {
        if script.now_ms >= end {
            return refused;
        }
        let arrived = script.now_ms;
        let mut actions = script.arrive(id, Some(arrived + left_ms));
        while let Some(action) = actions.pop() {
            match action {
                Action::Prepare { payload, .. } => {
                    script.now_ms += 1;
                    actions.extend(script.prepared_in(payload, 1));
                }
                Action::Run { .. } => {
                    script.now_ms += 10;
                    actions.extend(script.finished_in(0, 10));
                }
                Action::DropWaiting(..) => refused += usize::from(arrived + 1_000 >= end),
                other => panic!("{other:?}"),
            }
        }
        script.now_ms = script.now_ms.max(arrived + 10);
    }
    refused
}

#[test]
fn a_device_that_was_slow_for_a_while_is_found_to_be_well_again() {
    let mut script = learned();
    for id in 100..140 {
        script.arrive(id, None);
        script.now_ms += 5;
        script.prepared_in(id, 5);
        script.now_ms += 120;
        script.finished_in(0, 120);
    }
    assert_eq!(refused_in_the_end(&mut script, 50, 10_000), 0);
}

#[test]
fn a_source_whose_pictures_were_slow_for_a_while_is_found_to_be_well_again() {
    let mut script = learned();
    for id in 100..140 {
        script.arrive(id, None);
        script.now_ms += 300;
        script.prepared_in(id, 300);
        script.now_ms += 10;
        script.finished_in(0, 10);
    }
    assert_eq!(refused_in_the_end(&mut script, 50, 10_000), 0);
}

#[test]
fn what_can_never_be_in_time_is_tried_now_and_then_and_only_when_nothing_else_is_to_be_done() {
    let mut script = learned();
    let refused = refused_in_the_end(&mut script, 5, 5_000);
    // A hundred came in the last second, and ten were tried.
    assert!((85..=92).contains(&refused), "{refused}");
}

#[test]
fn a_slow_instance_is_not_given_what_only_a_fast_one_can_do_in_time() {
    for fast in [0, 1] {
        let mut script = Script::new(4);
        for key in 0..2 {
            let ms = if key == fast { 10 } else { 300 };
            script.send(Event::InstanceUp(
                InstanceKey(key),
                placement(0, &[(1, ms)]),
            ));
        }
        for id in 0..3 {
            script.arrive(id, Some(100));
        }
        assert_eq!(script.prepared(0)[0], run(fast, 1, &[0]));
        assert_eq!(script.prepared(1), []);
        script.now_ms = 10;
        assert_eq!(script.finished(fast)[0], run(fast, 1, &[1]));
        // One that has time takes whichever is free.
        script.arrive(3, None);
        script.now_ms = 20;
        script.prepared(2);
        script.now_ms = 30;
        assert_eq!(script.finished(fast)[0], run(fast, 1, &[2]));
        assert_eq!(script.prepared(3), [run(1 - fast, 1, &[3])]);
    }
}

#[test]
fn batch_work_that_is_late_does_not_make_the_line_of_interactive_work_longer() {
    let mut script = learned();
    let now = script.now_ms;
    for id in 100..140 {
        script.arrive_as(0, id, source(1), Priority::Batch, Some(now + 450));
    }
    script.at(now + 1_000).send(Event::Tick);
    let model = script.machine.models.values().next().unwrap();
    let now = script.start + Duration::from_millis(script.now_ms);
    assert!(model.margins[&Priority::Batch].stretch(now) > 2.0);
    assert!(!model.margins.contains_key(&Priority::Interactive));
}

#[test]
fn a_request_without_a_deadline_may_wait_as_long_as_the_policy_says() {
    let mut script = learned();
    let mut refused = 0;
    for id in 100..2_000 {
        let actions = script.arrive(id, None);
        let infeasible = |action: &Action<u64, u64>| {
            matches!(action, Action::DropWaiting(_, Outcome::Infeasible { .. }))
        };
        refused += actions.iter().filter(|action| infeasible(action)).count();
    }
    // Ten milliseconds each make ten seconds of a thousand.
    assert!((850..=950).contains(&refused), "{refused}");
}

#[test]
fn a_frame_is_never_refused_for_having_to_wait() {
    let mut script = learned();
    for id in 100..2_100 {
        let actions = script.arrive_frame(id, None);
        let refused = |action: &Action<u64, u64>| matches!(action, Action::DropWaiting(..));
        assert!(!actions.iter().any(refused), "{actions:?}");
    }
}

#[test]
fn a_frame_leaves_when_it_is_too_old_unless_it_was_begun() {
    let mut script = learned();
    let now = script.now_ms;
    // One is begun, one waits; and a call is begun likewise.
    assert_eq!(script.arrive_frame(100, Some(now + 30)), [prepare(100, 0)]);
    assert_eq!(script.arrive_frame(101, Some(now + 40)), []);
    let actions = script.at(now + 50).send(Event::Tick);
    assert_eq!(actions, [Action::DropWaiting(101, Outcome::Expired)]);
    assert_eq!(script.prepared(100), [run(0, 1, &[100])]);
    let actions = script.arrive(102, Some(now + 70));
    assert_eq!(actions, [prepare(102, 0)]);
    script.at(now + 80);
    let actions = script.prepared(102);
    assert_eq!(actions, [Action::DropReady(102, Outcome::Expired)]);
}

#[test]
fn forecasts_that_were_wrong_do_not_shorten_the_line_of_those_without_a_deadline() {
    let mut script = learned();
    let now = script.now_ms;
    // Let in, and late: the machine takes the line for longer than it is.
    for id in 100..140 {
        script.arrive(id, Some(now + 450));
    }
    script.at(now + 1_000).send(Event::Tick);
    let model = script.machine.models.values().next().unwrap();
    let stretch = model.margins[&Priority::Interactive].stretch(Instant::now());
    assert!(stretch > 2.0, "{stretch}");
    let mut let_in = 0;
    for id in 1_000..2_000 {
        let actions = script.arrive(id, None);
        let refused = |action: &Action<u64, u64>| matches!(action, Action::DropWaiting(..));
        let_in += usize::from(!actions.iter().any(refused));
    }
    assert!(let_in > 850, "{let_in}");
}

#[test]
fn at_a_cold_start_nothing_is_refused_on_a_guess() {
    let mut script = Script::with_instances(1, 1, &[(1, 10)]);
    for id in 0..100 {
        let actions = script.arrive(id, Some(15));
        assert!(
            !matches!(actions[..], [Action::DropWaiting(..)]),
            "{actions:?}"
        );
    }
}

#[test]
fn the_flood_of_one_source_does_not_make_another_infeasible() {
    let mut script = learned();
    let now = script.now_ms;
    let mut let_in = 0;
    for id in 100..400 {
        let actions = script.arrive_as(0, id, source(1), Priority::Interactive, Some(now + 200));
        let_in += usize::from(!matches!(actions[..], [Action::DropWaiting(..)]));
    }
    assert!((10..=20).contains(&let_in), "{let_in} of the flood");
    for id in 400..403 {
        let actions = script.arrive_as(0, id, source(2), Priority::Interactive, Some(now + 100));
        assert!(
            !matches!(actions[..], [Action::DropWaiting(..)]),
            "{actions:?}"
        );
    }
}

#[test]
fn a_batch_does_not_grow_past_what_its_tightest_deadline_allows() {
    let mut script = Script::with_instances(8, 1, &[(1, 10), (2, 12), (4, 16), (8, 24)]);
    script.arrive(0, None);
    script.prepared(0);
    for id in 1..=8 {
        script.arrive(id, Some(80));
        script.prepared(id);
    }
    script.now_ms = 60;
    // All eight would take 24 ms and there are 20: four now, and the rest when they are done.
    let actions = script.finished(0);
    assert_eq!(actions[0], run(0, 4, &[1, 2, 3, 4]));
}

#[test]
fn what_cannot_be_prepared_and_run_in_time_any_more_is_let_go_before_it_is() {
    let mut script = learned();
    let now = script.now_ms;
    script.arrive(100, None);
    script.arrive(101, Some(now + 30));
    script.now_ms += 20;
    // Ten milliseconds are left, and the run alone takes them.
    assert_eq!(
        script.prepared_in(100, 20)[..],
        [
            run(0, 1, &[100]),
            Action::DropWaiting(101, Outcome::Expired)
        ]
    );
}

#[test]
fn an_instance_that_hangs_is_given_up_and_its_batch_runs_elsewhere() {
    let mut script = Script::with_instances(4, 2, &[(1, 10)]);
    script.arrive(1, None);
    assert_eq!(script.prepared(1), [run(0, 1, &[1])]);
    assert_eq!(script.next_tick_ms(), Some(1_000));
    assert_eq!(script.at(999).send(Event::Tick), []);
    assert_eq!(
        script.at(1_000).send(Event::Tick),
        [Action::Eject(InstanceKey(0))]
    );
    assert_eq!(script.next_tick_ms(), None);
    assert_eq!(script.down(0, &[1]), [run(1, 1, &[1])]);
    // Lost a second time it is not tried a third time.
    script.send(Event::InstanceUp(InstanceKey(2), placement(0, &[(1, 10)])));
    assert_eq!(script.down(1, &[1]), [Action::DropReady(1, Outcome::Lost)]);
    assert_eq!(script.machine.pending(), 0);
}

#[test]
fn an_instance_that_was_given_up_gets_nothing_more() {
    let mut script = Script::with_instances(4, 1, &[(1, 10)]);
    script.arrive(1, None);
    script.prepared(1);
    script.at(1_000).send(Event::Tick);
    assert_eq!(script.finished(0), []);
    assert_eq!(script.arrive(2, None), []);
    assert_eq!(
        script.down(0, &[]),
        [Action::DropWaiting(2, Outcome::NoInstance)]
    );
}

#[test]
fn a_caller_who_left_while_his_picture_ran_does_not_get_it_run_again() {
    let mut script = Script::with_instances(4, 2, &[(1, 10)]);
    script.arrive(1, None);
    script.prepared(1);
    assert_eq!(script.send(Event::Abandoned(RequestId(1))), []);
    assert_eq!(
        script.down(0, &[1]),
        [Action::DropReady(1, Outcome::Abandoned)]
    );
}

#[test]
fn one_models_full_shelf_does_not_block_anothers_line() {
    let mut script = Script::with_instances(2, 1, &[(1, 1_000)]);
    script.send(Event::InstanceUp(InstanceKey(7), placement(1, &[(1, 1)])));
    for id in 0..50 {
        let actions = script.arrive_for(0, id, None);
        for action in actions {
            if let Action::Prepare { payload, .. } = action {
                script.prepared(payload);
            }
        }
    }
    for id in 50..60 {
        let actions = script.arrive_for(1, id, Some(100));
        assert_eq!(actions, [prepare(id, 0)]);
        assert_eq!(script.prepared(id), [run(7, 1, &[id])]);
        script.finished(7);
    }
}
