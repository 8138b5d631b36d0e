//! How long the line is in time: the wait of the request that left it last.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The wait of the request that was last taken from the line. It is what a refused caller is told to wait:
/// measured, and at most as old as one picture takes.
#[derive(Debug, Clone, Default)]
pub(super) struct WaitGauge {
    micros: Arc<AtomicU64>,
}

// === impl WaitGauge ===

impl WaitGauge {
    pub(super) fn record(&self, waited: Duration) {
        let micros = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        self.micros.store(micros, Ordering::Relaxed);
    }

    pub(super) fn last(&self) -> Duration {
        Duration::from_micros(self.micros.load(Ordering::Relaxed))
    }
}
