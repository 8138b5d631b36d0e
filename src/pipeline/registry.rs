//! The registry: which models are served, and what state each is in.
//!
//! A model is in service when the loader has warmed every instance of it. From then on the supervisor says whether
//! any of them is left.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::watch;

use super::error::DetectError;
use super::loader::{LoadError, Loader, WarmModel};
use super::memory::ModelMemory;
use super::readiness::{ModelState, ModelStatus, Readiness, Unavailable};
use super::served::ServedModel;
use super::supervisor::{News, Supervised};
use crate::model::{ModelEntry, ModelRepository, ModelVersion};

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
        let status = readiness.get(name);
        if let Some(status) = status.filter(|status| !status.is_ready()) {
            return Err(DetectError::ModelNotReady {
                model: name.to_owned(),
                detail: status.why_not(),
            });
        }
        let served = self.served.read().unwrap_or_else(PoisonError::into_inner);
        let Some(model) = served.get(name) else {
            return Err(DetectError::ModelNotFound {
                wanted: name.to_owned(),
                known: readiness.names(),
            });
        };
        match version {
            Some(version) if model.reference.version != version => {
                Err(DetectError::ModelNotFound {
                    wanted: format!("{name} version {version}"),
                    known: model.reference.to_string(),
                })
            }
            _ => Ok(model.clone()),
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
                    match entry.is_only_a_card() {
                        true => {
                            tracing::info!(model = %entry.name, %error, "a model has no network")
                        }
                        false => {
                            tracing::error!(model = %entry.name, %error, "a model cannot be served");
                        }
                    }
                }
            }
        }
        if self.readiness.borrow().is_ready() {
            tracing::info!("ready");
        }
        Ok(())
    }

    async fn put_into_service(&self, model: WarmModel, loader: &Loader) {
        let ready = model.ready();
        let WarmModel {
            served,
            instances,
            detail,
            ..
        } = model;
        let served = Arc::new(served);
        let name = served.reference.name.clone();
        let news = loader.instances.news();
        if let Some(supervised) = Supervised::new(&name, served.key, &instances) {
            // Before any of them can be lost. Nobody listens when the server is on its way out.
            drop(
                loader
                    .instances
                    .news()
                    .send(News::Serving(supervised))
                    .await,
            );
        }
        for instance in instances {
            loader.put_into_service(served.key, instance).await;
        }
        // Found by requests only now, when the scheduler knows every instance.
        self.served
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name.clone(), served.clone());
        tracing::info!(model = name, version = %served.reference.version, "a model is ready");
        self.update(&name, ModelState::Ready(Box::new(ready)), detail);
        drop(news.send(News::Ready(served.key)).await);
    }

    /// No instance of a model is left.
    pub(super) fn lost_all(&self, name: &str, why: &str, rebuilding: bool) {
        self.readiness.send_if_modified(|readiness| {
            let Some(status) = readiness.get_mut(name) else {
                return false;
            };
            let was = match &status.state {
                ModelState::Ready(ready) => ready.clone(),
                ModelState::Unavailable(unavailable) => unavailable.was.clone(),
                ModelState::Loading | ModelState::Failed => return false,
            };
            let why = why.to_owned();
            status.state = ModelState::Unavailable(Unavailable {
                was,
                why,
                rebuilding,
            });
            true
        });
    }

    /// An instance of a model serves again, if there was none.
    pub(super) fn recovered(&self, name: &str) {
        self.readiness.send_if_modified(|readiness| {
            let Some(status) = readiness.get_mut(name) else {
                return false;
            };
            let ModelState::Unavailable(unavailable) = &status.state else {
                return false;
            };
            status.state = ModelState::Ready(unavailable.was.clone());
            true
        });
    }

    /// Nothing will be answered any more.
    pub(super) fn broke_down(&self, why: &str) {
        self.readiness
            .send_modify(|readiness| readiness.break_down(why));
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
