//! How long an answer takes once its picture has run: postprocessing, and the way back to the door.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::scheduling::Estimate;

/// What answers take behind the devices, learned. A picture has to have run by so much before its deadline.
#[derive(Debug, Clone)]
pub(super) struct AnswerGauge {
    seconds: Arc<Mutex<Estimate>>,
}

// === impl AnswerGauge ===

impl AnswerGauge {
    pub(super) fn new() -> Self {
        Self {
            seconds: Arc::new(Mutex::new(Estimate::UNKNOWN)),
        }
    }

    pub(super) fn record(&self, took: Duration) {
        let mut seconds = self.seconds.lock().unwrap_or_else(PoisonError::into_inner);
        seconds.observe(took.as_secs_f64());
    }

    /// What it takes at most, but for one time in a hundred; nothing while that is not known.
    pub(super) fn at_most(&self) -> Duration {
        let seconds = self.seconds.lock().unwrap_or_else(PoisonError::into_inner);
        match seconds.is_known() {
            true => Duration::try_from_secs_f64(seconds.upper()).unwrap_or_default(),
            false => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_taken_off_a_deadline_on_a_guess() {
        let gauge = AnswerGauge::new();
        gauge.record(Duration::from_millis(3));
        assert_eq!(gauge.at_most(), Duration::ZERO);
        (0..50).for_each(|_| gauge.record(Duration::from_millis(3)));
        let expected = Duration::from_millis(3)..Duration::from_millis(4);
        assert!(expected.contains(&gauge.at_most()), "{:?}", gauge.at_most());
    }
}
