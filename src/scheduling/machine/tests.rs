//! Scripts of events against the machine, under a time of their own making.

mod load;
mod pieces;
mod policies;
mod random;

use super::*;
use crate::scheduling::bucket::BatchBucket;
use crate::scheduling::event::{Arrival, Kind, Placement, Priority, Share, StreamKey};
use crate::scheduling::machine::dispatch::has_room;

type TestMachine = Machine<u64, u64>;

const MAX_WAIT_MS: u64 = 10_000;

/// Drives a machine from a script; times are milliseconds since its start.
struct Script {
    machine: TestMachine,
    start: Instant,
    now_ms: u64,
}

impl Script {
    fn new(workers: usize) -> Self {
        Self {
            machine: Machine::new(Policy {
                workers,
                max_wait: Duration::from_millis(MAX_WAIT_MS),
            }),
            start: Instant::now(),
            now_ms: 0,
        }
    }

    /// A machine with so many workers and instances `0..instances` of model 0, each with `buckets`.
    fn with_instances(workers: usize, instances: u32, buckets: &[(usize, u64)]) -> Self {
        let mut script = Self::new(workers);
        for key in 0..instances {
            script.send(Event::InstanceUp(InstanceKey(key), placement(0, buckets)));
        }
        script
    }

    fn at(&mut self, now_ms: u64) -> &mut Self {
        self.now_ms = now_ms;
        self
    }

    fn send(&mut self, event: Event<u64, u64>) -> Vec<Action<u64, u64>> {
        let mut actions = Vec::new();
        self.machine.handle(
            event,
            self.start + Duration::from_millis(self.now_ms),
            &mut actions,
        );
        actions
    }

    fn arrive(&mut self, id: u64, deadline_ms: Option<u64>) -> Vec<Action<u64, u64>> {
        self.arrive_for(0, id, deadline_ms)
    }

    fn arrive_for(
        &mut self,
        model: u32,
        id: u64,
        deadline_ms: Option<u64>,
    ) -> Vec<Action<u64, u64>> {
        self.arrive_as(
            model,
            id,
            Share::default(),
            Priority::Interactive,
            deadline_ms,
        )
    }

    fn arrive_as(
        &mut self,
        model: u32,
        id: u64,
        share: Share,
        priority: Priority,
        deadline_ms: Option<u64>,
    ) -> Vec<Action<u64, u64>> {
        let kind = Kind::Call;
        self.arrive_kind(model, id, share, priority, kind, deadline_ms, None)
    }

    fn arrive_frame(&mut self, id: u64, deadline_ms: Option<u64>) -> Vec<Action<u64, u64>> {
        let (share, priority) = (Share::default(), Priority::Interactive);
        self.arrive_kind(0, id, share, priority, Kind::Frame, deadline_ms, None)
    }

    fn arrive_to_be_cut(
        &mut self,
        model: u32,
        id: u64,
        share: Share,
        priority: Priority,
        deadline_ms: Option<u64>,
        pieces: Option<usize>,
    ) -> Vec<Action<u64, u64>> {
        let kind = Kind::Call;
        self.arrive_kind(model, id, share, priority, kind, deadline_ms, pieces)
    }

    #[expect(clippy::too_many_arguments, reason = "all that an arrival is made of")]
    fn arrive_kind(
        &mut self,
        model: u32,
        id: u64,
        share: Share,
        priority: Priority,
        kind: Kind,
        deadline_ms: Option<u64>,
        pieces: Option<usize>,
    ) -> Vec<Action<u64, u64>> {
        let deadline = deadline_ms.map_or(Deadline::NEVER, |ms| {
            Deadline::at(self.start + Duration::from_millis(ms))
        });
        self.send(Event::Arrived(Arrival {
            id: RequestId(id),
            model: ModelKey(model),
            share,
            priority,
            kind,
            deadline,
            pieces,
            payload: id,
        }))
    }

    fn prepared(&mut self, id: u64) -> Vec<Action<u64, u64>> {
        self.send(Event::Prepared {
            id: RequestId(id),
            payload: id,
            pieces: Vec::new(),
            took: Duration::ZERO,
        })
    }

    fn prepared_in(&mut self, id: u64, took_ms: u64) -> Vec<Action<u64, u64>> {
        self.send(Event::Prepared {
            id: RequestId(id),
            payload: id,
            pieces: Vec::new(),
            took: Duration::from_millis(took_ms),
        })
    }

    /// It was cut: into itself and these.
    fn cut_in(&mut self, id: u64, pieces: &[u64], took_ms: u64) -> Vec<Action<u64, u64>> {
        self.send(Event::Prepared {
            id: RequestId(id),
            payload: id,
            pieces: pieces.iter().map(|id| (RequestId(*id), *id)).collect(),
            took: Duration::from_millis(took_ms),
        })
    }

    fn finished_in(&mut self, instance: u32, took_ms: u64) -> Vec<Action<u64, u64>> {
        self.send(Event::BatchFinished {
            instance: InstanceKey(instance),
            took: Some(Duration::from_millis(took_ms)),
        })
    }

    fn prepare_failed(&mut self, id: u64) -> Vec<Action<u64, u64>> {
        self.send(Event::PrepareFailed {
            id: RequestId(id),
            took: Duration::ZERO,
        })
    }

    fn finished(&mut self, instance: u32) -> Vec<Action<u64, u64>> {
        self.send(Event::BatchFinished {
            instance: InstanceKey(instance),
            took: None,
        })
    }

    fn down(&mut self, instance: u32, returned: &[u64]) -> Vec<Action<u64, u64>> {
        self.send(Event::InstanceDown {
            instance: InstanceKey(instance),
            returned: returned.iter().map(|id| (RequestId(*id), *id)).collect(),
        })
    }

    fn next_tick_ms(&self) -> Option<u64> {
        let tick = self.machine.next_tick()?;
        Some((tick - self.start).as_millis() as u64)
    }
}

fn placement(model: u32, buckets: &[(usize, u64)]) -> Placement {
    Placement {
        model: ModelKey(model),
        buckets: buckets
            .iter()
            .map(|&(size, ms)| BatchBucket {
                size,
                cost: Duration::from_millis(ms),
            })
            .collect(),
        max_queue_delay: Duration::ZERO,
        pipelined: false,
        watchdog: Duration::from_secs(1),
    }
}

fn prepare(id: u64, waited_ms: u64) -> Action<u64, u64> {
    Action::Prepare {
        id: RequestId(id),
        payload: id,
        waited: Duration::from_millis(waited_ms),
    }
}

fn run(instance: u32, bucket: usize, batch: &[u64]) -> Action<u64, u64> {
    Action::Run {
        instance: InstanceKey(instance),
        bucket,
        batch: batch.iter().map(|id| (RequestId(*id), *id)).collect(),
    }
}

#[test]
fn a_request_goes_to_a_worker_then_to_a_device_at_once() {
    let mut script = Script::with_instances(1, 1, &[(1, 10)]);
    assert_eq!(script.arrive(1, None), [prepare(1, 0)]);
    assert_eq!(script.at(4).prepared(1), [run(0, 1, &[1])]);
    assert_eq!(script.at(14).finished(0), []);
    assert_eq!(script.machine.pending(), 0);
}

#[test]
fn requests_are_prepared_in_the_order_of_arrival() {
    let mut script = Script::with_instances(1, 1, &[(8, 10)]);
    assert_eq!(script.arrive(1, None), [prepare(1, 0)]);
    assert_eq!(script.arrive(2, None), []);
    assert_eq!(script.arrive(3, None), []);
    assert_eq!(script.at(5).prepare_failed(1), [prepare(2, 5)]);
    assert_eq!(script.at(7).prepare_failed(2), [prepare(3, 7)]);
}

#[test]
fn batches_grow_while_the_device_is_busy() {
    let mut script = Script::with_instances(9, 1, &[(1, 10), (2, 11), (4, 13), (8, 17)]);
    for id in 1..=9 {
        script.arrive(id, None);
    }
    assert_eq!(script.prepared(1)[0], run(0, 1, &[1]));
    for id in 2..=9 {
        assert!(
            script
                .prepared(id)
                .iter()
                .all(|action| !matches!(action, Action::Run { .. }))
        );
    }
    assert_eq!(script.finished(0), [run(0, 8, &[2, 3, 4, 5, 6, 7, 8, 9])]);
}

#[test]
fn ready_pictures_are_divided_among_the_free_instances() {
    let mut script = Script::with_instances(8, 2, &[(1, 10), (2, 11), (4, 13)]);
    for id in 1..=8 {
        script.arrive(id, None);
    }
    assert_eq!(script.prepared(1), [run(0, 1, &[1])]);
    assert_eq!(script.prepared(2), [run(1, 1, &[2])]);
    for id in 3..=8 {
        assert_eq!(script.prepared(id), []);
    }
    // Both come back between two turns of the actor would be two events; the first takes its full bucket,
    // since its neighbour is not free yet.
    assert_eq!(script.finished(0), [run(0, 4, &[3, 4, 5, 6])]);
    assert_eq!(script.finished(1), [run(1, 2, &[7, 8])]);
}

#[test]
fn two_instances_that_come_free_together_share_what_is_ready() {
    let mut script = Script::new(8);
    let slow = placement(0, &[(1, 10), (2, 11), (4, 13)]);
    script.send(Event::InstanceUp(
        InstanceKey(0),
        Placement {
            max_queue_delay: Duration::from_millis(50),
            ..slow.clone()
        },
    ));
    script.send(Event::InstanceUp(
        InstanceKey(1),
        Placement {
            max_queue_delay: Duration::from_millis(50),
            ..slow
        },
    ));
    for id in 1..=4 {
        script.arrive(id, None);
        script.prepared(id);
    }
    assert_eq!(script.next_tick_ms(), Some(50));
    assert_eq!(
        script.at(50).send(Event::Tick),
        [run(0, 2, &[1, 2]), run(1, 2, &[3, 4])]
    );
}

#[test]
fn a_full_shelf_stops_preparing_and_does_not_block_another_model() {
    let mut script = Script::with_instances(4, 1, &[(1, 10)]);
    script.send(Event::InstanceUp(InstanceKey(7), placement(1, &[(1, 10)])));
    assert_eq!(script.arrive(1, None), [prepare(1, 0)]);
    assert_eq!(script.prepared(1), [run(0, 1, &[1])]);
    assert_eq!(script.arrive(2, None), [prepare(2, 0)]); // the one next batch
    assert_eq!(script.prepared(2), []);
    assert_eq!(script.arrive(3, None), []); // no slot
    assert_eq!(script.arrive_for(1, 4, None), [prepare(4, 0)]);
    assert_eq!(script.finished(0), [run(0, 1, &[2]), prepare(3, 0)]);
}

#[test]
fn an_expired_request_leaves_before_it_is_prepared() {
    let mut script = Script::with_instances(1, 1, &[(1, 10)]);
    script.arrive(1, None);
    script.arrive(2, Some(20));
    assert_eq!(script.next_tick_ms(), Some(20));
    assert_eq!(script.at(19).send(Event::Tick), []);
    assert_eq!(
        script.at(20).send(Event::Tick),
        [Action::DropWaiting(2, Outcome::Expired)]
    );
    assert_eq!(script.prepare_failed(1), []);
}

#[test]
fn an_expired_request_leaves_again_before_it_runs() {
    let mut script = Script::with_instances(1, 1, &[(1, 10)]);
    script.arrive(1, Some(15));
    assert_eq!(
        script.at(16).prepared(1),
        [Action::DropReady(1, Outcome::Expired)]
    );
    // Its worker and its slot are free again.
    assert_eq!(script.arrive(2, None), [prepare(2, 0)]);
}

#[test]
fn a_request_that_comes_too_late_is_dropped_on_arrival() {
    let mut script = Script::with_instances(1, 1, &[(1, 10)]);
    assert_eq!(
        script.at(9).arrive(1, Some(8)),
        [Action::DropWaiting(1, Outcome::Expired)]
    );
}

#[test]
fn an_abandoned_request_leaves_wherever_it_is() {
    let mut script = Script::with_instances(1, 1, &[(4, 10)]);
    script.arrive(1, None);
    script.arrive(2, None);
    assert_eq!(
        script.send(Event::Abandoned(RequestId(2))),
        [Action::DropWaiting(2, Outcome::Abandoned)]
    );
    assert_eq!(script.send(Event::Abandoned(RequestId(1))), []); // with a worker, remembered
    assert_eq!(
        script.prepared(1),
        [Action::DropReady(1, Outcome::Abandoned)]
    );
    assert_eq!(script.send(Event::Abandoned(RequestId(99))), []); // answered long ago
    assert_eq!(script.machine.pending(), 0);
}

#[test]
fn requests_of_a_model_without_an_instance_are_refused() {
    let mut script = Script::with_instances(2, 1, &[(1, 10), (2, 10)]);
    assert_eq!(
        script.arrive_for(5, 1, None),
        [Action::DropWaiting(1, Outcome::NoInstance)]
    );
    for id in 2..=4 {
        script.arrive(id, None);
    }
    script.prepared(2); // runs
    script.prepared(3); // ready
    assert_eq!(
        script.down(0, &[]),
        [Action::DropReady(3, Outcome::NoInstance)]
    );
    assert_eq!(
        script.prepared(4),
        [Action::DropReady(4, Outcome::NoInstance)]
    );
    assert_eq!(script.machine.idle_workers, 2);
}

#[test]
fn a_delay_holds_a_partial_batch_but_never_a_full_one() {
    let mut script = Script::new(8);
    let patient = Placement {
        max_queue_delay: Duration::from_millis(5),
        ..placement(0, &[(1, 10), (2, 10)])
    };
    script.send(Event::InstanceUp(InstanceKey(0), patient));
    script.arrive(1, None);
    assert_eq!(script.at(1).prepared(1), []);
    assert_eq!(script.next_tick_ms(), Some(6));
    script.arrive(2, None);
    assert_eq!(script.at(2).prepared(2), [run(0, 2, &[1, 2])]);
}

#[test]
fn a_pipelined_instance_takes_its_next_full_batch_ahead_of_its_turn() {
    let mut script = Script::new(8);
    let gpu = Placement {
        pipelined: true,
        ..placement(0, &[(1, 6), (2, 7)])
    };
    script.send(Event::InstanceUp(InstanceKey(0), gpu));
    script.arrive(1, None);
    assert_eq!(script.prepared(1), [run(0, 1, &[1])]);
    script.arrive(2, None);
    assert_eq!(script.prepared(2), []); // could still grow
    script.arrive(3, None);
    assert_eq!(script.prepared(3), [run(0, 2, &[2, 3])]);
    script.arrive(4, None);
    script.arrive(5, None);
    script.prepared(4);
    assert_eq!(script.prepared(5), []); // one ahead, no more
    assert_eq!(script.finished(0), [run(0, 2, &[4, 5])]);
}
