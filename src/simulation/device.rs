//! [`Device`]: a synthetic instance. A run takes what its table says, give or take, and what goes wrong with it
//! goes wrong when the scenario says.

use std::collections::VecDeque;

use super::agenda::{Nanoseconds, seconds};
use super::distribution::LONGEST;
use super::random::Random;
use super::scenario::{Devices, Scenario};
use crate::scheduling::{BatchBucket, InstanceKey, ModelKey, Placement};

/// One instance.
#[derive(Debug)]
pub(super) struct Device<'a> {
    pub(super) name: String,
    pub(super) model: usize,
    pub(super) spec: &'a Devices,
    buckets: Vec<BatchBucket>,
    number: usize,
    random: Random,
    /// Its name with the machine; none while it is gone.
    pub(super) key: Option<InstanceKey>,
    /// No run of it ends any more.
    pub(super) hangs: bool,
    flights: VecDeque<Flight>,
    /// When the first of them began to run.
    started: Option<Nanoseconds>,
    /// Counts runs, so that the end of one that was given up is known for what it is.
    run: u64,
}

/// A batch in its hands.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) bucket: usize,
    pub(super) requests: Vec<usize>,
}

/// The end of a run.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) flight: Flight,
    pub(super) started: Nanoseconds,
}

// === impl Device ===

impl<'a> Device<'a> {
    /// Every device of the scenario.
    pub(super) fn all(scenario: &'a Scenario) -> Vec<Self> {
        let models = scenario.model.iter().enumerate();
        let specs = models.flat_map(|(index, model)| {
            let specs = model.device.iter();
            specs.flat_map(move |spec| {
                (0..spec.count).map(move |number| (index, model, spec, number))
            })
        });
        let mut devices: Vec<Self> = Vec::new();
        for (model, words, spec, number) in specs {
            let before = devices
                .iter()
                .filter(|device| device.model == model)
                .count();
            devices.push(Self {
                name: format!("{}#{before}", words.name),
                model,
                spec,
                buckets: spec.buckets(),
                number,
                // Streams of the devices; those of the sources begin at 2^32.
                random: Random::new(scenario.seed, 1 + devices.len() as u64),
                key: None,
                hangs: false,
                flights: VecDeque::new(),
                started: None,
                run: 0,
            });
        }
        devices
    }

    /// It is up as `key`.
    pub(super) fn come_up(&mut self, key: InstanceKey, scenario: &Scenario) -> Placement {
        self.key = Some(key);
        self.hangs = false;
        Placement {
            model: ModelKey(self.model as u32),
            buckets: self.buckets.clone(),
            max_queue_delay: self.spec.max_queue_delay.0,
            pipelined: self.spec.pipelined,
            watchdog: scenario.watchdog.0,
        }
    }

    /// It is gone, with what it had in hand.
    pub(super) fn go(&mut self) -> Vec<usize> {
        self.key = None;
        self.started = None;
        self.run += 1;
        let flights = self.flights.drain(..);
        flights.flat_map(|flight| flight.requests).collect()
    }

    pub(super) fn take(&mut self, flight: Flight) {
        self.flights.push_back(flight);
    }

    /// Begins the next run if it can: its number, and how many seconds it takes.
    pub(super) fn begin(&mut self, now: Nanoseconds) -> Option<(u64, f64)> {
        if self.started.is_some() {
            return None;
        }
        let bucket = self.flights.front()?.bucket;
        self.started = Some(now);
        self.run += 1;
        let table = self.buckets.iter().find(|other| other.size >= bucket);
        let usual = table
            .or(self.buckets.last())
            .map_or(0.0, |bucket| bucket.cost.as_secs_f64());
        let jitter = self.random.jitter(self.spec.jitter);
        let takes = usual * jitter * self.slowness(now);
        Some((self.run, takes.min(LONGEST.as_secs_f64())))
    }

    /// The requests of the run that goes on.
    pub(super) fn running(&self) -> &[usize] {
        self.flights.front().map_or(&[], |flight| &flight.requests)
    }

    /// The run `number` ends; `None` when it was given up, or never ends.
    pub(super) fn end(&mut self, number: u64) -> Option<Ran> {
        if self.run != number || self.hangs {
            return None;
        }
        let started = self.started.take()?;
        let flight = self.flights.pop_front()?;
        Some(Ran { flight, started })
    }

    fn slowness(&self, now: Nanoseconds) -> f64 {
        let now = seconds(now);
        let faults = self
            .spec
            .fault
            .iter()
            .filter(|fault| fault.device == self.number);
        faults
            .filter_map(|fault| {
                let (from, to) = (fault.from?.0.as_secs_f64(), fault.to?.0.as_secs_f64());
                fault.slow.filter(|_| from <= now && now < to)
            })
            .product()
    }

    /// When it hangs, goes and comes back.
    pub(super) fn faults(&self) -> impl Iterator<Item = (Nanoseconds, Change)> + '_ {
        let faults = self
            .spec
            .fault
            .iter()
            .filter(|fault| fault.device == self.number);
        faults.flat_map(|fault| {
            let times = [
                (fault.hang, Change::Hangs),
                (fault.down, Change::Goes),
                (fault.up, Change::ComesBack),
            ];
            times
                .into_iter()
                .filter_map(|(at, change)| Some((at?.0.as_nanos() as Nanoseconds, change)))
        })
    }
}

/// What goes wrong, and right again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Hangs,
    Goes,
    ComesBack,
}
