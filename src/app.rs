//! The composition root: a [`Config`] becomes a running server.
//!
//! [`App::bind`] opens the ports and puts the rooms together; [`App::run`] serves until its shutdown future
//! resolves, then drains. The sockets are open before a model is loaded, so that probes are answered from the
//! first moment; health says NOT_SERVING until the models are ready.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::device::ort::Runtime;
use crate::device::{EngineError, EngineSource};
use crate::grpc::address::{BoundAddress, Listener};
use crate::model::{ModelError, ModelRepository};
use crate::pipeline::{Detector, Pipeline, RequiredModelFailed};
use crate::{grpc, http};

/// Why the server cannot start, or had to stop, in one line.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// A port cannot be had.
    #[error("cannot listen on {address} ({setting}): {error}")]
    Listen {
        /// The setting.
        setting: &'static str,
        /// Its value.
        address: String,
        /// Why.
        error: std::io::Error,
    },
    /// The model repository cannot be read.
    #[error(transparent)]
    Repository(#[from] ModelError),
    /// The default model is not in the repository.
    #[error("default_model: there is no model {name}; there are: {known}")]
    DefaultModel {
        /// The name.
        name: String,
        /// What there is.
        known: String,
    },
    /// There is nothing to serve.
    #[error("there is no model in {0}")]
    NoModels(String),
    /// The library that runs networks cannot be loaded.
    #[error("{0} (set it with --onnxruntime or DETECTD_ONNXRUNTIME, or put it beside the binary)")]
    Runtime(#[from] EngineError),
    /// A required model cannot be served.
    #[error(transparent)]
    Model(#[from] RequiredModelFailed),
    /// A fault of ours.
    #[error("the server broke: {0}")]
    Panicked(String),
    /// No threads.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

/// The addresses really bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses {
    /// gRPC.
    pub grpc: BoundAddress,
    /// HTTP.
    pub http: SocketAddr,
}

/// A server with its ports open.
#[derive(Debug)]
pub struct App {
    config: Config,
    grpc: Listener,
    http: TcpListener,
    addresses: Addresses,
    pipeline: Pipeline,
    grpc_metrics: grpc::Metrics,
    metrics: Arc<Registry>,
    /// No more requests, no more connections.
    stop: CancellationToken,
}

// === impl App ===

impl App {
    /// Opens the ports and puts the rooms together. Loads no model yet.
    ///
    /// # Errors
    /// [`AppError`], one line that names the thing.
    pub async fn bind(config: Config) -> Result<Self, AppError> {
        let engines = || engines(&config);
        Self::bind_to(&config, engines).await
    }

    /// The same with engines of the caller's, for tests and benches. No configuration leads here.
    ///
    /// # Errors
    /// As [`App::bind`].
    pub async fn bind_with(
        config: Config,
        engines: Arc<dyn EngineSource>,
    ) -> Result<Self, AppError> {
        Self::bind_to(&config, || Ok(engines)).await
    }

    /// What is wrong with the ports or the models is told before the library is looked for.
    async fn bind_to(
        config: &Config,
        engines: impl FnOnce() -> Result<Arc<dyn EngineSource>, AppError>,
    ) -> Result<Self, AppError> {
        let grpc = Listener::bind(&config.grpc.address)
            .await
            .map_err(|error| not_had("grpc.address", &config.grpc.address, error))?;
        let http_error = |error| not_had("http.address", &config.http.address, error);
        let http = TcpListener::bind(&config.http.address)
            .await
            .map_err(http_error)?;
        let addresses = Addresses {
            grpc: grpc.bound().clone(),
            http: http.local_addr().map_err(http_error)?,
        };
        let repository = ModelRepository::open(&config.models)?;
        for stray in repository.strays() {
            tracing::warn!("in the model repository: {stray}");
        }
        let default_model = default_model(config, &repository)?;
        let mut metrics = Registry::with_prefix("detectd");
        let grpc_metrics = grpc::Metrics::register(&mut metrics);
        let stop = CancellationToken::new();
        let pipeline = Pipeline::new(
            &config.pipeline,
            repository,
            default_model,
            engines()?,
            stop.clone(),
            &mut metrics,
        )
        .map_err(AppError::Thread)?;
        Ok(Self {
            config: config.clone(),
            grpc,
            http,
            addresses,
            pipeline,
            grpc_metrics,
            metrics: Arc::new(metrics),
            stop,
        })
    }

    /// The addresses really bound.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// The use case, for a caller in the same process.
    pub fn detector(&self) -> Detector {
        self.pipeline.detector()
    }

    /// Serves until `shutdown` resolves, then drains: NOT_SERVING, the pre-drain time, no more connections,
    /// the answers of what is under way, all within the grace period.
    ///
    /// # Errors
    /// [`AppError::Model`] when a required model cannot be served.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), AppError> {
        let Self {
            config,
            grpc,
            http,
            pipeline,
            grpc_metrics,
            metrics,
            stop,
            ..
        } = self;
        let draining = CancellationToken::new();
        let detector = pipeline.detector();
        let shut = grpc::Shutdown {
            draining: draining.clone(),
            stop: stop.clone(),
            grace: config.drain.grace,
        };
        let grpc_door = {
            let (config, detector) = (config.grpc.clone(), detector.clone());
            tokio::spawn(
                async move { grpc::serve(grpc, &config, detector, grpc_metrics, shut).await },
            )
        };
        let http_door = {
            let (draining, stop) = (draining.clone(), stop.clone());
            tokio::spawn(async move { http::serve(http, &detector, metrics, draining, stop).await })
        };
        // Spawned, since the drain has to go on while the pipeline answers what it has.
        let mut pipeline = tokio::spawn(pipeline.run());

        let failed = tokio::select! {
            () = shutdown => None,
            // Ends by itself only when a model failed: the doors hold its detectors.
            ended = &mut pipeline => match ended {
                Ok(Ok(())) => None,
                Ok(Err(failed)) => Some(failed.into()),
                Err(panic) => Some(AppError::Panicked(panic.to_string())),
            },
        };
        if let Some(failed) = failed {
            // Nothing was ever served: there is nothing to drain.
            stop.cancel();
            grpc_door.abort();
            http_door.abort();
            return Err(failed);
        }
        tracing::info!(pre_drain = ?config.drain.pre_drain, grace = ?config.drain.grace, "draining");
        drain(&draining, &stop, config.drain.pre_drain).await;
        // The door ends within its grace; the rest holds nothing that is still awaited.
        drop(grpc_door.await);
        drop(http_door.await);
        pipeline.abort();
        tracing::info!("drained");
        Ok(())
    }
}

/// Health first, then the doors: a balancer has the pre-drain time to look away.
async fn drain(draining: &CancellationToken, stop: &CancellationToken, pre_drain: Duration) {
    draining.cancel();
    tokio::time::sleep(pre_drain).await;
    stop.cancel();
}

/// The engines of the configured library, for serving and for checking alike.
///
/// # Errors
/// [`AppError::Runtime`] when it is not there or cannot be used.
pub fn engines(config: &Config) -> Result<Arc<dyn EngineSource>, AppError> {
    Ok(Arc::new(Runtime::load(&runtime_path(&config.onnxruntime))?))
}

fn not_had(setting: &'static str, address: &str, error: std::io::Error) -> AppError {
    AppError::Listen {
        setting,
        address: address.to_owned(),
        error,
    }
}

/// The model for requests that name none: the one that was set, else the only one there is.
fn default_model(
    config: &Config,
    repository: &ModelRepository,
) -> Result<Option<String>, AppError> {
    let names: Vec<&str> = repository
        .entries()
        .iter()
        .map(|entry| entry.name.as_str())
        .collect();
    match (config.default_model.as_str(), &names[..]) {
        (_, []) => Err(AppError::NoModels(config.models.display().to_string())),
        ("", [only]) => Ok(Some((*only).to_owned())),
        ("", _) => Ok(None),
        (name, names) if names.contains(&name) => Ok(Some(name.to_owned())),
        (name, names) => Err(AppError::DefaultModel {
            name: name.to_owned(),
            known: names.join(", "),
        }),
    }
}

/// Where the library is: where it was said to be, else beside the binary, so that an installed one finds it
/// outside a checkout, else wherever the system's loader looks.
fn runtime_path(configured: &Path) -> PathBuf {
    if !configured.as_os_str().is_empty() {
        return configured.to_owned();
    }
    let library = format!(
        "{}onnxruntime{}",
        std::env::consts::DLL_PREFIX,
        std::env::consts::DLL_SUFFIX
    );
    let folder = std::env::current_exe()
        .ok()
        .and_then(|binary| Some(binary.parent()?.to_owned()));
    let beside = folder
        .iter()
        .flat_map(|folder| [folder.join(&library), folder.join("../lib").join(&library)]);
    beside
        .into_iter()
        .find(|path| path.exists())
        .unwrap_or_else(|| PathBuf::from(library))
}
