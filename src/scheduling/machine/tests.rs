//! Scripts of events against the machine, under a time of their own making.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

type TestMachine = Machine<u64, u64>;

/// Drives a machine from a script; times are milliseconds since its start.
struct Script {
    machine: TestMachine,
    start: Instant,
    now_ms: u64,
}

impl Script {
    fn new(workers: usize) -> Self {
        Self {
            machine: Machine::new(workers),
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
        let deadline = deadline_ms.map_or(Deadline::NEVER, |ms| {
            Deadline::at(self.start + Duration::from_millis(ms))
        });
        self.send(Event::Arrived(Arrival {
            id: RequestId(id),
            model: ModelKey(model),
            deadline,
            payload: id,
        }))
    }

    fn prepared(&mut self, id: u64) -> Vec<Action<u64, u64>> {
        self.send(Event::Prepared {
            id: RequestId(id),
            payload: id,
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
        batch: batch.to_vec(),
    }
}

#[test]
fn a_request_goes_to_a_worker_then_to_a_device_at_once() {
    let mut script = Script::with_instances(1, 1, &[(1, 10)]);
    assert_eq!(script.arrive(1, None), [prepare(1, 0)]);
    assert_eq!(script.at(4).prepared(1), [run(0, 1, &[1])]);
    assert_eq!(script.at(14).send(Event::BatchFinished(InstanceKey(0))), []);
    assert_eq!(script.machine.pending(), 0);
}

#[test]
fn requests_are_prepared_in_the_order_of_arrival() {
    let mut script = Script::with_instances(1, 1, &[(8, 10)]);
    assert_eq!(script.arrive(1, None), [prepare(1, 0)]);
    assert_eq!(script.arrive(2, None), []);
    assert_eq!(script.arrive(3, None), []);
    assert_eq!(
        script.at(5).send(Event::PrepareFailed(RequestId(1))),
        [prepare(2, 5)]
    );
    assert_eq!(
        script.at(7).send(Event::PrepareFailed(RequestId(2))),
        [prepare(3, 7)]
    );
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
    assert_eq!(
        script.send(Event::BatchFinished(InstanceKey(0))),
        [run(0, 8, &[2, 3, 4, 5, 6, 7, 8, 9])]
    );
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
    assert_eq!(
        script.send(Event::BatchFinished(InstanceKey(0))),
        [run(0, 4, &[3, 4, 5, 6])]
    );
    assert_eq!(
        script.send(Event::BatchFinished(InstanceKey(1))),
        [run(1, 2, &[7, 8])]
    );
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
    assert_eq!(
        script.send(Event::BatchFinished(InstanceKey(0))),
        [run(0, 1, &[2]), prepare(3, 0)]
    );
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
    assert_eq!(script.send(Event::PrepareFailed(RequestId(1))), []);
}

#[test]
fn an_expired_request_leaves_again_before_it_runs() {
    let mut script = Script::with_instances(1, 1, &[(1, 10)]);
    script.arrive(1, Some(5));
    assert_eq!(
        script.at(6).prepared(1),
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
        script.send(Event::InstanceDown(InstanceKey(0))),
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
    assert_eq!(
        script.send(Event::BatchFinished(InstanceKey(0))),
        [run(0, 2, &[4, 5])]
    );
}

/// One step of a random script.
#[derive(Debug, Clone)]
enum Step {
    Arrive { model: u32, timeout_ms: Option<u64> },
    Abandon { nth: usize },
    WorkerDone { nth: usize, fails: bool },
    BatchDone { nth: usize },
    InstanceDown { nth: usize },
    InstanceUp,
    Pass { ms: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..2u32, prop::option::of(0..40u64)).prop_map(|(model, timeout_ms)| Step::Arrive { model, timeout_ms }),
        1 => (0..64usize).prop_map(|nth| Step::Abandon { nth }),
        6 => (0..8usize, prop::bool::weighted(0.1)).prop_map(|(nth, fails)| Step::WorkerDone { nth, fails }),
        4 => (0..8usize).prop_map(|nth| Step::BatchDone { nth }),
        1 => (0..8usize).prop_map(|nth| Step::InstanceDown { nth }),
        1 => Just(Step::InstanceUp),
        2 => (1..10u64).prop_map(|ms| Step::Pass { ms }),
    ]
}

/// Plays both sides: sends what the world would, and checks every action against what it knows.
struct World {
    script: Script,
    workers: usize,
    next_id: u64,
    next_instance: u32,
    deadlines: Vec<Option<u64>>,
    model_of: Vec<u32>,
    abandoned: HashSet<u64>,
    preparing: Vec<u64>,
    prepared: HashSet<u64>,
    gone: HashSet<u64>,
    instances: Vec<(u32, u32, usize)>, // key, model, batches out
    max_bucket: usize,
}

impl World {
    fn new(workers: usize) -> Self {
        Self {
            script: Script::new(workers),
            workers,
            next_id: 0,
            next_instance: 0,
            deadlines: Vec::new(),
            model_of: Vec::new(),
            abandoned: HashSet::new(),
            preparing: Vec::new(),
            prepared: HashSet::new(),
            gone: HashSet::new(),
            instances: Vec::new(),
            max_bucket: 4,
        }
    }

    fn play(&mut self, step: &Step) {
        let actions = match step {
            Step::Arrive { model, timeout_ms } => {
                let (id, deadline) = (self.next_id, timeout_ms.map(|ms| self.script.now_ms + ms));
                self.next_id += 1;
                self.deadlines.push(deadline);
                self.model_of.push(*model);
                self.script.arrive_for(*model, id, deadline)
            }
            Step::Abandon { nth } => {
                if self.next_id == 0 {
                    return;
                }
                let id = *nth as u64 % self.next_id;
                self.abandoned.insert(id);
                self.script.send(Event::Abandoned(RequestId(id)))
            }
            Step::WorkerDone { nth, fails } => {
                if self.preparing.is_empty() {
                    return;
                }
                let id = self.preparing.swap_remove(nth % self.preparing.len());
                if *fails {
                    assert!(self.gone.insert(id), "request {id} ended twice");
                    self.script.send(Event::PrepareFailed(RequestId(id)))
                } else {
                    self.prepared.insert(id);
                    self.script.prepared(id)
                }
            }
            Step::BatchDone { nth } => {
                let busy: Vec<usize> = (0..self.instances.len())
                    .filter(|i| self.instances[*i].2 > 0)
                    .collect();
                let Some(index) = busy.get(nth % busy.len().max(1)) else {
                    return;
                };
                self.instances[*index].2 -= 1;
                self.script
                    .send(Event::BatchFinished(InstanceKey(self.instances[*index].0)))
            }
            Step::InstanceDown { nth } => {
                if self.instances.is_empty() {
                    return;
                }
                let (key, ..) = self.instances.swap_remove(nth % self.instances.len());
                self.script.send(Event::InstanceDown(InstanceKey(key)))
            }
            Step::InstanceUp => {
                let (key, model) = (self.next_instance, self.next_instance % 2);
                self.next_instance += 1;
                self.instances.push((key, model, 0));
                let mut placement = placement(model, &[(1, 10), (2, 12), (4, 20)]);
                placement.pipelined = key % 3 == 0;
                self.script
                    .send(Event::InstanceUp(InstanceKey(key), placement))
            }
            Step::Pass { ms } => {
                self.script.now_ms += ms;
                self.script.send(Event::Tick)
            }
        };
        for action in actions {
            self.check(action);
        }
        self.check_idle();
    }

    fn check(&mut self, action: Action<u64, u64>) {
        let now = self.script.now_ms;
        let live = |world: &Self, id: u64| {
            world.deadlines[id as usize].is_none_or(|deadline| deadline > now)
        };
        match action {
            Action::Prepare { id, payload, .. } => {
                assert_eq!(id.0, payload);
                assert!(live(self, payload), "an expired request was prepared");
                assert!(
                    !self.abandoned.contains(&payload),
                    "an abandoned request was prepared"
                );
                assert!(!self.prepared.contains(&payload) && !self.preparing.contains(&payload));
                self.preparing.push(payload);
                assert!(
                    self.preparing.len() <= self.workers,
                    "more in preparation than there are workers"
                );
            }
            Action::Run {
                instance,
                bucket,
                batch,
            } => {
                assert!(!batch.is_empty() && batch.len() <= bucket && bucket <= self.max_bucket);
                let slot = self
                    .instances
                    .iter_mut()
                    .find(|(key, ..)| *key == instance.0);
                let (_, model, out) = slot.expect("only a live instance runs");
                *out += 1;
                assert!(*out <= 2);
                let model = *model;
                for id in batch {
                    assert_eq!(self.model_of[id as usize], model, "a batch mixes models");
                    assert!(live(self, id), "an expired request ran");
                    assert!(self.prepared.contains(&id), "request {id} ran unprepared");
                    assert!(!self.abandoned.contains(&id), "an abandoned request ran");
                    assert!(self.gone.insert(id), "request {id} ended twice");
                }
            }
            Action::DropWaiting(id, outcome) | Action::DropReady(id, outcome) => {
                match outcome {
                    Outcome::Expired => assert!(!live(self, id)),
                    Outcome::Abandoned => assert!(self.abandoned.contains(&id)),
                    Outcome::NoInstance => {
                        assert!(
                            self.instances
                                .iter()
                                .all(|(_, model, _)| *model != self.model_of[id as usize])
                        );
                    }
                }
                assert!(self.gone.insert(id), "request {id} ended twice");
            }
        }
    }

    /// A free instance never waits beside a ready picture of its model.
    fn check_idle(&self) {
        for (key, model) in &self.script.machine.models {
            let free = self
                .instances
                .iter()
                .any(|(_, of, out)| *of == key.0 && *out == 0);
            assert!(
                !(free && model.shelf.len() > 0),
                "a device idles beside a ready picture"
            );
        }
    }

    /// Lets everything finish and checks that nothing is left.
    fn settle(&mut self) {
        for model in 0..2 {
            while !self.instances.iter().any(|(_, of, _)| *of == model) {
                self.play(&Step::InstanceUp);
            }
        }
        while self.gone.len() < self.next_id as usize {
            let before = (
                self.gone.len(),
                self.preparing.len(),
                self.instances.iter().map(|i| i.2).sum::<usize>(),
            );
            self.play(&Step::WorkerDone {
                nth: 0,
                fails: false,
            });
            self.play(&Step::BatchDone { nth: 0 });
            let after = (
                self.gone.len(),
                self.preparing.len(),
                self.instances.iter().map(|i| i.2).sum::<usize>(),
            );
            assert!(
                before != after || self.gone.len() == self.next_id as usize,
                "requests are stuck: {before:?}"
            );
        }
        while !self.preparing.is_empty() {
            self.play(&Step::WorkerDone {
                nth: 0,
                fails: false,
            });
        }
        let machine = &self.script.machine;
        assert_eq!(machine.pending(), 0);
        assert_eq!(
            machine.idle_workers, self.workers,
            "a worker was not given back"
        );
        assert!(machine.deadlines.is_empty());
        assert!(
            machine
                .models
                .values()
                .all(|model| model.shelf.taken() == 0),
            "a slot was not given back"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_request_is_lost_doubled_or_run_for_nobody(workers in 1..5usize, steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new(workers);
        for step in &steps {
            world.play(step);
        }
        world.settle();
    }
}
