//! The loader: how a model, and each of its instances, is loaded and warmed.
//!
//! A model is loaded when every instance of it is warm at every bucket and its card fits its network. Nothing that a
//! request needs is decided later. An instance is made by its [`Recipe`], at the start and again whenever one is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::cpu_pool::CpuPool;
use super::instances::Instances;
use super::memory::ModelMemory;
use super::metrics::Metrics;
use super::placement::{Machine, Planned};
use super::readiness::ReadyModel;
use super::request::{EffectiveOptions, ModelRef};
use super::served::ServedModel;
use super::stages::{Context, InstanceReports, Waiting};
use crate::device::{
    self, EngineError, EngineFactory, EngineSource, Instance, InstanceConfig, InstanceLabels,
    Loaded, NetworkFile, Picture,
};
use crate::model::{Device, DeviceRequest, ModelEntry, ModelError, ModelSpec};
use crate::scheduling::{Completions, InstanceKey, ModelKey, Placement};

/// Why a model cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Its card or its files.
    #[error("{0}")]
    Model(String),
    /// Its network, or the device it asks for.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Its card does not fit its network.
    #[error("{0}")]
    Mismatch(String),
    /// More instances than make sense.
    #[error("the cards ask for {asked} instances, the most is {most}")]
    TooManyInstances {
        /// How many.
        asked: usize,
        /// The bound.
        most: usize,
    },
}

/// Loads models and makes instances of them.
#[derive(Debug)]
pub(super) struct Loader {
    pub(super) engines: Arc<dyn EngineSource>,
    pub(super) machine: Machine,
    pub(super) niceness: i32,
    pub(super) watchdog: Duration,
    pub(super) pool: CpuPool,
    pub(super) instances: Instances,
    pub(super) completions: Completions<Waiting, Picture<Context>>,
    pub(super) metrics: Metrics,
    pub(super) device_metrics: device::Metrics,
    pub(super) next_key: AtomicU32,
}

/// How an instance is made, as often as it has to be.
#[derive(Debug, Clone)]
pub(super) struct Recipe {
    factory: Arc<dyn EngineFactory>,
    config: InstanceConfig,
    max_queue_delay: Duration,
}

/// A model whose instances are warm and which no request can reach yet.
pub(super) struct WarmModel {
    pub(super) served: ServedModel,
    pub(super) instances: Vec<WarmInstance>,
    pub(super) devices: Vec<Device>,
    pub(super) detail: String,
}

/// An instance that no batch can reach yet.
#[derive(Debug)]
pub(super) struct WarmInstance {
    pub(super) key: InstanceKey,
    pub(super) recipe: Recipe,
    pub(super) loaded: Loaded,
    /// How long it took to be warm.
    pub(super) took: Duration,
    instance: Instance<Context>,
}

/// An instance whose thread loads and warms its engine.
#[derive(Debug)]
pub(super) struct Starting {
    pub(super) key: InstanceKey,
    recipe: Recipe,
    began: Instant,
    instance: Instance<Context>,
    outcome: oneshot::Receiver<Result<Loaded, EngineError>>,
}

// === impl Recipe ===

impl Recipe {
    /// Where the instance runs.
    pub(super) fn device(&self) -> Device {
        self.config.device
    }

    fn labels(&self) -> InstanceLabels {
        InstanceLabels {
            model: self.config.model.clone(),
            device: self.config.device.to_string(),
        }
    }
}

// === impl WarmModel ===

impl WarmModel {
    /// What is told of it once it serves.
    pub(super) fn ready(&self) -> ReadyModel {
        let sizes = self.instances.iter().filter_map(WarmInstance::largest);
        ReadyModel {
            input: self.served.input_size(),
            max_batch_size: sizes.max().unwrap_or(1),
            labels: self.served.labels.iter().map(str::to_owned).collect(),
            devices: self.devices.clone(),
            defaults: EffectiveOptions::clone(self.served.defaults()),
        }
    }
}

// === impl WarmInstance ===

impl WarmInstance {
    /// Its largest batch.
    fn largest(&self) -> Option<usize> {
        self.loaded.buckets.iter().map(|bucket| bucket.size).max()
    }
}

// === impl Starting ===

impl Starting {
    /// Returns once the instance is warm, or cannot be had.
    pub(super) async fn warm(mut self) -> Result<WarmInstance, EngineError> {
        let outcome = (&mut self.outcome).await;
        self.finish(outcome)
    }

    /// The same, for so long. One that is not warm by then is given up, and its thread left behind.
    ///
    /// # Errors
    /// Why it cannot be had, and its name if its thread was left behind.
    pub(super) async fn warm_within(
        mut self,
        patience: Duration,
    ) -> Result<WarmInstance, (EngineError, Option<InstanceKey>)> {
        match tokio::time::timeout(patience, &mut self.outcome).await {
            Ok(outcome) => self.finish(outcome).map_err(|error| (error, None)),
            Err(_) => {
                drop(self.instance.abandon());
                let error = EngineError::Thread(format!("it was not warm within {patience:?}"));
                Err((error, Some(self.key)))
            }
        }
    }

    fn finish(
        self,
        outcome: Result<Result<Loaded, EngineError>, oneshot::error::RecvError>,
    ) -> Result<WarmInstance, EngineError> {
        let ended = |_| EngineError::Thread("it ended while it loaded".to_owned());
        Ok(WarmInstance {
            loaded: outcome.map_err(ended)??,
            took: self.began.elapsed(),
            key: self.key,
            recipe: self.recipe,
            instance: self.instance,
        })
    }
}

// === impl Loader ===

impl Loader {
    /// Loads a model as far as it can be without serving it, and lets it go again.
    pub(super) async fn check(&self, entry: &ModelEntry) -> Result<ReadyModel, LoadError> {
        Ok(self.load(entry).await?.ready())
    }

    /// Loads a model and warms all of its instances.
    pub(super) async fn load(&self, entry: &ModelEntry) -> Result<WarmModel, LoadError> {
        let spec = entry
            .spec
            .as_ref()
            .map_err(|error| LoadError::Model(error.to_string()))?;
        let model_error = |error: ModelError| LoadError::Model(error.to_string());
        let version = entry.newest().map_err(model_error)?;
        let network = entry.network(version).map_err(model_error)?;
        let labels = entry.labels(spec).map_err(model_error)?;
        let mut planned = self.machine.place(&spec.instances)?;
        let mut detail = self.machine.fell_back(&spec.instances);
        let loaded = match self.start_all(entry, spec, &network, &planned).await {
            Err(EngineError::DeviceUnavailable {
                device,
                detail: why,
            }) if is_automatic(spec, device) => {
                detail =
                    format!("device auto: {device} cannot be used, running on the CPU ({why})");
                tracing::warn!(model = %entry.name, "{detail}");
                planned = self.machine.without_gpus().place(&spec.instances)?;
                self.start_all(entry, spec, &network, &planned).await
            }
            other => other,
        };
        let instances = loaded?;
        let Some(first) = instances.first() else {
            return Err(LoadError::Mismatch(
                "the card asks for no instance".to_owned(),
            ));
        };
        if let Some(limit) = &first.loaded.limit {
            tracing::warn!(model = %entry.name, "{limit}");
            detail = match detail.is_empty() {
                true => limit.clone(),
                false => format!("{detail}; {limit}"),
            };
        }
        let key = ModelKey(self.next_key.fetch_add(1, Ordering::Relaxed));
        let reference = ModelRef {
            name: entry.name.to_string(),
            version,
        };
        // One tensor for each picture that may be ready or on its way there.
        let largest = instances.iter().filter_map(WarmInstance::largest);
        let shelf = largest.sum::<usize>() * 2;
        let mut served = ServedModel::new(key, reference, spec, labels, &first.loaded, shelf)
            .map_err(LoadError::Mismatch)?;
        let batch_sizes = instances
            .iter()
            .flat_map(|warm| warm.loaded.buckets.iter().map(|bucket| bucket.size));
        served.memory = ModelMemory::new(served.input_bytes(), shelf, batch_sizes);
        Ok(WarmModel {
            served,
            devices: planned.iter().map(|planned| planned.device).collect(),
            instances,
            detail,
        })
    }

    /// Starts the instances side by side and waits until all are warm. When one cannot be had, none is.
    async fn start_all(
        &self,
        entry: &ModelEntry,
        spec: &ModelSpec,
        network: &std::path::Path,
        planned: &[Planned],
    ) -> Result<Vec<WarmInstance>, EngineError> {
        let factory = self.engines.network(NetworkFile {
            path: network.to_owned(),
            input: spec.input_name.clone(),
            size_input: spec
                .head
                .size_input()
                .map(|name| (name.to_owned(), spec.input.size)),
        });
        let recipe = |planned: &Planned| Recipe {
            factory: factory.clone(),
            config: InstanceConfig {
                model: entry.name.to_string(),
                device: planned.device,
                threads: planned.threads,
                max_batch_size: spec.batching.max_batch_size.get(),
                picture_shape: spec.input.tensor_shape(),
                niceness: self.niceness,
            },
            max_queue_delay: spec.batching.max_queue_delay,
        };
        let starting = planned.iter().map(|planned| self.start(recipe(planned)));
        let starting: Vec<Starting> = starting.collect::<Result<_, _>>()?;
        let mut warm = Vec::with_capacity(starting.len());
        for instance in starting {
            warm.push(instance.warm().await?);
        }
        Ok(warm)
    }

    /// Starts one instance, under a name of its own.
    pub(super) fn start(&self, recipe: Recipe) -> Result<Starting, EngineError> {
        let key = InstanceKey(self.next_key.fetch_add(1, Ordering::Relaxed));
        let began = Instant::now();
        let (loaded, outcome) = oneshot::channel();
        let reports = InstanceReports {
            key,
            pool: self.pool.clone(),
            completions: self.completions.clone(),
            instances: self.instances.downgrade(),
            loaded: Some(loaded),
            metrics: self.metrics.clone(),
        };
        // Linux shows fifteen characters of a thread's name.
        let name = format!("{}#{}", recipe.config.device, key.0);
        let instance = Instance::spawn(
            name,
            recipe.config.clone(),
            recipe.factory.clone(),
            &self.device_metrics,
            reports,
        )?;
        Ok(Starting {
            key,
            recipe,
            began,
            instance,
            outcome,
        })
    }

    /// Puts a warm instance into service, and returns when the scheduler knows it.
    pub(super) async fn put_into_service(&self, model: ModelKey, warm: WarmInstance) {
        let WarmInstance {
            key,
            recipe,
            loaded,
            instance,
            ..
        } = warm;
        let device = recipe.device();
        tracing::info!(model = recipe.config.model, %device, buckets = %show_buckets(&loaded), "an instance is warm");
        // Before the actor is told: it may send a batch at once.
        self.instances.insert(key, recipe.labels(), instance);
        let placement = Placement {
            model,
            buckets: loaded.buckets,
            max_queue_delay: recipe.max_queue_delay,
            pipelined: device::pipelined(device),
            watchdog: self.watchdog,
        };
        self.completions.instance_up(key, placement).await;
    }
}

/// Like `1: 14.2 ms, 2: 28.1 ms`.
fn show_buckets(loaded: &Loaded) -> String {
    let show =
        |bucket: &crate::scheduling::BatchBucket| format!("{}: {:.1?}", bucket.size, bucket.cost);
    let shown: Vec<String> = loaded.buckets.iter().map(show).collect();
    shown.join(", ")
}

/// Whether `device` was the server's choice and not the card's.
fn is_automatic(spec: &ModelSpec, device: Device) -> bool {
    !spec
        .instances
        .iter()
        .any(|instance| instance.device == DeviceRequest::Exact(device))
}

#[cfg(test)]
mod tests;
