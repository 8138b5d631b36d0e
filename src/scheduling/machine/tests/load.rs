//! Load that goes on: callers who come back as soon as they are answered, and who gets how much in the long run.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// Somebody who always has one request here, or is away for a moment between two.
#[derive(Debug, Clone, Copy)]
struct Caller {
    source: u64,
    model: u32,
    priority: Priority,
    /// What its pictures take a worker.
    cpu_ms: u64,
    /// How long it is away between an answer and its next request.
    away_ms: u64,
}

/// What happens next.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Prepared(u64),
    Ran { instance: u32, batch: Vec<u64> },
    Comes { caller: usize },
}

/// The callers, and workers and instances that take their time.
struct Plant {
    script: Script,
    callers: Vec<Caller>,
    /// What a batch takes on the devices of each model.
    device_ms: Vec<u64>,
    agenda: BTreeSet<(u64, Due)>,
    /// Whose each request is, and when it came.
    requests: Vec<(usize, u64)>,
    answers: Vec<u64>,
    longest_wait_ms: Vec<u64>,
}

// === impl Plant ===

impl Plant {
    /// One device for each model, without batches.
    fn new(workers: usize, device_ms: &[u64], callers: Vec<Caller>) -> Self {
        let mut script = Script::new(workers);
        for (key, ms) in (0..).zip(device_ms) {
            let up = placement(key, &[(1, *ms)]);
            script.send(Event::InstanceUp(InstanceKey(key), up));
        }
        let comes = |caller| (caller as u64 % 7, Due::Comes { caller });
        Self {
            script,
            device_ms: device_ms.to_vec(),
            agenda: (0..callers.len()).map(comes).collect(),
            answers: vec![0; callers.len()],
            longest_wait_ms: vec![0; callers.len()],
            callers,
            requests: Vec::new(),
        }
    }

    fn run(mut self, until_ms: u64) -> Self {
        while let Some((at, due)) = self.agenda.pop_first() {
            if at > until_ms {
                break;
            }
            self.script.now_ms = at;
            let actions = match due {
                Due::Prepared(id) => {
                    let took = self.callers[self.requests[id as usize].0].cpu_ms;
                    self.script.prepared_in(id, took)
                }
                Due::Ran { instance, batch } => {
                    for id in batch {
                        let (caller, came) = self.requests[id as usize];
                        self.answers[caller] += 1;
                        let longest = &mut self.longest_wait_ms[caller];
                        *longest = (*longest).max(at - came);
                        let again = at + self.callers[caller].away_ms;
                        self.agenda.insert((again, Due::Comes { caller }));
                    }
                    let took = self.device_ms[instance as usize];
                    self.script.finished_in(instance, took)
                }
                Due::Comes { caller } => {
                    let id = self.requests.len() as u64;
                    self.requests.push((caller, at));
                    let of = self.callers[caller];
                    let share = Share {
                        source: SourceKey(of.source),
                        stream: StreamKey::CALLS,
                    };
                    let kind = Kind::Frame; // without a deadline it is never refused
                    self.script
                        .arrive_kind(of.model, id, share, of.priority, kind, None, None)
                }
            };
            for action in actions {
                match action {
                    Action::Prepare { payload, .. } => {
                        let took = self.callers[self.requests[payload as usize].0].cpu_ms;
                        self.agenda.insert((at + took, Due::Prepared(payload)));
                    }
                    Action::Run {
                        instance, batch, ..
                    } => {
                        let batch = batch.into_iter().map(|(_, id)| id).collect();
                        let instance = instance.0;
                        let took = self.device_ms[instance as usize];
                        self.agenda
                            .insert((at + took, Due::Ran { instance, batch }));
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        self
    }

    /// Answers to each source.
    fn by_source(&self) -> BTreeMap<u64, u64> {
        let mut answers = BTreeMap::new();
        for (caller, count) in self.callers.iter().zip(&self.answers) {
            *answers.entry(caller.source).or_default() += count;
        }
        answers
    }
}

fn caller(source: u64) -> Caller {
    Caller {
        source,
        model: 0,
        priority: Priority::Interactive,
        cpu_ms: 5,
        away_ms: 1,
    }
}

fn batch(source: u64, model: u32) -> Caller {
    Caller {
        model,
        priority: Priority::Batch,
        ..caller(source)
    }
}

#[test]
fn one_with_many_callers_gets_its_share_beside_many_with_one() {
    for workers in [1, 2, 4] {
        let mut callers = vec![caller(0); 4];
        callers.extend((1..25).map(caller));
        let plant = Plant::new(workers, &[5], callers).run(60_000);
        let answers = plant.by_source();
        let share = plant.answers.iter().sum::<u64>() / 25;
        for (source, answers) in answers {
            assert!(
                (share * 9 / 10..=share * 11 / 10).contains(&answers),
                "source {source} has {answers} where {share} are its share; {workers} workers"
            );
        }
    }
}

#[test]
fn a_sender_of_large_pictures_pays_for_them_when_it_sends_one_after_another_too() {
    let large = Caller {
        cpu_ms: 50,
        ..caller(0)
    };
    let mut callers = vec![large];
    callers.extend((1..25).map(caller));
    let plant = Plant::new(1, &[5], callers).run(60_000);
    // Fifty-five milliseconds of cost against ten.
    let others = plant.answers[1..].iter().sum::<u64>() / 24;
    let fair = others * 10 / 55;
    let large = plant.answers[0];
    assert!(
        (fair * 8 / 10..=fair * 13 / 10).contains(&large),
        "{large} beside {others}"
    );
}

#[test]
fn batch_work_that_fills_an_idle_device_does_not_take_the_twentieth_of_other_batch_work() {
    let mut callers = vec![caller(0); 8];
    callers.extend([batch(1, 0); 4]);
    // With a device of its own that nobody else uses.
    callers.extend([batch(2, 1); 4]);
    let plant = Plant::new(2, &[20, 5], callers).run(120_000);
    let answers = plant.by_source();
    // The device does six thousand in that time.
    assert!(answers[&1] > 240, "{answers:?}");
    assert!(answers[&0] > 5_400, "{answers:?}");
    assert!(answers[&2] > 6_000, "{answers:?}");
}

#[test]
fn batch_work_has_a_twentieth_of_workers_that_interactive_work_of_another_model_keeps_busy() {
    let busy = Caller {
        cpu_ms: 20,
        ..caller(0)
    };
    let mut callers = vec![busy; 8];
    callers.extend([batch(1, 1); 4]);
    let plant = Plant::new(1, &[1, 1], callers).run(120_000);
    let answers = plant.by_source();
    let (interactive, batch) = (answers[&0] * 21, answers[&1] * 6);
    let part = batch as f64 / (interactive + batch) as f64;
    assert!((0.04..0.06).contains(&part), "{part} {answers:?}");
}

fn any_caller() -> impl Strategy<Value = Caller> {
    let priority = prop_oneof![3 => Just(Priority::Interactive), 1 => Just(Priority::Batch)];
    (0..5u64, 0..2u32, priority, 1..20u64, 0..30u64).prop_map(
        |(source, model, priority, cpu_ms, away_ms)| Caller {
            source,
            model,
            priority,
            cpu_ms,
            away_ms,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn while_the_load_goes_on_everybody_is_served(
        workers in 1..4usize,
        callers in prop::collection::vec(any_caller(), 1..24),
    ) {
        let device_ms = [20, 20];
        let count = callers.len() as u64;
        let plant = Plant::new(workers, &device_ms, callers).run(120_000);
        // A round in which everybody is served once takes no longer than this; batch work has a twentieth of them. A
        // source's share is what its callers have together, so one of many waits for so many rounds.
        let round_ms = count * (20 + 20) + 30;
        for (caller, longest) in plant.callers.iter().zip(&plant.longest_wait_ms) {
            let same = plant.callers.iter().filter(|other| other.source == caller.source);
            let rounds = 2 * same.count() as u64 + 2;
            let bound = match caller.priority {
                Priority::Interactive => round_ms * rounds,
                Priority::Batch => round_ms * rounds * 20,
            };
            prop_assert!(*longest <= bound, "{longest} of {bound} ms: {caller:?}");
        }
        let least = |priority| match priority {
            Priority::Interactive => 120_000 / round_ms / (2 * count + 2),
            Priority::Batch => 120_000 / round_ms / (2 * count + 2) / 20,
        };
        for (caller, answers) in plant.callers.iter().zip(&plant.answers) {
            prop_assert!(*answers >= least(caller.priority), "{answers}: {caller:?}");
        }
    }
}
