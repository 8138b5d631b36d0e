//! [`Cost`] of one request, and the [`Backlog`] of many.

use std::collections::BTreeMap;

use crate::scheduling::event::ModelKey;
use crate::scheduling::lane::Lane;

/// What requests cost, or are expected to, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(in crate::scheduling) struct Cost {
    /// On a CPU worker.
    pub(in crate::scheduling) cpu: f64,
    /// On the model's devices, all of them together taken as one.
    pub(in crate::scheduling) device: f64,
}

/// What waits somewhere, by lane. A lane in which nothing waits is not in it.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    lanes: BTreeMap<Lane, Waiting>,
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
    pub(in crate::scheduling) fn at_most(self, most: f64) -> Cost {
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
    pub(super) fn add(&mut self, lane: Lane, cost: Cost) {
        let waiting = self.lanes.entry(lane).or_default();
        waiting.requests += 1;
        waiting.cost = waiting.cost + cost;
    }

    pub(super) fn subtract(&mut self, lane: Lane, cost: Cost) {
        let Some(waiting) = self.lanes.get_mut(&lane) else {
            return;
        };
        waiting.requests -= 1;
        if waiting.requests == 0 {
            // And with it whatever the sum of many small numbers did not come out even by.
            self.lanes.remove(&lane);
            return;
        }
        waiting.cost.cpu = (waiting.cost.cpu - cost.cpu).max(0.0);
        waiting.cost.device = (waiting.cost.device - cost.device).max(0.0);
    }

    /// What those who wait for `model` will cost.
    pub(super) fn cost(&self, model: ModelKey) -> Cost {
        self.of(model).map(|waiting| waiting.cost).sum()
    }

    /// What those who wait in `lane` will cost.
    pub(super) fn cost_in(&self, lane: Lane) -> Cost {
        self.lanes
            .get(&lane)
            .map_or(Cost::default(), |waiting| waiting.cost)
    }

    /// How many wait for `model`.
    pub(super) fn requests(&self, model: ModelKey) -> usize {
        self.of(model).map(|waiting| waiting.requests).sum()
    }

    /// Whether somebody waits in `lane`.
    pub(super) fn has(&self, lane: Lane) -> bool {
        self.lanes.contains_key(&lane)
    }

    /// Models for which somebody waits, in order; one is named once for each of its lanes.
    pub(super) fn models(&self) -> impl Iterator<Item = ModelKey> + '_ {
        self.lanes.keys().map(|lane| lane.model)
    }

    fn of(&self, model: ModelKey) -> impl Iterator<Item = &Waiting> + '_ {
        self.lanes
            .range(Lane::of(model))
            .map(|(_, waiting)| waiting)
    }
}
