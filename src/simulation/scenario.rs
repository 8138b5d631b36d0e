//! [`Scenario`]: what is simulated, in the words of its file. `docs/SIMULATION.md` lists every field.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

pub use super::distribution::{Distribution, Kind, Span};
use crate::scheduling::{BatchBucket, Priority};

/// What is simulated.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Where all chance comes from.
    #[serde(default)]
    pub seed: u64,
    /// How long callers send.
    pub duration: Span,
    /// The beginning that is left out of the statistics.
    #[serde(default = "nothing")]
    pub warm_up: Span,
    /// CPU workers that prepare.
    pub workers: usize,
    /// Cores that everything on the CPU shares; as many as workers when unset.
    #[serde(default)]
    pub cores: Option<f64>,
    /// How long a request without a deadline may have to wait.
    #[serde(default = "ten_seconds")]
    pub max_wait: Span,
    /// When an instance hangs at the earliest.
    #[serde(default = "ten_seconds")]
    pub watchdog: Span,
    /// All that is sent is multiplied by it.
    #[serde(default = "one")]
    pub load: f64,
    /// The door's bounds.
    #[serde(default)]
    pub admission: Admission,
    /// The models.
    pub model: Vec<Model>,
    /// Who sends.
    pub source: Vec<Source>,
    /// Rows of a sweep: for each path its values, one a row.
    #[serde(default)]
    pub sweep: BTreeMap<String, Vec<toml::Value>>,
    /// The target of a plan.
    #[serde(default)]
    pub plan: Option<Target>,
}

/// The door's bounds.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Admission {
    /// Requests that are not prepared yet; as many as a server can be told to take when unset.
    #[serde(default)]
    pub max_requests: Option<usize>,
    /// Likewise, of one source; none when unset.
    #[serde(default)]
    pub max_requests_per_source: Option<usize>,
}

/// A model and where it runs.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Its name.
    pub name: String,
    /// Core time to prepare a picture.
    pub prepare: Distribution,
    /// Core time to finish one.
    #[serde(default = "no_time")]
    pub postprocess: Distribution,
    /// Core time to receive a request.
    #[serde(default = "no_time")]
    pub transport: Distribution,
    /// Its devices.
    pub device: Vec<Devices>,
}

/// Some devices alike.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Devices {
    /// How many.
    #[serde(default = "one_of_it")]
    pub count: usize,
    /// The time of a run, by batch size: these sizes are the buckets.
    pub latency: BTreeMap<String, Span>,
    /// Relative spread of that.
    #[serde(default)]
    pub jitter: f64,
    /// A next batch is put together while one runs.
    #[serde(default)]
    pub pipelined: bool,
    /// How long a partial batch waits for company.
    #[serde(default = "nothing")]
    pub max_queue_delay: Span,
    /// A run takes a core from the pool's.
    #[serde(default)]
    pub shares_cores: bool,
    /// What goes wrong.
    #[serde(default)]
    pub fault: Vec<Fault>,
}

/// What goes wrong with one device: it is slow for a while, or it hangs, or goes, and perhaps comes back.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Which of them, from 0.
    #[serde(default)]
    pub device: usize,
    /// Runs take this many times longer, `from` .. `to`.
    #[serde(default)]
    pub slow: Option<f64>,
    /// When that begins.
    #[serde(default)]
    pub from: Option<Span>,
    /// When that ends.
    #[serde(default)]
    pub to: Option<Span>,
    /// From then on no run ends.
    #[serde(default)]
    pub hang: Option<Span>,
    /// Then it is gone.
    #[serde(default)]
    pub down: Option<Span>,
    /// Then it is back, as a new instance.
    #[serde(default)]
    pub up: Option<Span>,
}

/// Some sources alike.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Their name.
    pub name: String,
    /// Whom they ask; may be left out where there is one model.
    #[serde(default)]
    pub model: Option<String>,
    /// How many, each with a share of its own.
    #[serde(default = "one_of_it")]
    pub count: usize,
    /// Streams of each, which its requests are dealt to in turn.
    #[serde(default = "one_of_it")]
    pub streams: usize,
    /// How urgent.
    #[serde(default)]
    pub priority: Urgency,
    /// How long they wait for an answer; for ever when unset.
    #[serde(default)]
    pub deadline: Option<Span>,
    /// When each of them sends.
    pub arrivals: Arrivals,
    /// Core time to prepare their pictures, where it is not the model's.
    #[serde(default)]
    pub prepare: Option<Distribution>,
    /// Inputs that are made of each of their pictures: the look at all of it, and its tiles.
    #[serde(default = "one_of_it")]
    pub tiles: usize,
    /// Core time to make an input of a tile, where it is not that to prepare the picture.
    #[serde(default)]
    pub prepare_tile: Option<Distribution>,
    /// When they begin.
    #[serde(default = "nothing")]
    pub start: Span,
    /// When they end; with the scenario when unset.
    #[serde(default)]
    pub stop: Option<Span>,
}

/// How urgent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Urgency {
    /// Somebody waits.
    #[default]
    Interactive,
    /// It fills what is left.
    Batch,
}

/// When a source sends. Rates are requests a second of one source.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Arrivals {
    /// At random.
    Poisson {
        /// Requests a second.
        rate: f64,
    },
    /// At random while on, not at all while off.
    Burst {
        /// Requests a second while on.
        rate: f64,
        /// How long on.
        on: Span,
        /// How long off.
        off: Span,
    },
    /// Evenly, as a camera does.
    Constant {
        /// Requests a second.
        rate: f64,
        /// Each is off by up to half of this part of the interval, to either side.
        #[serde(default)]
        jitter: f64,
    },
    /// Each caller sends the next when it has its answer.
    Closed {
        /// How many.
        callers: usize,
        /// What it does in between.
        #[serde(default = "no_time")]
        think: Distribution,
    },
    /// At the times in a file.
    Trace {
        /// Beside the scenario: a time in seconds a line, rising; `#` begins a remark.
        file: String,
        /// Its content, read with the scenario.
        #[serde(skip)]
        times: Vec<Duration>,
    },
}

/// What a plan is to reach.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// The 99th percentile of latency.
    pub p99: Span,
    /// The part of what is offered that may be refused, lost or late.
    #[serde(default)]
    pub max_refused: f64,
    /// Whose devices are counted; may be left out where there is one model.
    #[serde(default)]
    pub model: Option<String>,
    /// From how many devices to how many.
    pub devices: [usize; 2],
    /// From how many workers, each with a core, to how many.
    pub workers: [usize; 2],
}

fn nothing() -> Span {
    Span(Duration::ZERO)
}

fn ten_seconds() -> Span {
    Span(Duration::from_secs(10))
}

fn no_time() -> Distribution {
    Distribution::NOTHING
}

fn one() -> f64 {
    1.0
}

fn one_of_it() -> usize {
    1
}

// === impl Scenario ===

impl Scenario {
    /// Cores that everything on the CPU shares.
    pub fn cores(&self) -> f64 {
        self.cores.unwrap_or(self.workers as f64)
    }

    /// Which model a name means; the only one when there is no name.
    pub(super) fn model_index(&self, name: Option<&str>) -> Option<usize> {
        match name {
            Some(name) => self.model.iter().position(|model| model.name == name),
            None => (self.model.len() == 1).then_some(0),
        }
    }

    /// Pictures a second that the devices of a model run in full batches one after another, with nothing in the way.
    pub fn offline(&self, model: &Model) -> f64 {
        let each = |devices: &Devices| {
            let rate = |bucket: &BatchBucket| bucket.size as f64 / bucket.cost.as_secs_f64();
            let best = devices.buckets().iter().map(rate).fold(0.0, f64::max);
            best * devices.count as f64
        };
        let devices: f64 = model.device.iter().map(each).sum();
        let mut cpu = model.prepare.mean() + model.postprocess.mean() + model.transport.mean();
        if model.device.iter().all(|devices| devices.shares_cores) && devices > 0.0 {
            let count: usize = model.device.iter().map(|devices| devices.count).sum();
            cpu += count as f64 / devices;
        }
        match cpu > 0.0 {
            true => devices.min(self.cores() / cpu),
            false => devices,
        }
    }
}

// === impl Devices ===

impl Devices {
    /// The buckets, smallest first.
    pub(super) fn buckets(&self) -> Vec<BatchBucket> {
        let read = |(size, time): (&String, &Span)| {
            Some(BatchBucket {
                size: size.parse().ok()?,
                cost: time.0,
            })
        };
        let mut buckets: Vec<BatchBucket> = self.latency.iter().filter_map(read).collect();
        buckets.sort_by_key(|bucket| bucket.size);
        buckets
    }
}

// === impl Urgency ===

impl From<Urgency> for Priority {
    fn from(urgency: Urgency) -> Self {
        match urgency {
            Urgency::Interactive => Priority::Interactive,
            Urgency::Batch => Priority::Batch,
        }
    }
}
