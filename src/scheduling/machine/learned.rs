//! [`Learned`]: what preparing takes, and how long ago that was last seen.

use std::time::{Duration, Instant};

use crate::scheduling::estimate::Estimate;

/// What was not seen for so long refuses nobody any more: who is refused is not seen, and what was slow once would be
/// taken to be slow for ever.
pub(super) const FRESH: Duration = Duration::from_secs(1);

/// What something takes, in seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Learned {
    estimate: Estimate,
    seen: Option<Instant>,
}

// === impl Learned ===

impl Learned {
    pub(super) const NOTHING: Learned = Learned {
        estimate: Estimate::UNKNOWN,
        seen: None,
    };

    pub(super) fn observe(&mut self, took: f64, now: Instant) {
        self.estimate.observe(took);
        self.seen = Some(now);
    }

    /// What it usually takes, if that is more than a guess.
    pub(super) fn mean(&self) -> Option<f64> {
        self.estimate.is_known().then(|| self.estimate.mean())
    }

    /// What it takes at least, but for one time in a hundred, if that is known and was seen lately.
    pub(super) fn at_least(&self, now: Instant) -> Option<f64> {
        let fresh = |seen| now.saturating_duration_since(seen) < FRESH;
        let known = self.estimate.is_known() && self.seen.is_some_and(fresh);
        known.then(|| self.estimate.lower().max(0.0))
    }
}
