//! The pipeline: what the server does with a picture, from admission to boxes.
//!
//! | file | job |
//! |---|---|
//! | [`detector`] | the use case, called by every door |
//! | [`request`], [`error`] | what goes in and comes out |
//! | [`stream`], [`claim`] | frames in their order, and which of them are replaced |
//! | [`admission`], [`caller`] | how many requests may wait, and whose |
//! | [`registry`], [`served`] | which models are served, and what a request needs of one |
//! | [`loader`], [`placement`] | how a model and its instances are loaded and warmed, on which devices |
//! | [`instances`], [`supervisor`] | the instances in service; the ones that are lost are replaced |
//! | [`memory`] | what all of it may hold, added up |
//! | [`readiness`] | the models' states, for health and lists |
//! | [`stages`] | preprocess and postprocess, carried out for the batching actor |
//! | [`mosaic`] | a picture that is looked at in pieces |
//! | [`cpu_pool`] | the threads that do so |
//! | [`timings`], [`wait_gauge`], [`answer_gauge`] | where the time went |
//!
//! It joins `scheduling`, `device`, `heads` and `vision` and is the only room that knows all of them. It
//! knows nothing of gRPC or HTTP.

pub mod admission;
mod answer_gauge;
pub mod caller;
mod claim;
pub mod cpu_pool;
pub mod detector;
pub mod error;
mod instances;
pub mod loader;
mod memory;
mod metrics;
mod mosaic;
mod placement;
pub mod readiness;
pub mod registry;
pub mod request;
mod served;
mod stages;
pub mod stream;
mod supervisor;
pub mod timings;
mod wait_gauge;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use prometheus_client::registry::Registry as MetricsRegistry;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use admission::AdmissionPermit;
pub use caller::{Caller, Source};
pub use detector::Detector;
pub use error::DetectError;
pub use loader::LoadError;
pub use readiness::{ModelState, ModelStatus, Readiness, ReadyModel, Unavailable};
pub use registry::RequiredModelFailed;
pub use request::{
    DetectOptions, DetectRequest, Detection, Detections, EffectiveOptions, Image, ModelRef,
    RawImage, TilingOptions,
};
pub use stream::{
    DropReason, FrameAnswer, FrameOutcome, FramePolicy, FrameRequest, FrameStream, StreamRequest,
    StreamTerms,
};
pub use timings::Timings;

use crate::device::{EngineSource, Picture};
use crate::model::{ModelEntry, ModelRepository};
use crate::scheduling::{self, Batcher, Worker};
use crate::vision::DecodeLimits;
use admission::Admission;
use cpu_pool::CpuPool;
use instances::Instances;
use loader::Loader;
use memory::MemorySum;
use metrics::Metrics;
use registry::Registry;
use stages::{Context, PipelineStages, Waiting};
use supervisor::{News, Supervisor};

/// The room's settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// How much may wait.
    pub admission: admission::Config,
    /// The threads that decode.
    pub cpu: cpu_pool::Config,
    /// What streams may hold.
    pub streams: stream::Config,
    /// What is refused from a picture's header.
    pub decode: DecodeLimits,
    /// What becomes of instances that fail.
    pub devices: DevicesConfig,
}

/// What becomes of instances that fail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DevicesConfig {
    /// An instance that is this long over a batch, and twenty times as long as such a batch takes, hangs, and is
    /// replaced.
    #[serde(with = "humantime_serde")]
    pub watchdog: Duration,
}

impl Default for DevicesConfig {
    fn default() -> Self {
        Self {
            // Longer than any single run of a detector, on any device that one would use.
            watchdog: Duration::from_secs(10),
        }
    }
}

// === impl Config ===

impl Config {
    /// What the scheduler goes by.
    fn policy(&self) -> scheduling::Policy {
        scheduling::Policy {
            workers: self.cpu.workers(),
            max_wait: self.admission.max_wait,
        }
    }
}

/// The pipeline, not yet running.
#[derive(Debug)]
pub struct Pipeline {
    detector: Detector,
    repository: ModelRepository,
    loader: Loader,
    news: mpsc::Receiver<News>,
    config: Config,
    worker: Worker<Waiting, Picture<Context>, PipelineStages>,
}

// === impl Pipeline ===

impl Pipeline {
    /// Puts the pipeline together. Starts the CPU pool's threads and nothing else. Its networks run on what `engines`
    /// gives. `stop` is when it takes no more requests, and replaces no instance any more.
    ///
    /// # Errors
    /// What the operating system says when it gives no thread.
    pub fn new(
        config: &Config,
        repository: ModelRepository,
        default_model: Option<String>,
        engines: Arc<dyn EngineSource>,
        stop: CancellationToken,
        metrics: &mut MetricsRegistry,
    ) -> std::io::Result<Self> {
        let pool = CpuPool::new(&config.cpu)?;
        let device_metrics = crate::device::Metrics::register(metrics);
        let metrics = Metrics::register(metrics);
        let scheduling = scheduling::Config {
            max_waiting: config.admission.max_requests,
            policy: config.policy(),
            max_instances: placement::MAX_INSTANCES,
        };
        let (completions, receiver) = scheduling::completions(&scheduling);
        let (instances, news) = Instances::new(completions.clone(), metrics.clone());
        let waits = wait_gauge::WaitGauge::default();
        let stages = PipelineStages {
            pool: pool.clone(),
            completions: completions.clone(),
            instances: instances.clone(),
            stranded: HashMap::new(),
            limits: config.decode,
            waits: waits.clone(),
            metrics: metrics.clone(),
        };
        let (batcher, worker) = Batcher::new(&scheduling, receiver, stages);
        let loader = Loader {
            engines,
            machine: placement::Machine::here(),
            niceness: config.cpu.niceness,
            watchdog: config.devices.watchdog,
            pool,
            instances,
            completions,
            metrics: metrics.clone(),
            device_metrics,
            next_key: AtomicU32::new(0),
        };
        let detector = Detector {
            batcher,
            admission: Admission::new(config.admission.clone()),
            replies: Admission::of_replies(memory::MAX_REPLY_BYTES),
            registry: Arc::new(Registry::new(&repository, default_model)),
            stop,
            waits,
            answers: answer_gauge::AnswerGauge::new(),
            streams: stream::Streams::new(config.streams.clone()),
            metrics,
        };
        Ok(Self {
            detector,
            repository,
            loader,
            news,
            config: config.clone(),
            worker,
        })
    }

    /// The use case, for the doors.
    pub fn detector(&self) -> Detector {
        self.detector.clone()
    }

    /// Loads the models, then serves until every [`Detector`] is dropped and what was let in is answered.
    ///
    /// # Errors
    /// [`RequiredModelFailed`] when the server cannot do what it is for.
    pub async fn run(self) -> Result<(), RequiredModelFailed> {
        let Self {
            detector,
            repository,
            loader,
            news,
            config,
            worker,
        } = self;
        let mut worker = tokio::spawn(worker.run());
        let (registry, stop) = (detector.registry.clone(), detector.stop.clone());
        drop(detector);
        let loader = Arc::new(loader);
        let supervisor = Supervisor::new(registry.clone(), loader.clone(), news, stop.clone());
        tokio::spawn(supervisor.run());
        let instances = loader.instances.clone();
        let loading = async {
            registry.load_all(&repository, &loader).await?;
            MemorySum::new(&config, registry.memory()).log();
            Ok(())
        };
        let ended = tokio::select! {
            // A worker that is gone acknowledges no instance.
            ended = &mut worker => ended,
            loaded = loading => {
                loaded?;
                drop(loader);
                worker.await
            }
        };
        if ended.is_err() && !stop.is_cancelled() {
            tracing::error!("the scheduler panicked: the server cannot answer any more");
            registry.broke_down("the scheduler panicked");
            // Whoever watches liveness ends the process.
            stop.cancelled().await;
        }
        instances.clear();
        Ok(())
    }

    /// Says of each model in the repository whether it would load, without serving it.
    pub async fn check(&self) -> Vec<(&ModelEntry, Result<ReadyModel, LoadError>)> {
        let mut checked = Vec::new();
        for entry in self.repository.entries() {
            checked.push((entry, self.loader.check(entry).await));
        }
        checked
    }
}
