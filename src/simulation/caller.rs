//! [`Caller`]: when a source sends.

use super::agenda::{Nanoseconds, nanoseconds, seconds};
use super::random::Random;
use super::scenario::{Arrivals, Scenario, Source};

/// One source of a scenario.
#[derive(Debug)]
pub(super) struct Caller<'a> {
    /// Its words in the scenario, and their number.
    pub(super) source: &'a Source,
    pub(super) group: usize,
    pub(super) model: usize,
    load: f64,
    start: f64,
    stop: f64,
    random: Random,
    /// What it has sent.
    sent: u64,
    /// Seconds from its start to what it sends next; without the pauses of a burst.
    at: f64,
    /// Where in an interval it began, between 0 and 1.
    phase: f64,
}

// === impl Caller ===

impl<'a> Caller<'a> {
    /// Every source of the scenario, each with numbers of its own.
    pub(super) fn all(scenario: &'a Scenario) -> Vec<Self> {
        let groups = scenario.source.iter().enumerate();
        let members = groups.flat_map(|(group, source)| {
            (0..source.count).map(move |member| (group, source, member))
        });
        members
            .map(|(group, source, member)| {
                let stream = ((group as u64 + 1) << 32) + member as u64;
                let mut random = Random::new(scenario.seed, stream);
                let stop = source.stop.map_or(scenario.duration.0, |stop| stop.0);
                Self {
                    source,
                    group,
                    model: scenario.model_index(source.model.as_deref()).unwrap_or(0),
                    load: scenario.load,
                    start: source.start.0.as_secs_f64(),
                    stop: stop.min(scenario.duration.0).as_secs_f64(),
                    phase: random.uniform(),
                    random,
                    sent: 0,
                    at: 0.0,
                }
            })
            .collect()
    }

    /// Callers that wait for their answers; `None` when it sends at its own pace.
    pub(super) fn waiting_callers(&self) -> Option<usize> {
        match self.source.arrivals {
            Arrivals::Closed { callers, .. } => {
                Some(((callers as f64 * self.load).round() as usize).max(1))
            }
            _ => None,
        }
    }

    /// When it sends next, if it sends at its own pace and not past its end.
    pub(super) fn next(&mut self) -> Option<Nanoseconds> {
        let number = self.sent;
        self.sent += 1;
        let after_start = match &self.source.arrivals {
            Arrivals::Poisson { rate } => {
                self.at += self.random.exponential() / (rate * self.load);
                self.at
            }
            Arrivals::Burst { rate, on, off } => {
                self.at += self.random.exponential() / (rate * self.load);
                let (on, off) = (on.0.as_secs_f64(), off.0.as_secs_f64());
                self.at + (self.at / on).floor() * off
            }
            Arrivals::Constant { rate, jitter } => {
                let off = jitter * (self.random.uniform() - 0.5);
                let intervals = number as f64 + self.phase + off;
                intervals.max(0.0) / (rate * self.load)
            }
            Arrivals::Trace { times, .. } => times.get(number as usize)?.as_secs_f64() / self.load,
            Arrivals::Closed { .. } => return None,
        };
        self.in_time(self.start + after_start)
    }

    /// When a caller sends that has its answer at `now`, or begins.
    pub(super) fn again(&mut self, now: Nanoseconds) -> Option<Nanoseconds> {
        let Arrivals::Closed { think, .. } = &self.source.arrivals else {
            return None;
        };
        let think = think.draw(&mut self.random);
        self.in_time(seconds(now).max(self.start) + think)
    }

    fn in_time(&self, at: f64) -> Option<Nanoseconds> {
        (at < self.stop).then(|| nanoseconds(at))
    }
}
