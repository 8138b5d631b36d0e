//! What this room counts.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::device::InstanceLabels;
use crate::scheduling::Outcome;

/// Why a request was let go without an answer of its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct LetGo {
    /// Why.
    pub(super) reason: LetGoReason,
}

/// See [`Outcome`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(super) enum LetGoReason {
    Expired,
    Abandoned,
    NoInstance,
    Infeasible,
    Lost,
}

/// What became of a stream's frame.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct FrameLabels {
    /// What.
    pub(super) outcome: FrameLabel,
}

/// See [`super::stream::FrameOutcome`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(super) enum FrameLabel {
    Answered,
    Failed,
    Superseded,
    TooOld,
    Overloaded,
}

/// What this room counts. `Default` gives unregistered ones, for tests.
#[derive(Debug, Clone, Default)]
pub(super) struct Metrics {
    /// Requests admitted.
    pub(super) admitted: Counter,
    /// Requests refused because the line was full.
    pub(super) refused: Counter,
    /// Admitted requests that were let go before they ran.
    pub(super) let_go: Family<LetGo, Counter>,
    /// Pictures whose decoding was begun.
    pub(super) prepared: Counter,
    /// Streams that are open.
    pub(super) streams: Gauge,
    /// Frames that streams have taken in.
    pub(super) frames_accepted: Counter,
    /// What became of them.
    pub(super) frames: Family<FrameLabels, Counter>,
    /// Candidates of a network that were no boxes.
    pub(super) dropped_candidates: Counter,
    /// Panics of a stage, each contained in its request.
    pub(super) panics: Counter,
    /// Instances in service.
    pub(super) instances: Family<InstanceLabels, Gauge>,
    /// Instances that hung or broke down.
    pub(super) instances_lost: Family<InstanceLabels, Counter>,
}

// === impl Metrics ===

impl Metrics {
    /// Names and registers them.
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "requests_admitted",
            "Requests handed to the scheduler, those it refuses on arrival included",
            metrics.admitted.clone(),
        );
        registry.register(
            "requests_refused",
            "Requests refused for want of room, for them or for their reply",
            metrics.refused.clone(),
        );
        registry.register(
            "requests_let_go",
            "Requests let go before they ran, those refused because they would be late included",
            metrics.let_go.clone(),
        );
        registry.register(
            "pictures_prepared",
            "Pictures whose decoding was begun",
            metrics.prepared.clone(),
        );
        registry.register("streams", "Streams that are open", metrics.streams.clone());
        registry.register(
            "frames_accepted",
            "Frames that streams have taken in",
            metrics.frames_accepted.clone(),
        );
        registry.register(
            "frames",
            "Frames of streams by what became of them",
            metrics.frames.clone(),
        );
        registry.register(
            "dropped_candidates",
            "Candidates of a network that were no boxes: not finite, without an area, of no class",
            metrics.dropped_candidates.clone(),
        );
        registry.register(
            "panics",
            "Panics of a stage, each contained in its request",
            metrics.panics.clone(),
        );
        registry.register(
            "instances",
            "Instances in service",
            metrics.instances.clone(),
        );
        registry.register(
            "instances_lost",
            "Instances that hung or broke down",
            metrics.instances_lost.clone(),
        );
        metrics
    }

    pub(super) fn frame(&self, outcome: FrameLabel) {
        self.frames.get_or_create(&FrameLabels { outcome }).inc();
    }

    pub(super) fn let_go(&self, outcome: Outcome) {
        let reason = match outcome {
            Outcome::Expired => LetGoReason::Expired,
            Outcome::Abandoned => LetGoReason::Abandoned,
            Outcome::NoInstance => LetGoReason::NoInstance,
            Outcome::Infeasible { .. } => LetGoReason::Infeasible,
            Outcome::Lost => LetGoReason::Lost,
        };
        self.let_go.get_or_create(&LetGo { reason }).inc();
    }
}
