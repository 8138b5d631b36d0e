//! Bounds, shares of them, and what was told once.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::*;

fn admission(max_requests: usize, max_bytes: u64) -> Admission {
    Admission::new(Config {
        max_wait: Duration::ZERO,
        max_requests,
        max_bytes,
    })
}

fn anybody() -> Caller {
    Caller::default()
}

fn named(name: &str, priority: Priority) -> Caller {
    Caller {
        source: Source::Named(name.into()),
        priority,
    }
}

/// As many permits as `caller` gets.
fn all_it_gets(admission: &Admission, caller: &Caller) -> Vec<AdmissionPermit> {
    std::iter::from_fn(|| admission.admit(caller, 1).ok()).collect()
}

#[test]
fn one_alone_gets_nearly_everything_and_somebody_else_still_gets_in() {
    let admission = admission(90, 10_000);
    let greedy = all_it_gets(&admission, &named("greedy", Priority::Interactive));
    assert_eq!(greedy.len(), 80);
    let modest = all_it_gets(&admission, &named("modest", Priority::Interactive));
    assert!(modest.len() >= 8, "{}", modest.len());
}

#[test]
fn the_longest_share_is_refused_first() {
    let admission = admission(90, 10_000);
    let mut greedy = all_it_gets(&admission, &named("greedy", Priority::Interactive));
    let modest = all_it_gets(&admission, &named("modest", Priority::Interactive));
    // Room is made, by the greedy one. It does not get it back.
    greedy.truncate(70);
    assert!(
        admission
            .admit(&named("greedy", Priority::Interactive), 1)
            .is_ok()
    );
    greedy.truncate(60);
    let more = all_it_gets(&admission, &named("modest", Priority::Interactive));
    assert!(modest.len() + more.len() > 15);
}

#[test]
fn sixteen_greedy_sources_get_much_the_same() {
    let admission = admission(512, 100_000);
    let callers: Vec<Caller> = (0..16)
        .map(|n| named(&n.to_string(), Priority::Interactive))
        .collect();
    let mut held: Vec<Vec<AdmissionPermit>> = callers.iter().map(|_| Vec::new()).collect();
    for _ in 0..600 {
        for (caller, held) in callers.iter().zip(&mut held) {
            held.extend(admission.admit(caller, 1).ok());
        }
    }
    let counts: Vec<usize> = held.iter().map(Vec::len).collect();
    assert!(
        counts.iter().all(|count| (30..=33).contains(count)),
        "{counts:?}"
    );
}

#[test]
fn batch_work_is_refused_before_interactive_work_is() {
    let admission = admission(100, 10_000);
    let batch = all_it_gets(&admission, &named("batch", Priority::Batch));
    // Half is left to interactive work, and an eighth of the rest to other batch work.
    assert_eq!(batch.len(), 48);
    let interactive = all_it_gets(&admission, &named("people", Priority::Interactive));
    assert!(interactive.len() > 40, "{}", interactive.len());
}

#[test]
fn what_a_source_was_told_of_one_request_holds_for_its_like_and_not_for_others() {
    let admission = admission(10, 100);
    let caller = named("a", Priority::Interactive);
    let permit = admission.admit(&caller, 1).unwrap();
    let in_ms = |ms| Deadline::after(Instant::now(), Duration::from_millis(ms));
    let away = |caller: &Caller, ms| admission.turns_away(caller, in_ms(ms)).is_some();
    let asks =
        |model| admission.asks_for(caller.source.key(&admission.state.names), ModelKey(model));
    asks(1);
    assert!(!away(&caller, 50));
    let long = Duration::from_secs(60);
    admission.turn_away(&caller, in_ms(10_000), long);
    assert_eq!(admission.turns_away(&caller, in_ms(5_000)), Some(long));
    assert!(!away(&caller, 20_000), "it has more time");
    let mut batch = caller.clone();
    batch.priority = Priority::Batch;
    assert!(away(&batch, 5_000), "it is less urgent");
    admission.turn_away(&batch, in_ms(10_000), long);
    assert!(!away(&caller, 5_000), "it is more urgent");
    assert!(admission.turns_away(&caller, Deadline::NEVER).is_none());
    assert!(
        !away(&named("b", Priority::Interactive), 50),
        "somebody else"
    );
    admission.turn_away(&caller, in_ms(10_000), long);
    assert!(away(&caller, 5_000));
    // Which model the next is for is only known when it is read, and that holds when it has nothing here any more.
    asks(2);
    assert!(!away(&caller, 5_000));
    drop(permit);
    let _permit = admission.admit(&caller, 1).unwrap();
    asks(1);
    admission.turn_away(&caller, in_ms(10_000), long);
    assert!(!away(&caller, 5_000));
}

#[test]
fn a_source_keeps_its_name_when_nothing_of_it_is_left() {
    let admission = admission(10, 100);
    let first = admission.admit(&anybody(), 1).unwrap();
    let other = named("other", Priority::Interactive);
    let other = admission.admit(&other, 1).unwrap();
    let key = first.source();
    assert_ne!(other.source(), key);
    drop((first, other));
    assert!(admission.state.lock().sources.is_empty());
    assert_eq!(admission.admit(&anybody(), 1).unwrap().source(), key);
}

#[test]
fn batch_work_of_many_sources_leaves_half_to_interactive_work() {
    let admission = admission(100, 10_000);
    let named = |n: usize, priority| named(&n.to_string(), priority);
    let batch = (0..600).filter_map(|n| admission.admit(&named(n, Priority::Batch), 1).ok());
    let batch: Vec<AdmissionPermit> = batch.collect();
    assert_eq!(batch.len(), 50);
    let calls =
        (600..1_200).filter_map(|n| admission.admit(&named(n, Priority::Interactive), 1).ok());
    let calls: Vec<AdmissionPermit> = calls.collect();
    assert_eq!(calls.len(), 50);
    drop(batch);
    // And is not let in again before there is as much room besides.
    let again = all_it_gets(&admission, &named(0, Priority::Batch));
    assert!((20..=25).contains(&again.len()), "{}", again.len());
}

#[test]
fn batch_sources_share_what_is_left_to_batch_work() {
    let admission = admission(100, 10_000);
    let greedy = all_it_gets(&admission, &named("greedy", Priority::Batch));
    let modest = all_it_gets(&admission, &named("modest", Priority::Batch));
    assert!(greedy.len() > 40, "{}", greedy.len());
    assert!(modest.len() >= 2, "{}", modest.len());
}

#[test]
fn a_batch_picture_as_large_as_all_that_may_be_held_finds_room_when_nothing_is() {
    let admission = admission(10, 100);
    let batch = named("batch", Priority::Batch);
    assert!(admission.admit(&batch, 100).is_ok());
    let _one = admission.admit(&batch, 10).unwrap();
    assert_eq!(admission.admit(&batch, 81).unwrap_err(), Overloaded);
    assert!(admission.admit(&batch, 80).is_ok());
}

#[test]
fn requests_beyond_the_count_are_refused_until_one_leaves() {
    let admission = admission(2, 1_000);
    let first = admission.admit(&anybody(), 1).unwrap();
    let _second = admission.admit(&anybody(), 1).unwrap();
    assert_eq!(admission.admit(&anybody(), 1).unwrap_err(), Overloaded);
    drop(first);
    assert!(admission.admit(&anybody(), 1).is_ok());
}

#[test]
fn requests_beyond_the_bytes_are_refused_and_take_no_place() {
    let admission = admission(10, 100);
    let _first = admission.admit(&anybody(), 60).unwrap();
    assert_eq!(admission.admit(&anybody(), 41).unwrap_err(), Overloaded);
    assert_eq!(admission.waiting(), 1);
    let second = admission.admit(&anybody(), 40).unwrap();
    drop(second);
    assert_eq!(
        admission.admit(&anybody(), u64::MAX).unwrap_err(),
        Overloaded
    );
    assert_eq!(admission.waiting(), 1);
}

#[test]
fn a_permit_grows_only_as_far_as_there_is_room_and_gives_back_what_it_grew_to() {
    let admission = admission(10, 100);
    let mut permit = admission.admit(&anybody(), 10).unwrap();
    permit.resize(90).unwrap();
    assert_eq!(permit.resize(101).unwrap_err(), Overloaded);
    assert!(admission.admit(&anybody(), 11).is_err());
    permit.resize(5).unwrap();
    let other = admission.admit(&anybody(), 95).unwrap();
    drop((permit, other));
    assert!(admission.admit(&anybody(), 100).is_ok());
}

#[test]
fn there_is_room_until_either_bound_is_reached() {
    let by_count = admission(1, 100);
    assert!(by_count.has_room(&anybody()));
    let _one = by_count.admit(&anybody(), 1).unwrap();
    assert!(!by_count.has_room(&anybody()));
    let by_bytes = admission(10, 100);
    let _all = by_bytes.admit(&anybody(), 100).unwrap();
    assert!(!by_bytes.has_room(&anybody()));
}

/// What has been granted by now.
fn granted<F: Future<Output = AdmissionPermit>>(waits: &mut [Pin<Box<F>>]) -> Vec<AdmissionPermit> {
    let mut context = Context::from_waker(Waker::noop());
    let ready = |wait: &mut Pin<Box<F>>| match wait.as_mut().poll(&mut context) {
        Poll::Ready(permit) => Some(permit),
        Poll::Pending => None,
    };
    waits.iter_mut().filter_map(ready).collect()
}

#[test]
fn a_stream_waits_for_room_and_leaves_some_to_calls() {
    let admission = admission(32, 10_000);
    let stream = named("stream", Priority::Interactive);
    let mut held: Vec<AdmissionPermit> = Vec::new();
    loop {
        let got = granted(&mut [Box::pin(admission.wait(&stream, 1))]);
        if got.is_empty() {
            break;
        }
        held.extend(got);
    }
    // Of 32 two are left to calls, and one source may have eight times what is left to streams.
    assert_eq!(held.len(), 27);
    assert!(admission.admit(&anybody(), 1).is_ok());
    let mut waits = [Box::pin(admission.wait(&stream, 1))];
    assert!(granted(&mut waits).is_empty());
    held.truncate(20);
    assert_eq!(granted(&mut waits).len(), 1);
}

#[test]
fn sources_that_wait_take_turns_however_many_streams_they_have() {
    let admission = admission(16, 10_000);
    let full = all_it_gets(&admission, &named("full", Priority::Interactive));
    let wait = |name: &str| Box::pin(admission.wait(&named(name, Priority::Interactive), 1));
    let mut many: Vec<_> = (0..10).map(|_| wait("many")).collect();
    let mut one = vec![wait("one")];
    let mut room = full.into_iter();
    let mut held = Vec::new();
    while held.is_empty() {
        drop(room.next().unwrap());
        held.extend(granted(&mut many[..1]));
    }
    assert!(granted(&mut one).is_empty());
    // The next is that of the one who came last.
    drop(room.next().unwrap());
    assert!(granted(&mut many[1..]).is_empty());
    assert_eq!(granted(&mut one).len(), 1);
}

#[test]
fn who_does_not_wait_any_more_takes_no_room() {
    let admission = admission(2, 10_000);
    let full = all_it_gets(&admission, &anybody());
    let gone = Box::pin(admission.wait(&named("gone", Priority::Interactive), 1));
    let mut waits = [Box::pin(
        admission.wait(&named("here", Priority::Interactive), 1),
    )];
    drop(gone);
    drop(full);
    let here = granted(&mut waits);
    assert_eq!(here.len(), 1);
    assert_eq!(admission.waiting(), 1);
}

#[test]
fn a_frame_too_large_for_the_room_there_is_holds_up_nobody_at_first_and_is_not_passed_for_ever() {
    let admission = admission(1_000, 10_000);
    let call = admission
        .admit(&named("call", Priority::Interactive), 6_000)
        .unwrap();
    let (own, other) = (
        named("own", Priority::Interactive),
        named("other", Priority::Interactive),
    );
    let mut large = [Box::pin(admission.wait(&own, 5_000))];
    let small = |caller| !granted(&mut [Box::pin(admission.wait(caller, 1))]).is_empty();
    // Another stream of the same source passes, and so do others, so many times.
    let passed = (0..200).filter(|n| small(if n % 2 == 0 { &own } else { &other }));
    assert_eq!(passed.count(), 64);
    assert!(granted(&mut large).is_empty());
    drop(call);
    assert_eq!(granted(&mut large).len(), 1);
    assert!(small(&other));
}

#[test]
fn who_stops_waiting_leaves_the_queue_at_once_and_lets_those_behind_pass() {
    let admission = admission(1_000, 10_000);
    let _call = admission
        .admit(&named("call", Priority::Interactive), 6_000)
        .unwrap();
    let caller = named("own", Priority::Interactive);
    let large = Box::pin(admission.wait(&caller, 5_000));
    let small = || Box::pin(admission.wait(&caller, 1));
    let held: Vec<AdmissionPermit> = (0..64).flat_map(|_| granted(&mut [small()])).collect();
    assert_eq!(held.len(), 64);
    let mut behind = [small()];
    assert!(granted(&mut behind).is_empty());
    let gone: Vec<_> = (0..10).map(|_| small()).collect();
    drop(gone);
    drop(large);
    assert_eq!(granted(&mut behind).len(), 1);
    assert!(admission.state.lock().waiters.is_empty());
}

#[test]
fn a_batch_frame_that_finds_no_room_for_batch_work_holds_up_no_interactive_stream() {
    let admission = admission(1_000, 1_000_000);
    let (batch, camera) = (
        named("batch", Priority::Batch),
        named("camera", Priority::Interactive),
    );
    let _full = all_it_gets(&admission, &batch);
    let mut waits = [Box::pin(
        admission.wait(&named("late", Priority::Batch), 1_000),
    )];
    let passes = |_: &usize| !granted(&mut [Box::pin(admission.wait(&camera, 1))]).is_empty();
    assert_eq!((0..500).filter(passes).count(), 500);
    assert!(granted(&mut waits).len() <= 1);
}
