//! What this room measures.

use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Seconds: a refusal should take less than one of a runtime's turns, and must not take as long as an answer.
const REFUSAL_BUCKETS: [f64; 11] = [
    0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1,
];

/// What this room measures.
#[derive(Debug, Clone)]
pub struct Metrics {
    /// From a call's headers to its refusal, for those that are refused for want of room or time.
    pub(super) refusals: Histogram,
}

// === impl Metrics ===

impl Metrics {
    /// Names and registers them.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            refusals: Histogram::new(REFUSAL_BUCKETS),
        };
        registry.register_with_unit(
            "refusal",
            "From a call's headers to its refusal for want of room or time",
            Unit::Seconds,
            metrics.refusals.clone(),
        );
        metrics
    }
}
