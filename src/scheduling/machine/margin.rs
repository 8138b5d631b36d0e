//! [`Margin`]: how many more than those who wait are taken to go before a request that comes to the door.
//!
//! What is let in is to be answered in time but for one in two hundred. No forecast says how often it is wrong; this
//! does not ask why it is, it counts: one that was let in and came too late makes the margin wider by as much as
//! a hundred and ninety-nine that were in time make it narrower. It belongs to a model and a priority, not to a source: the one whose
//! margin is narrower would take the place of those whose margin is wider, and make it wider still. It stretches the
//! line and nothing else, so a source whose turn comes soon pays nothing for one that has piled up work.

use std::time::Instant;

/// Of those let in, how many may be late.
const LATE: f64 = 0.005;

/// What one that was late adds: a tenth of the line.
const STEP: f64 = 0.1;

/// The widest there is. A line that moves nine times slower than it should is not one to forecast.
const WIDEST: f64 = 8.0;

/// After how many seconds a margin that nothing moves is down to a third: where it is so wide that nobody is let in,
/// nobody would ever make it narrower.
const FORGET: f64 = 30.0;

/// A part of the line.
#[derive(Debug, Clone, Copy)]
pub(super) struct Margin {
    part: f64,
    at: Instant,
}

// === impl Margin ===

impl Margin {
    pub(super) fn new(now: Instant) -> Self {
        Self { part: 0.0, at: now }
    }

    /// By how much the line is stretched: 1 when not at all.
    pub(super) fn stretch(&self, now: Instant) -> f64 {
        1.0 + self.part_at(now)
    }

    /// A request was answered, or came too late.
    pub(super) fn observe(&mut self, in_time: bool, now: Instant) {
        let more = match in_time {
            true => -LATE * STEP,
            false => (1.0 - LATE) * STEP,
        };
        self.part = (self.part_at(now) + more).clamp(0.0, WIDEST);
        self.at = now;
    }

    fn part_at(&self, now: Instant) -> f64 {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.part * (-passed / FORGET).exp()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn it_settles_where_few_are_late() {
        let start = Instant::now();
        let mut margin = Margin::new(start);
        let (mut late, mut state) = (0, 1u64);
        for step in 0..20_000u64 {
            let now = start + Duration::from_millis(step);
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            // Up to as many again go before it.
            let more = (state >> 33) as f64 / (1u64 << 31) as f64;
            let in_time = 1.0 + more <= margin.stretch(now);
            late += u32::from(!in_time && step > 10_000);
            margin.observe(in_time, now);
        }
        assert!((20..150).contains(&late), "{late} of 10000");
    }

    #[test]
    fn it_is_forgotten_where_nobody_is_let_in() {
        let start = Instant::now();
        let mut margin = Margin::new(start);
        (0..400).for_each(|_| margin.observe(false, start));
        assert_eq!(margin.stretch(start), 1.0 + WIDEST);
        assert!(margin.stretch(start + Duration::from_secs(300)) < 1.01);
    }
}
