//! What each source asks of a model, and what part of the model's devices it can count on.
//!
//! A forecast that assumes that nobody else comes is too good where others come all the time: under fair shares they go
//! before what a source has piled up. What a source is sure of is its max-min fair part: those who ask for less
//! than an even part get what they ask for, and the others share the rest alike.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use lru::LruCache;

use super::MAX_SOURCES;
use crate::scheduling::event::{ModelKey, SourceKey};

/// Over how long demand is averaged: long enough to see what comes twenty times a second, short enough to follow.
const MEMORY: f64 = 1.0;

/// How long a computed level is good for.
const REFRESH: Duration = Duration::from_millis(10);

/// What is asked for, by those who asked last.
#[derive(Debug)]
pub(super) struct Demands {
    of: LruCache<(ModelKey, SourceKey), Demand>,
    levels: HashMap<ModelKey, Level>,
}

/// Seconds of the model's devices, all taken as one, that are asked for a second.
#[derive(Debug, Clone, Copy)]
struct Demand {
    rate: f64,
    at: Instant,
}

#[derive(Debug, Clone, Copy)]
struct Level {
    all: f64,
    /// What each of those who ask for more gets.
    level: f64,
    at: Instant,
}

// === impl Demands ===

impl Demands {
    pub(super) fn new() -> Self {
        Self {
            of: LruCache::new(MAX_SOURCES),
            levels: HashMap::new(),
        }
    }

    /// A request came that costs so many seconds, whether it is let in or not. What turns out to be no demand after all is
    /// taken back by its negative.
    pub(super) fn offered(&mut self, model: ModelKey, source: SourceKey, cost: f64, now: Instant) {
        let none = || Demand { rate: 0.0, at: now };
        let demand = self.of.get_or_insert_mut((model, source), none);
        demand.rate = (demand.at_now(now) + cost / MEMORY).max(0.0);
        demand.at = now;
        let stale = |level: &Level| now.saturating_duration_since(level.at) >= REFRESH;
        if self.levels.get(&model).is_none_or(stale) {
            let level = self.level(model, now);
            self.levels.insert(model, level);
        }
    }

    /// The part of the model's devices that a source can count on while it has something waiting. Above 0.
    pub(super) fn part(&self, model: ModelKey, source: SourceKey, now: Instant) -> f64 {
        let Some(level) = self.levels.get(&model) else {
            return 1.0;
        };
        let own = self.of.peek(&(model, source));
        let own = own.map_or(0.0, |demand| demand.at_now(now));
        let left = 1.0 - (level.all - own).max(0.0);
        left.max(level.level).clamp(1e-3, 1.0)
    }

    /// The part that none of them ask for.
    pub(super) fn left(&self, model: ModelKey, now: Instant) -> f64 {
        let level = self.levels.get(&model);
        // Nobody may have asked for anything since.
        let all = level.map_or(0.0, |level| decayed(level.all, level.at, now));
        (1.0 - all).max(0.0)
    }

    fn level(&self, model: ModelKey, now: Instant) -> Level {
        let of_model = self.of.iter().filter(|((of, _), _)| *of == model);
        let mut rates: Vec<f64> = of_model.map(|(_, demand)| demand.at_now(now)).collect();
        rates.sort_by(f64::total_cmp);
        let all = rates.iter().sum();
        let (mut left, mut sharers) = (1.0, rates.len());
        for rate in rates {
            if rate * sharers as f64 > left {
                break;
            }
            left -= rate;
            sharers -= 1;
        }
        Level {
            all,
            level: left / sharers.max(1) as f64,
            at: now,
        }
    }
}

// === impl Demand ===

impl Demand {
    fn at_now(&self, now: Instant) -> f64 {
        decayed(self.rate, self.at, now)
    }
}

/// What is left of a rate of which nothing more has come.
fn decayed(rate: f64, at: Instant, now: Instant) -> f64 {
    let passed = now.saturating_duration_since(at).as_secs_f64();
    rate * (-passed / MEMORY).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_modest_get_what_they_ask_for_and_the_others_share_the_rest() {
        let (mut demands, model) = (Demands::new(), ModelKey(0));
        let start = Instant::now();
        // Sources 0 to 3 ask for a tenth each, 4 and 5 for all there is.
        for step in 0..10_000u64 {
            let now = start + Duration::from_millis(step);
            for source in 0..6 {
                let rate = if source < 4 { 0.1 } else { 1.0 };
                demands.offered(model, SourceKey(source), rate / 1_000.0, now);
            }
        }
        let now = start + Duration::from_secs(10);
        for greedy in [4, 5] {
            let part = demands.part(model, SourceKey(greedy), now);
            assert!((0.29..0.31).contains(&part), "{part}");
        }
        assert!(demands.part(model, SourceKey(0), now) >= 0.29);
        assert_eq!(demands.part(ModelKey(1), SourceKey(0), now), 1.0);
    }

    #[test]
    fn what_nobody_asks_for_is_left_and_comes_back() {
        let (mut demands, model) = (Demands::new(), ModelKey(0));
        let start = Instant::now();
        assert_eq!(demands.left(model, start), 1.0);
        for step in 0..10_000u64 {
            let now = start + Duration::from_millis(step);
            demands.offered(model, SourceKey(step % 7), 0.7 / 1_000.0, now);
        }
        let now = start + Duration::from_secs(10);
        assert!((0.29..0.31).contains(&demands.left(model, now)));
        assert!(demands.left(model, now + Duration::from_secs(5)) > 0.99);
    }

    #[test]
    fn more_sources_than_are_remembered_leave_the_last_ones_known() {
        let (mut demands, model) = (Demands::new(), ModelKey(0));
        let now = Instant::now();
        for source in 0..10_000 {
            demands.offered(model, SourceKey(source), 1.0, now);
        }
        assert_eq!(demands.of.len(), MAX_SOURCES.get());
        assert!(demands.of.contains(&(model, SourceKey(9_999))));
    }

    #[test]
    fn a_source_alone_counts_on_everything() {
        let (mut demands, model) = (Demands::new(), ModelKey(0));
        let now = Instant::now();
        demands.offered(model, SourceKey(0), 5.0, now);
        assert_eq!(demands.part(model, SourceKey(0), now), 1.0);
    }
}
