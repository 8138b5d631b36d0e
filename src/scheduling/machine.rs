//! The state machine: `(state, event, now) -> (state, actions)`.
//!
//! It owns who waits, who is being prepared, who is ready and which instance is busy, and decides on every
//! event what leaves, what is prepared next and what runs where. It reads no clock and starts nothing; whoever
//! drives it passes the time in and carries the actions out (see [`super::batcher`]).
//!
//! Policies, all of them here:
//!
//! - *Late decisions.* A request stays encoded in its model's [`Line`] until a CPU worker is free **and** its
//!   model's [`Shelf`] has a slot. A model whose shelf is full does not hold up another model's line.
//! - *First come, first served* among the requests that are eligible.
//! - *Work-conserving batches.* A free instance takes what is ready at once; when several are free they
//!   divide it; the bucket is the one in which a picture costs least ([`super::bucket`]).
//! - *Nothing for nobody.* A request whose deadline passed or whose caller left goes before it is prepared,
//!   and again before it runs.
//!
//! Invariants, kept under random scripts by the tests: each payload that comes in goes out in exactly one
//! action; slots and workers taken are given back; no bucket holds more than its size.

mod dispatch;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use super::bucket::{BatchBucket, Buckets};
use super::deadline::Deadline;
use super::line::{Line, Waiting};
use super::shelf::{Ready, Shelf};
use dispatch::{choose_batch, has_room};

/// Names one request. Ids rise in the order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Names one loaded (model, version).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelKey(pub u32);

/// Names one model instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceKey(pub u32);

/// A request as it enters the line.
#[derive(Debug)]
pub struct Arrival<W> {
    /// Its name; greater than that of every request before it.
    pub id: RequestId,
    /// The model it is for.
    pub model: ModelKey,
    /// When its caller stops waiting.
    pub deadline: Deadline,
    /// What the caller wants back in an action.
    pub payload: W,
}

/// What an instance serves and how, told when it comes up.
#[derive(Debug, Clone)]
pub struct Placement {
    /// The model whose pictures it runs.
    pub model: ModelKey,
    /// Its batch buckets with their measured costs; at least one.
    pub buckets: Vec<BatchBucket>,
    /// How long the oldest ready picture may wait for company while a device is free.
    ///
    /// Zero, the default, gives a free device what is ready at once: batches grow because devices are busy.
    pub max_queue_delay: Duration,
    /// Whether a next batch is put together while one runs. Worth it where copying a batch takes long
    /// against running it (a GPU); on a CPU it would only bind a picture to an instance too early.
    pub pipelined: bool,
}

/// Something that happened.
#[derive(Debug)]
pub enum Event<W, R> {
    /// A request was admitted.
    Arrived(Arrival<W>),
    /// Its caller left; it may be anywhere, or gone already.
    Abandoned(RequestId),
    /// A CPU worker finished preparing a request.
    Prepared {
        /// Which.
        id: RequestId,
        /// What came out.
        payload: R,
    },
    /// A CPU worker could not prepare a request, and has answered it.
    PrepareFailed(RequestId),
    /// An instance is warm and idle.
    InstanceUp(InstanceKey, Placement),
    /// An instance finished a batch and has answered its requests.
    BatchFinished(InstanceKey),
    /// An instance is gone, and has answered whatever it held.
    InstanceDown(InstanceKey),
    /// Nothing but time passed.
    Tick,
}

/// Something to do.
#[derive(Debug, PartialEq)]
pub enum Action<W, R> {
    /// Prepare this request on a CPU worker.
    Prepare {
        /// Which.
        id: RequestId,
        /// What came in.
        payload: W,
        /// How long it stood in the line.
        waited: Duration,
    },
    /// Run these pictures together.
    Run {
        /// Where.
        instance: InstanceKey,
        /// The bucket to pad to; at least as large as the batch.
        bucket: usize,
        /// The pictures, oldest request first; never empty.
        batch: Vec<R>,
    },
    /// Let go of a request that still waited to be prepared.
    DropWaiting(W, Outcome),
    /// Let go of a request that was ready to run.
    DropReady(R, Outcome),
}

/// Why a request is let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Its deadline passed.
    Expired,
    /// Its caller left.
    Abandoned,
    /// No instance of its model is left.
    NoInstance,
}

/// The state.
#[derive(Debug)]
pub struct Machine<W, R> {
    idle_workers: usize,
    models: BTreeMap<ModelKey, Model<W, R>>,
    instances: BTreeMap<InstanceKey, Instance>,
    /// Every request that waits, is prepared or is ready.
    tracked: HashMap<RequestId, Tracked>,
    /// The deadlines of those that wait or are ready.
    deadlines: BTreeSet<(Instant, RequestId)>,
}

#[derive(Debug)]
struct Model<W, R> {
    line: Line<W>,
    shelf: Shelf<R>,
    instances: BTreeSet<InstanceKey>,
}

#[derive(Debug)]
struct Instance {
    model: ModelKey,
    buckets: Buckets,
    max_queue_delay: Duration,
    pipelined: bool,
    in_flight: usize,
}

#[derive(Debug, Clone, Copy)]
struct Tracked {
    model: ModelKey,
    deadline: Deadline,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting,
    /// With a CPU worker. A caller who leaves now is remembered: the worker still has to come back.
    Preparing {
        abandoned: bool,
    },
    Ready,
}

// === impl Machine ===

impl<W, R> Machine<W, R> {
    /// A machine with `workers` CPU workers and no instance.
    pub fn new(workers: usize) -> Self {
        Self {
            idle_workers: workers,
            models: BTreeMap::new(),
            instances: BTreeMap::new(),
            tracked: HashMap::new(),
            deadlines: BTreeSet::new(),
        }
    }

    /// Takes in one event at `now` and appends what is to be done to `actions`, in order.
    ///
    /// `now` must not go backwards from call to call.
    pub fn handle(&mut self, event: Event<W, R>, now: Instant, actions: &mut Vec<Action<W, R>>) {
        match event {
            Event::Arrived(arrival) => self.arrive(arrival, now, actions),
            Event::Abandoned(id) => self.abandon(id, now, actions),
            Event::Prepared { id, payload } => self.prepared(id, payload, now, actions),
            Event::PrepareFailed(id) => {
                self.leave_worker(id);
            }
            Event::InstanceUp(key, placement) => self.instance_up(key, placement),
            Event::BatchFinished(key) => {
                if let Some(instance) = self.instances.get_mut(&key) {
                    instance.in_flight = instance.in_flight.saturating_sub(1);
                }
            }
            Event::InstanceDown(key) => self.instance_down(key, actions),
            Event::Tick => {}
        }
        self.expire(now, actions);
        // Finishing comes before starting, and makes the room in which to start.
        self.dispatch(now, actions);
        self.prepare(now, actions);
    }

    /// The next instant at which time alone changes something, if there is one: send a [`Event::Tick`] then.
    pub fn next_tick(&self) -> Option<Instant> {
        let deadline = self.deadlines.first().map(|(instant, _)| *instant);
        let delayed = self.models.values().filter_map(|model| {
            let oldest = model.shelf.oldest_ready_at()?;
            let idle = model
                .instances
                .iter()
                .filter_map(|key| self.instances.get(key));
            idle.filter(|instance| instance.in_flight == 0)
                .map(|instance| oldest + instance.max_queue_delay)
                .min()
        });
        deadline.into_iter().chain(delayed).min()
    }

    /// Requests that have come in and not gone out: waiting, being prepared, or ready.
    pub fn pending(&self) -> usize {
        self.tracked.len()
    }

    fn arrive(&mut self, arrival: Arrival<W>, now: Instant, actions: &mut Vec<Action<W, R>>) {
        let Arrival {
            id,
            model: key,
            deadline,
            payload,
        } = arrival;
        let model = self
            .models
            .get_mut(&key)
            .filter(|model| !model.instances.is_empty());
        let Some(model) = model else {
            actions.push(Action::DropWaiting(payload, Outcome::NoInstance));
            return;
        };
        model.line.push(
            id,
            Waiting {
                payload,
                deadline,
                arrived: now,
            },
        );
        self.track(
            id,
            Tracked {
                model: key,
                deadline,
                stage: Stage::Waiting,
            },
        );
    }

    fn abandon(&mut self, id: RequestId, now: Instant, actions: &mut Vec<Action<W, R>>) {
        match self.tracked.get_mut(&id) {
            None => {} // answered, or with a device: its reply will find nobody
            Some(Tracked {
                stage: Stage::Preparing { abandoned },
                ..
            }) => *abandoned = true,
            Some(tracked) => {
                let outcome = why_abandoned(tracked.deadline, now);
                self.drop_queued(id, outcome, actions);
            }
        }
    }

    /// The worker that prepared `id` is free again, and the slot of `id` is still reserved.
    fn leave_worker(&mut self, id: RequestId) -> Option<Tracked> {
        let tracked = self.tracked.remove(&id)?;
        debug_assert!(
            matches!(tracked.stage, Stage::Preparing { .. }),
            "only a request in preparation comes back"
        );
        self.idle_workers += 1;
        if let Some(model) = self.models.get_mut(&tracked.model) {
            model.shelf.release();
        }
        Some(tracked)
    }

    fn prepared(
        &mut self,
        id: RequestId,
        payload: R,
        now: Instant,
        actions: &mut Vec<Action<W, R>>,
    ) {
        let Some(tracked) = self.leave_worker(id) else {
            debug_assert!(false, "a request is prepared once, after it was asked for");
            return;
        };
        if tracked.stage == (Stage::Preparing { abandoned: true }) {
            actions.push(Action::DropReady(
                payload,
                why_abandoned(tracked.deadline, now),
            ));
        } else if let Some(model) = self.models.get_mut(&tracked.model)
            && !model.instances.is_empty()
        {
            // An expired one is taken out again at once, by `expire`.
            model.shelf.put(
                id,
                Ready {
                    payload,
                    ready_at: now,
                },
            );
            self.track(
                id,
                Tracked {
                    stage: Stage::Ready,
                    ..tracked
                },
            );
        } else {
            actions.push(Action::DropReady(payload, Outcome::NoInstance));
        }
    }

    fn instance_up(&mut self, key: InstanceKey, placement: Placement) {
        let Some(buckets) = Buckets::new(placement.buckets) else {
            debug_assert!(false, "an instance has at least one bucket");
            return;
        };
        let model = self.models.entry(placement.model).or_insert_with(|| Model {
            line: Line::new(),
            shelf: Shelf::new(),
            instances: BTreeSet::new(),
        });
        model.instances.insert(key);
        let instance = Instance {
            model: placement.model,
            buckets,
            max_queue_delay: placement.max_queue_delay,
            pipelined: placement.pipelined,
            in_flight: 0,
        };
        self.instances.insert(key, instance);
    }

    fn instance_down(&mut self, key: InstanceKey, actions: &mut Vec<Action<W, R>>) {
        let Some(instance) = self.instances.remove(&key) else {
            return;
        };
        let Some(model) = self.models.get_mut(&instance.model) else {
            return;
        };
        model.instances.remove(&key);
        if !model.instances.is_empty() {
            return;
        }
        // The model itself stays known: its requests in preparation still have slots to give back.
        for (id, waiting) in model.line.drain() {
            untrack(&mut self.tracked, &mut self.deadlines, id);
            actions.push(Action::DropWaiting(waiting.payload, Outcome::NoInstance));
        }
        while let Some((id, ready)) = model.shelf.pop() {
            untrack(&mut self.tracked, &mut self.deadlines, id);
            actions.push(Action::DropReady(ready.payload, Outcome::NoInstance));
        }
    }

    fn expire(&mut self, now: Instant, actions: &mut Vec<Action<W, R>>) {
        while let Some(&(deadline, id)) = self.deadlines.first() {
            if deadline > now {
                return;
            }
            self.drop_queued(id, Outcome::Expired, actions);
        }
    }

    /// Hands ready pictures to instances until there are none of either.
    fn dispatch(&mut self, now: Instant, actions: &mut Vec<Action<W, R>>) {
        for model in self.models.values_mut() {
            while let Some((key, bucket, count)) = choose_batch(model, &self.instances, now) {
                let mut batch = Vec::with_capacity(count);
                while batch.len() < count
                    && let Some((id, ready)) = model.shelf.pop()
                {
                    untrack(&mut self.tracked, &mut self.deadlines, id);
                    batch.push(ready.payload);
                }
                if let Some(instance) = self.instances.get_mut(&key) {
                    instance.in_flight += 1;
                }
                actions.push(Action::Run {
                    instance: key,
                    bucket,
                    batch,
                });
            }
        }
    }

    /// Gives waiting requests to idle workers, as long as their shelves have room.
    fn prepare(&mut self, now: Instant, actions: &mut Vec<Action<W, R>>) {
        while self.idle_workers > 0 {
            let eligible = self
                .models
                .iter()
                .filter(|(_, model)| has_room(model, &self.instances));
            let Some((id, key)) = eligible
                .filter_map(|(key, model)| Some((model.line.first()?, *key)))
                .min()
            else {
                return;
            };
            let Some(model) = self.models.get_mut(&key) else {
                return;
            };
            let Some(waiting) = model.line.remove(id) else {
                return;
            };
            model.shelf.reserve();
            self.idle_workers -= 1;
            self.untrack(id);
            let stage = Stage::Preparing { abandoned: false };
            self.tracked.insert(
                id,
                Tracked {
                    model: key,
                    deadline: waiting.deadline,
                    stage,
                },
            );
            actions.push(Action::Prepare {
                id,
                payload: waiting.payload,
                waited: now.saturating_duration_since(waiting.arrived),
            });
        }
    }

    /// Lets go of a request that waits or is ready.
    fn drop_queued(&mut self, id: RequestId, outcome: Outcome, actions: &mut Vec<Action<W, R>>) {
        let Some(tracked) = self.untrack(id) else {
            return;
        };
        let Some(model) = self.models.get_mut(&tracked.model) else {
            return;
        };
        if let Some(waiting) = model.line.remove(id) {
            actions.push(Action::DropWaiting(waiting.payload, outcome));
        } else if let Some(ready) = model.shelf.remove(id) {
            actions.push(Action::DropReady(ready.payload, outcome));
        }
    }

    fn track(&mut self, id: RequestId, tracked: Tracked) {
        if let Some(instant) = tracked.deadline.instant() {
            self.deadlines.insert((instant, id));
        }
        self.tracked.insert(id, tracked);
    }

    fn untrack(&mut self, id: RequestId) -> Option<Tracked> {
        untrack(&mut self.tracked, &mut self.deadlines, id)
    }
}

/// A caller who leaves when the deadline has passed leaves because of it.
fn why_abandoned(deadline: Deadline, now: Instant) -> Outcome {
    if deadline.has_passed(now) {
        Outcome::Expired
    } else {
        Outcome::Abandoned
    }
}

/// Free-standing, so that it can be called while a model is borrowed.
fn untrack(
    tracked: &mut HashMap<RequestId, Tracked>,
    deadlines: &mut BTreeSet<(Instant, RequestId)>,
    id: RequestId,
) -> Option<Tracked> {
    let entry = tracked.remove(&id)?;
    if let Some(instant) = entry.deadline.instant() {
        deadlines.remove(&(instant, id));
    }
    Some(entry)
}

#[cfg(test)]
mod tests;
