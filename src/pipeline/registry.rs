//! The registry: which models are served, and how one is loaded, warmed and put into service.
//!
//! A model is in service when every instance of it is warm at every bucket and its card fits its network.
//! Nothing that a request needs is decided later.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use super::cpu_pool::CpuPool;
use super::error::DetectError;
use super::memory::ModelMemory;
use super::metrics::Metrics;
use super::placement::{Machine, Planned};
use super::readiness::{ModelState, ModelStatus, Readiness, ReadyModel};
use super::request::{EffectiveOptions, ModelRef};
use super::served::ServedModel;
use super::stages::{Context, InstanceReports, Instances};
use crate::device::ort::{OrtModel, Runtime};
use crate::device::{self, EngineError, EngineFactory, Instance, InstanceConfig, Loaded, Picture};
use crate::model::{
    Device, DeviceRequest, ModelEntry, ModelError, ModelRepository, ModelSpec, ModelVersion,
};
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

/// A model that the server cannot do without failed.
#[derive(Debug, thiserror::Error)]
#[error("model {name} cannot be served: {error}")]
pub struct RequiredModelFailed {
    /// Which.
    pub name: String,
    /// Why.
    pub error: LoadError,
}

/// The models in service.
#[derive(Debug)]
pub(super) struct Registry {
    /// By name. Read by every request, written when a model comes or goes.
    served: RwLock<BTreeMap<String, Arc<ServedModel>>>,
    readiness: watch::Sender<Readiness>,
    default_model: Option<String>,
}

/// Loads models and puts them into service.
#[derive(Debug)]
pub(super) struct Loader {
    pub(super) runtime: Runtime,
    pub(super) machine: Machine,
    pub(super) niceness: i32,
    pub(super) watchdog: Duration,
    pub(super) pool: CpuPool,
    pub(super) instances: Instances,
    pub(super) completions: Completions<Picture<Context>>,
    pub(super) metrics: Metrics,
    pub(super) device_metrics: device::Metrics,
    pub(super) next_key: AtomicU32,
}

/// A model whose instances are warm and which no request can reach yet.
struct WarmModel {
    served: ServedModel,
    instances: Vec<WarmInstance>,
    devices: Vec<Device>,
    max_queue_delay: Duration,
    detail: String,
}

struct WarmInstance {
    key: InstanceKey,
    device: Device,
    instance: Instance<Context>,
    loaded: Loaded,
}

// === impl Registry ===

impl Registry {
    /// A registry of the repository's models, none of them loaded.
    pub(super) fn new(repository: &ModelRepository, default_model: Option<String>) -> Self {
        let status = |entry: &ModelEntry| ModelStatus {
            name: entry.name.to_string(),
            version: entry.newest().ok(),
            state: ModelState::Loading,
            detail: String::new(),
            required: entry.spec.as_ref().map_or(true, |spec| spec.required),
            is_default: default_model.as_deref() == Some(entry.name.as_str()),
        };
        let readiness = Readiness::new(repository.entries().iter().map(status).collect());
        Self {
            served: RwLock::default(),
            readiness: watch::Sender::new(readiness),
            default_model,
        }
    }

    /// The models' states, now and whenever they change.
    pub(super) fn readiness(&self) -> watch::Receiver<Readiness> {
        self.readiness.subscribe()
    }

    /// What the models in service take.
    pub(super) fn memory(&self) -> Vec<ModelMemory> {
        let served = self.served.read().unwrap_or_else(PoisonError::into_inner);
        served.values().map(|model| model.memory).collect()
    }

    /// The model that a request is for.
    pub(super) fn find(
        &self,
        name: Option<&str>,
        version: Option<ModelVersion>,
    ) -> Result<Arc<ServedModel>, DetectError> {
        let readiness = self.readiness.borrow();
        let name = match (name, &self.default_model) {
            (Some(name), _) => name,
            (None, Some(name)) => name,
            (None, None) => {
                return Err(DetectError::NoDefaultModel {
                    known: readiness.names(),
                });
            }
        };
        let served = self.served.read().unwrap_or_else(PoisonError::into_inner);
        match (served.get(name), version) {
            (Some(model), None) => Ok(model.clone()),
            (Some(model), Some(version)) if model.reference.version == version => Ok(model.clone()),
            (Some(model), Some(version)) => Err(DetectError::ModelNotFound {
                wanted: format!("{name} version {version}"),
                known: model.reference.to_string(),
            }),
            (None, _) => match readiness.get(name) {
                Some(status) => Err(DetectError::ModelNotReady {
                    model: name.to_owned(),
                    detail: format!("it is {}", status.state_name()),
                }),
                None => Err(DetectError::ModelNotFound {
                    wanted: name.to_owned(),
                    known: readiness.names(),
                }),
            },
        }
    }

    /// Loads every model of the repository, one after another, and puts each into service as it is warm.
    ///
    /// # Errors
    /// [`RequiredModelFailed`] at the first required model that cannot be served. One that is not required is
    /// marked FAILED and the others go on.
    pub(super) async fn load_all(
        &self,
        repository: &ModelRepository,
        loader: &Loader,
    ) -> Result<(), RequiredModelFailed> {
        for entry in repository.entries() {
            let required = entry.spec.as_ref().map_or(true, |spec| spec.required);
            match loader.load(entry).await {
                Ok(model) => self.put_into_service(model, loader).await,
                Err(error) => {
                    self.update(entry.name.as_str(), ModelState::Failed, error.to_string());
                    if required {
                        return Err(RequiredModelFailed {
                            name: entry.name.to_string(),
                            error,
                        });
                    }
                    tracing::error!(model = %entry.name, %error, "a model cannot be served");
                }
            }
        }
        if self.readiness.borrow().is_ready() {
            tracing::info!("ready");
        }
        Ok(())
    }

    async fn put_into_service(&self, model: WarmModel, loader: &Loader) {
        let WarmModel {
            served,
            instances,
            devices,
            max_queue_delay,
            detail,
        } = model;
        let served = Arc::new(served);
        let name = served.reference.name.clone();
        let ready = ready_model(&served, &instances, devices);
        for WarmInstance {
            key,
            device,
            instance,
            loaded,
        } in instances
        {
            tracing::info!(model = name, %device, buckets = %show_buckets(&loaded), "an instance is warm");
            // Before the actor is told: it may send a batch at once.
            loader.instances.insert(key, instance);
            let placement = Placement {
                model: served.key,
                buckets: loaded.buckets,
                max_queue_delay,
                pipelined: device::pipelined(device),
                watchdog: loader.watchdog,
            };
            loader.completions.instance_up(key, placement).await;
        }
        // Found by requests only now, when the scheduler knows every instance.
        self.served
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name.clone(), served.clone());
        tracing::info!(model = name, version = %served.reference.version, "a model is ready");
        self.update(&name, ModelState::Ready(Box::new(ready)), detail);
    }

    fn update(&self, name: &str, state: ModelState, detail: String) {
        self.readiness.send_modify(|readiness| {
            if let Some(status) = readiness.get_mut(name) {
                status.state = state;
                status.detail = detail;
            }
        });
    }
}

fn ready_model(
    served: &ServedModel,
    instances: &[WarmInstance],
    devices: Vec<Device>,
) -> ReadyModel {
    let largest = |loaded: &Loaded| loaded.buckets.iter().map(|bucket| bucket.size).max();
    ReadyModel {
        input: served.input_size(),
        max_batch_size: instances
            .iter()
            .filter_map(|instance| largest(&instance.loaded))
            .max()
            .unwrap_or(1),
        labels: served.labels.iter().map(str::to_owned).collect(),
        devices,
        defaults: EffectiveOptions::clone(served.defaults()),
    }
}

/// Like `1: 14.2 ms, 2: 28.1 ms`.
fn show_buckets(loaded: &Loaded) -> String {
    let show =
        |bucket: &crate::scheduling::BatchBucket| format!("{}: {:.1?}", bucket.size, bucket.cost);
    loaded
        .buckets
        .iter()
        .map(show)
        .collect::<Vec<_>>()
        .join(", ")
}

// === impl Loader ===

impl Loader {
    /// Loads a model as far as it can be without serving it, and lets it go again.
    pub(super) async fn check(&self, entry: &ModelEntry) -> Result<ReadyModel, LoadError> {
        let model = self.load(entry).await?;
        Ok(ready_model(&model.served, &model.instances, model.devices))
    }

    async fn load(&self, entry: &ModelEntry) -> Result<WarmModel, LoadError> {
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
        let loaded = match self.start_instances(entry, spec, &network, &planned).await {
            Err(EngineError::DeviceUnavailable {
                device,
                detail: why,
            }) if is_automatic(spec, device) => {
                detail =
                    format!("device auto: {device} cannot be used, running on the CPU ({why})");
                tracing::warn!(model = %entry.name, "{detail}");
                planned = self.machine.without_gpus().place(&spec.instances)?;
                self.start_instances(entry, spec, &network, &planned).await
            }
            other => other,
        };
        let instances = loaded?;
        let Some(first) = instances.first() else {
            return Err(LoadError::Mismatch(
                "the card asks for no instance".to_owned(),
            ));
        };
        let key = ModelKey(self.next_key.fetch_add(1, Ordering::Relaxed));
        let reference = ModelRef {
            name: entry.name.to_string(),
            version,
        };
        // One tensor for each picture that may be ready or on its way there.
        let largest =
            |warm: &WarmInstance| warm.loaded.buckets.iter().map(|bucket| bucket.size).max();
        let shelf = instances.iter().filter_map(largest).sum::<usize>() * 2;
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
            max_queue_delay: spec.batching.max_queue_delay,
            detail,
        })
    }

    /// Starts the instances side by side and waits until all are warm. When one cannot be had, none is.
    async fn start_instances(
        &self,
        entry: &ModelEntry,
        spec: &ModelSpec,
        network: &std::path::Path,
        planned: &[Planned],
    ) -> Result<Vec<WarmInstance>, EngineError> {
        let factory: Arc<dyn EngineFactory> = Arc::new(OrtModel {
            runtime: self.runtime.clone(),
            path: network.to_owned(),
            input: spec.input_name.clone(),
            size_input: spec
                .head
                .size_input()
                .map(|name| (name.to_owned(), spec.input.size)),
        });
        let mut starting = Vec::with_capacity(planned.len());
        for planned in planned {
            let key = InstanceKey(self.next_key.fetch_add(1, Ordering::Relaxed));
            let (loaded, outcome) = oneshot::channel();
            let reports = InstanceReports {
                key,
                pool: self.pool.clone(),
                completions: self.completions.clone(),
                loaded: Some(loaded),
                metrics: self.metrics.clone(),
            };
            let config = InstanceConfig {
                model: entry.name.to_string(),
                device: planned.device,
                threads: planned.threads,
                max_batch_size: spec.batching.max_batch_size.get(),
                picture_shape: spec.input.tensor_shape(),
                niceness: self.niceness,
            };
            // Linux shows fifteen characters of a thread's name.
            let name = format!("{}#{}", planned.device, key.0);
            let instance =
                Instance::spawn(name, config, factory.clone(), &self.device_metrics, reports)?;
            starting.push((key, planned.device, instance, outcome));
        }
        let mut warm = Vec::with_capacity(starting.len());
        for (key, device, instance, outcome) in starting {
            let loaded = outcome
                .await
                .map_err(|_| EngineError::Thread("it ended while it loaded".to_owned()))??;
            warm.push(WarmInstance {
                key,
                device,
                instance,
                loaded,
            });
        }
        Ok(warm)
    }
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
