//! [`Cost`] of one request, and the [`Backlog`] of many.

use std::collections::BTreeMap;

use crate::scheduling::event::ModelKey;

/// What requests cost, or are expected to, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(in crate::scheduling) struct Cost {
    /// On a CPU worker.
    pub(in crate::scheduling) cpu: f64,
    /// On the model's devices, all of them together taken as one.
    pub(in crate::scheduling) device: f64,
}

/// What waits somewhere, by model. A model for which nothing waits is not in it.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    models: BTreeMap<ModelKey, Waiting>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Waiting {
    requests: usize,
    cost: Cost,
}

// === impl Cost ===

impl Cost {
    /// What is charged for it.
    pub(in crate::scheduling) fn total(self) -> f64 {
        self.cpu + self.device
    }

    /// The part of it whose total is `most`, or all.
    pub(super) fn at_most(self, most: f64) -> Cost {
        let total = self.total();
        if total <= most {
            return self;
        }
        let part = most.max(0.0) / total;
        Cost {
            cpu: self.cpu * part,
            device: self.device * part,
        }
    }
}

impl std::ops::Add for Cost {
    type Output = Cost;

    fn add(self, other: Cost) -> Cost {
        Cost {
            cpu: self.cpu + other.cpu,
            device: self.device + other.device,
        }
    }
}

impl std::iter::Sum for Cost {
    fn sum<I: Iterator<Item = Cost>>(costs: I) -> Cost {
        costs.fold(Cost::default(), std::ops::Add::add)
    }
}

// === impl Backlog ===

impl Backlog {
    pub(super) fn add(&mut self, model: ModelKey, cost: Cost) {
        let waiting = self.models.entry(model).or_default();
        waiting.requests += 1;
        waiting.cost = waiting.cost + cost;
    }

    pub(super) fn subtract(&mut self, model: ModelKey, cost: Cost) {
        let Some(waiting) = self.models.get_mut(&model) else {
            return;
        };
        waiting.requests -= 1;
        if waiting.requests == 0 {
            // And with it whatever the sum of many small numbers did not come out even by.
            self.models.remove(&model);
            return;
        }
        waiting.cost.cpu = (waiting.cost.cpu - cost.cpu).max(0.0);
        waiting.cost.device = (waiting.cost.device - cost.device).max(0.0);
    }

    pub(super) fn cost(&self, model: ModelKey) -> Cost {
        self.models
            .get(&model)
            .map_or(Cost::default(), |waiting| waiting.cost)
    }

    pub(super) fn requests(&self, model: ModelKey) -> usize {
        self.models
            .get(&model)
            .map_or(0, |waiting| waiting.requests)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.models.is_empty()
    }

    pub(super) fn models(&self) -> impl Iterator<Item = ModelKey> + '_ {
        self.models.keys().copied()
    }
}
