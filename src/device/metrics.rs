//! What this room counts.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// An instance's labels. Both come from the configuration, so the series are as many as the instances.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct InstanceLabels {
    /// The model's name.
    pub model: String,
    /// The device, like `cpu:0`.
    pub device: String,
}

/// What this room counts. `Default` gives unregistered ones, for tests.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    /// Runs of a network.
    pub executions: Family<InstanceLabels, Counter>,
    /// Pictures in those runs, padding not counted.
    pub pictures: Family<InstanceLabels, Counter>,
    /// Runs that failed, those that found the culprit in a failed batch included.
    pub failures: Family<InstanceLabels, Counter>,
    /// Threads of instances that were given up while they hung, and have not ended.
    pub left_behind: Family<InstanceLabels, Gauge>,
}

impl Metrics {
    /// Names and registers them.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "executions",
            "Runs of a network",
            metrics.executions.clone(),
        );
        registry.register(
            "pictures",
            "Pictures that ran, padding not counted",
            metrics.pictures.clone(),
        );
        registry.register(
            "execution_failures",
            "Runs of a network that failed",
            metrics.failures.clone(),
        );
        registry.register(
            "instances_left_behind",
            "Threads of instances that were given up while they hung, and have not ended",
            metrics.left_behind.clone(),
        );
        metrics
    }
}
