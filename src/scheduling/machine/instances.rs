//! The instances' side: batches out and back, and what becomes of those that an instance was lost with.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use super::dispatch::choose_batch;
use super::instance::{Flight, Instance};
use super::{Machine, Model, Stage, Tracked, why_abandoned};
use crate::scheduling::estimate::Estimate;
use crate::scheduling::event::{Action, InstanceKey, ModelKey, Outcome, Placement, RequestId};
use crate::scheduling::shelf::Shelf;

impl<W, R> Machine<W, R> {
    pub(super) fn instance_up(&mut self, key: InstanceKey, placement: Placement) {
        let of = placement.model;
        let Some(instance) = Instance::new(placement) else {
            debug_assert!(false, "an instance has at least one bucket");
            return;
        };
        let model = self.models.entry(of).or_insert_with(|| Model {
            shelf: Shelf::new(),
            instances: BTreeMap::new(),
            prepare_cost: Estimate::UNKNOWN,
            job_costs: HashMap::new(),
            margins: HashMap::new(),
            let_in: None,
            probed: None,
        });
        model.instances.insert(key, instance);
        self.runs.insert(key, of);
    }

    /// Hands ready pictures to instances until there are none of either.
    pub(super) fn dispatch(&mut self, now: Instant, actions: &mut Vec<Action<W, R>>) {
        for model in self.models.values_mut() {
            while let Some(choice) = choose_batch(model, now) {
                let Some(instance) = model.instances.get_mut(&choice.instance) else {
                    break;
                };
                let mut batch = Vec::with_capacity(choice.count);
                let mut requests = Vec::with_capacity(choice.count);
                while batch.len() < choice.count
                    && let Some(ready) = model.shelf.pop()
                {
                    let Some(tracked) = self.tracked.get_mut(&ready.id) else {
                        continue;
                    };
                    if let Stage::Ready { turn } = tracked.stage {
                        let abandoned = false;
                        tracked.stage = Stage::Running { turn, abandoned };
                    }
                    if let Some(instant) = tracked.expires() {
                        self.deadlines.remove(&(instant, ready.id));
                    }
                    requests.push(ready.id);
                    batch.push((ready.id, ready.payload));
                }
                instance.start(Flight {
                    bucket: choice.bucket,
                    requests,
                    started: now,
                });
                actions.push(Action::Run {
                    instance: choice.instance,
                    bucket: choice.bucket,
                    batch,
                });
            }
        }
    }

    pub(super) fn batch_finished(
        &mut self,
        key: InstanceKey,
        took: Option<Duration>,
        now: Instant,
    ) {
        let of = self.runs.get(&key);
        let Some(model) = of.and_then(|of| self.models.get_mut(of)) else {
            return;
        };
        let peers = model.instances.len().max(1);
        let Some(instance) = model.instances.get_mut(&key) else {
            return;
        };
        let Some(flight) = instance.finish(now) else {
            return;
        };
        let took = took.map(|took| took.as_secs_f64());
        if let Some(took) = took {
            instance.buckets.observe(flight.bucket, took);
        }
        let elapsed = now.saturating_duration_since(flight.started).as_secs_f64();
        let each = took.unwrap_or(elapsed) / (flight.requests.len() * peers) as f64;
        for id in flight.requests {
            let Some(tracked) = self.tracked.remove(&id) else {
                continue;
            };
            self.settle(&tracked, tracked.cost.cpu + each);
            let in_time = !tracked.deadline.has_passed(now);
            self.learn_margin(&tracked, in_time, now);
            self.cut.forget(id, &tracked);
        }
    }

    /// Gives up the instances that hang.
    pub(super) fn eject(&mut self, now: Instant, actions: &mut Vec<Action<W, R>>) {
        let models = self.models.values_mut();
        for (key, instance) in models.flat_map(|model| &mut model.instances) {
            if instance.hangs_at().is_some_and(|at| at <= now) {
                instance.eject();
                actions.push(Action::Eject(*key));
            }
        }
    }

    pub(super) fn instance_down(
        &mut self,
        key: InstanceKey,
        returned: Vec<(RequestId, R)>,
        now: Instant,
        actions: &mut Vec<Action<W, R>>,
    ) {
        let known = self.runs.remove(&key).and_then(|of| {
            let model = self.models.get_mut(&of)?;
            Some((of, model.instances.remove(&key)?))
        });
        let Some((key_of_model, instance)) = known else {
            debug_assert!(returned.is_empty(), "what is not known holds nothing");
            return;
        };
        let mut in_hand: HashMap<RequestId, Tracked> = instance
            .into_requests()
            .filter_map(|id| Some((id, self.tracked.remove(&id)?)))
            .collect();
        for (id, payload) in returned {
            let Some(mut tracked) = in_hand.remove(&id) else {
                debug_assert!(false, "what comes back was handed out");
                continue;
            };
            let Stage::Running { turn, abandoned } = tracked.stage else {
                debug_assert!(false, "an instance holds what runs");
                continue;
            };
            let outcome = if abandoned {
                why_abandoned(tracked.deadline, now)
            } else if !self.is_live(key_of_model) {
                Outcome::NoInstance
            } else if tracked.requeued {
                Outcome::Lost
            } else {
                tracked.requeued = true;
                tracked.stage = Stage::Ready { turn };
                self.put_on_shelf(id, turn, payload, tracked, now);
                continue;
            };
            self.settle(&tracked, tracked.cost.cpu);
            self.cut.forget(id, &tracked);
            actions.push(Action::DropReady(payload, outcome));
        }
        // The others it has answered itself.
        for (id, tracked) in in_hand {
            self.settle(&tracked, tracked.cost.total());
            self.cut.forget(id, &tracked);
        }
        if !self.is_live(key_of_model) {
            self.clear(key_of_model, actions);
        }
    }

    /// Lets go of all who wait for a model without an instance. The model itself stays known: its requests in
    /// preparation still have slots to give back.
    pub(super) fn clear(&mut self, key: ModelKey, actions: &mut Vec<Action<W, R>>) {
        for (id, waiting) in self.line.drain(key) {
            if let Some(tracked) = self.untrack(id) {
                self.cut.piece_prepared(&tracked);
                self.cut.forget(id, &tracked);
            }
            actions.push(Action::DropWaiting(waiting.payload, Outcome::NoInstance));
        }
        while let Some(ready) = self
            .models
            .get_mut(&key)
            .and_then(|model| model.shelf.pop())
        {
            if let Some(tracked) = self.untrack(ready.id) {
                self.settle(&tracked, tracked.cost.cpu);
                self.cut.forget(ready.id, &tracked);
            }
            actions.push(Action::DropReady(ready.payload, Outcome::NoInstance));
        }
    }
}
