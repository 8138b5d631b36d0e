//! [`Report`]: what came out of a run. Its JSON is what `--json` writes: units are in the names.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;

/// What came out of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The scenario's.
    pub seed: u64,
    /// The scenario's, in seconds.
    pub duration_s: f64,
    /// The scenario's, in seconds.
    pub warm_up_s: f64,
    /// The scenario's.
    pub workers: usize,
    /// The scenario's.
    pub cores: f64,
    /// What each model's devices and cores could do at best.
    pub offline: Vec<Offline>,
    /// Of all sources.
    #[serde(flatten)]
    pub tally: Tally,
    /// From sending to the answer.
    pub latency: Percentiles,
    /// Where that time went.
    pub breakdown: Breakdown,
    /// The longest that a request that was answered stood in the line, in milliseconds.
    pub longest_wait_ms: f64,
    /// What ran together.
    pub batches: Batches,
    /// Each device.
    pub devices: Vec<DeviceUse>,
    /// Part of the time that workers were busy.
    pub workers_utilisation: f64,
    /// Part of the time that cores were busy.
    pub cores_utilisation: f64,
    /// How alike sources fared.
    pub fairness: Fairness,
    /// Each `[[source]]`.
    pub sources: Vec<SourceReport>,
    /// What is odd about these numbers, such as a source that never sent.
    pub remarks: Vec<String>,
    /// Events of the simulation.
    pub events: u64,
    /// Events that the scheduler was told.
    pub told: u64,
    /// How it went over time.
    pub course: Vec<Moment>,
}

/// What a model could do at best: full batches one after another, or what the cores prepare if that is less.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Offline {
    /// Which model.
    pub model: String,
    /// Pictures a second.
    pub per_second: f64,
}

/// How requests fared.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Tally {
    /// Sent.
    pub offered: u64,
    /// Let in.
    pub admitted: u64,
    /// Not let in.
    pub refused: Refused,
    /// Let in, and not answered before their deadline.
    pub expired: u64,
    /// Let in, and lost with the last instance, or with two in turn.
    pub lost: u64,
    /// Answered.
    pub answered: u64,
    /// Answered before their deadline, or without one.
    pub in_time: u64,
    /// Sent a second.
    pub offered_per_s: f64,
    /// Answered a second.
    pub throughput_per_s: f64,
    /// Answered in time a second.
    pub goodput_per_s: f64,
}

/// Why requests were not let in.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Refused {
    /// There was no room.
    pub overloaded: u64,
    /// They could not have been answered in time.
    pub infeasible: u64,
    /// No instance of the model was left.
    pub no_instance: u64,
}

/// Milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Percentiles {
    /// On average.
    pub mean_ms: f64,
    /// Half are shorter.
    pub p50_ms: f64,
    /// Nine of ten are.
    pub p90_ms: f64,
    /// 95 of 100 are.
    pub p95_ms: f64,
    /// 99 of 100 are.
    pub p99_ms: f64,
    /// 999 of 1000 are.
    pub p999_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

/// Where the time of an answer went.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Breakdown {
    /// Being received.
    pub transport: Percentiles,
    /// In the line.
    pub line: Percentiles,
    /// Being prepared.
    pub prepare: Percentiles,
    /// Ready, and put together.
    pub batch_wait: Percentiles,
    /// Running.
    pub run: Percentiles,
    /// Being finished.
    pub finish: Percentiles,
}

/// What ran together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Batches {
    /// How many.
    pub count: u64,
    /// Pictures in one.
    pub mean_size: f64,
    /// Part of the buckets' places that held a picture.
    pub filled: f64,
    /// How many of each size.
    pub sizes: BTreeMap<usize, u64>,
}

/// A device.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceUse {
    /// Its model and number.
    pub name: String,
    /// The model.
    pub model: String,
    /// Part of the time that it ran.
    pub utilisation: f64,
    /// Batches run.
    pub batches: u64,
    /// Pictures in them.
    pub pictures: u64,
    /// How often it was given up because it hung.
    pub ejected: u64,
}

/// Jain's index over all sources: 1 when all fare alike.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fairness {
    /// By answers.
    pub jain_answers: f64,
    /// By the seconds of workers and devices that they took.
    pub jain_cost: f64,
}

/// A `[[source]]`, all its members together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SourceReport {
    /// Its name.
    pub name: String,
    /// Its members.
    pub count: usize,
    /// How they fared.
    #[serde(flatten)]
    pub tally: Tally,
    /// From sending to the answer.
    pub latency: Percentiles,
    /// Jain's index over the members' answers.
    pub jain_answers: f64,
    /// Its part of all the seconds of workers and devices.
    pub cost_share: f64,
}

/// A two-hundredth of the run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Moment {
    /// When it began, in seconds.
    pub at_s: f64,
    /// Sent a second.
    pub offered_per_s: f64,
    /// Answered a second.
    pub answered_per_s: f64,
    /// Answered in time a second.
    pub in_time_per_s: f64,
    /// Requests in the line, on average.
    pub in_line: f64,
    /// Latency of the answers given in it, if there were any.
    pub p50_ms: Option<f64>,
    /// Likewise.
    pub p99_ms: Option<f64>,
}

// === impl Percentiles ===

impl Percentiles {
    /// Of microseconds.
    pub(super) fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
        Self {
            mean_ms: histogram.mean() / 1e3,
            p50_ms: at(0.5),
            p90_ms: at(0.9),
            p95_ms: at(0.95),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
            max_ms: histogram.max() as f64 / 1e3,
        }
    }
}

// === impl Tally ===

impl Tally {
    /// Part of the admitted that were answered in time; 1 when none was admitted.
    pub fn kept(&self) -> f64 {
        match self.admitted {
            0 => 1.0,
            admitted => self.in_time as f64 / admitted as f64,
        }
    }

    /// Part of the offered that were not answered in time.
    pub fn failed(&self) -> f64 {
        match self.offered {
            0 => 0.0,
            offered => 1.0 - self.in_time as f64 / offered as f64,
        }
    }
}

// === impl Refused ===

impl Refused {
    /// For whatever reason.
    pub fn total(&self) -> u64 {
        self.overloaded + self.infeasible + self.no_instance
    }
}
