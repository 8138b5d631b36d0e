//! A server to test, and clients of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use detectd::app::{Addresses, App, AppError};
use detectd::config::Config;
use detectd::device::EngineSource;
use detectd::device::synthetic::Synthetic;
use detectd::grpc::address::BoundAddress;
use detectd::grpc::pb;
use detectd::grpc::pb::detection_service_client::DetectionServiceClient;
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use image::{ExtendedColorType, ImageEncoder};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::body::Body;
use tonic::transport::Channel;
use tonic::{Request, Status};
use tonic_types::StatusExt;

/// A client over a plain HTTP/2 connection. tonic's own channel also watches the deadline it sends, so that
/// one could not tell whether the server did.
pub(crate) type Client = DetectionServiceClient<HyperClient<HttpConnector, Body>>;

/// A bound on a hang, far above what anything takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A running server over a repository of its own.
pub(crate) struct Server {
    pub(crate) addresses: Addresses,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<Result<(), AppError>>,
    _models: TempDir,
}

/// What the cards of models without networks have in common; `[batching]` comes last, to be gone on with.
const SYNTHETIC_CARD: &str = r#"
description = "No network at all"
license = "MIT"
[input]
size = [16, 16]
resize = { mode = "stretch" }
color = "rgb"
scale = 0.00392156862745098
[head]
family = "detr"
[labels]
file = "labels.txt"
[defaults]
score_threshold = 0.25
max_detections = 100
[batching]
"#;

pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/models")
}

/// The networks that `make models` provides, or `None` with a line that says so.
pub(crate) fn real_model(name: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("models")
        .join(name);
    if folder.join("1/model.onnx").exists() {
        return Some(folder);
    }
    println!("skipped: a test of {name} (its network is absent; `make models`)");
    None
}

/// The test photos, or `None` with a line that says so.
pub(crate) fn photos() -> Option<Vec<Vec<u8>>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/images/coco_val_ccby27");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        println!("skipped: a test on photos (../shared is absent)");
        return None;
    };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    Some(
        paths
            .iter()
            .map(|path| std::fs::read(path).unwrap())
            .collect(),
    )
}

/// A repository with links to these models' folders.
pub(crate) fn repository(models: &[PathBuf]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for model in models {
        std::os::unix::fs::symlink(model, folder.path().join(model.file_name().unwrap())).unwrap();
    }
    folder
}

pub(crate) fn config(models: &Path) -> Config {
    let mut config = Config {
        models: models.to_owned(),
        ..Config::default()
    };
    config.grpc.address = "127.0.0.1:0".to_owned();
    config.http.address = "127.0.0.1:0".to_owned();
    // An unoptimised build on a busy machine may be very slow; what is tested is not that.
    config.pipeline.admission.max_wait = Duration::from_secs(600);
    config.onnxruntime = std::env::var("DETECTD_ONNXRUNTIME")
        .expect("cargo sets it; see .cargo/config.toml")
        .into();
    config
}

impl Server {
    /// A server of these fixture models, ready.
    pub(crate) async fn start(models: &[&str]) -> Self {
        Self::start_with(models, |_| {}).await
    }

    pub(crate) async fn start_with(models: &[&str], change: impl FnOnce(&mut Config)) -> Self {
        let folders: Vec<PathBuf> = models.iter().map(|name| fixtures().join(name)).collect();
        let server = Self::serve(&folders, change).await;
        server.ready().await;
        server
    }

    /// A server of the models in these folders, ports open, not waited for.
    pub(crate) async fn serve(models: &[PathBuf], change: impl FnOnce(&mut Config)) -> Self {
        let models = repository(models);
        let mut config = config(models.path());
        change(&mut config);
        Self::spawn(App::bind(config).await.unwrap(), models)
    }

    /// A server of models without networks, ready: each is a name and what its card says beside the usual. Its
    /// engines do as `engines` says.
    pub(crate) async fn start_synthetic(
        models: &[(&str, &str)],
        engines: &Synthetic,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, card) in models {
            let model = folder.path().join(name);
            std::fs::create_dir_all(model.join("1")).unwrap();
            std::fs::write(model.join("1/model.onnx"), "no network").unwrap();
            std::fs::write(model.join("labels.txt"), "thing\n").unwrap();
            std::fs::write(model.join("model.toml"), format!("{SYNTHETIC_CARD}{card}")).unwrap();
        }
        let mut config = config(folder.path());
        change(&mut config);
        let engines: Arc<dyn EngineSource> = Arc::new(engines.clone());
        let server = Self::spawn(App::bind_with(config, engines).await.unwrap(), folder);
        server.ready().await;
        server
    }

    fn spawn(app: App, models: TempDir) -> Self {
        let addresses = app.addresses().clone();
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(app.run(async {
            // A test that drops the server without stopping it is over as well.
            drop(stopped.await);
        }));
        Self {
            addresses,
            stop: Some(stop),
            running,
            _models: models,
        }
    }

    /// Returns once health says SERVING, as the server itself announces it.
    pub(crate) async fn ready(&self) {
        use tonic_health::pb::health_check_response::ServingStatus;
        let mut watch = self.watch("").await;
        let serving = async {
            while watch.message().await.unwrap().unwrap().status() != ServingStatus::Serving {}
        };
        tokio::time::timeout(PATIENCE, serving)
            .await
            .expect("the server becomes ready");
    }

    pub(crate) async fn watch(
        &self,
        service: &str,
    ) -> tonic::Streaming<tonic_health::pb::HealthCheckResponse> {
        let request = tonic_health::pb::HealthCheckRequest {
            service: service.to_owned(),
        };
        self.health()
            .await
            .watch(request)
            .await
            .unwrap()
            .into_inner()
    }

    pub(crate) async fn health(&self) -> tonic_health::pb::health_client::HealthClient<Channel> {
        let address = format!("http://{}", self.addresses.grpc);
        let channel = Channel::from_shared(address)
            .unwrap()
            .connect()
            .await
            .unwrap();
        tonic_health::pb::health_client::HealthClient::new(channel)
    }

    /// A client with connections of its own.
    pub(crate) fn client(&self) -> Client {
        // hyper's own.
        self.client_with_window(2 << 20)
    }

    /// One that lets the server send so many bytes of an answer before it reads.
    pub(crate) fn client_with_window(&self, bytes: u32) -> Client {
        let hyper = HyperClient::builder(TokioExecutor::new())
            .http2_only(true)
            .http2_initial_stream_window_size(bytes)
            .build_http();
        let origin = format!("http://{}", self.addresses.grpc).parse().unwrap();
        DetectionServiceClient::with_origin(hyper, origin)
    }

    /// The gRPC door's port.
    pub(crate) fn tcp(&self) -> std::net::SocketAddr {
        match &self.addresses.grpc {
            BoundAddress::Tcp(address) => *address,
            BoundAddress::Unix(path) => panic!("the door is at {}", path.display()),
        }
    }

    /// Tells the server to end, as SIGTERM does.
    pub(crate) fn stop(&mut self) {
        self.stop
            .take()
            .expect("a server is stopped once")
            .send(())
            .unwrap();
    }

    /// How the server ended.
    pub(crate) async fn ended(self) -> Result<(), AppError> {
        tokio::time::timeout(PATIENCE, self.running)
            .await
            .expect("the server ends")
            .unwrap()
    }

    /// The sum of a counter over all its series.
    pub(crate) async fn counter(&self, name: &str) -> u64 {
        let page = self.get("/metrics").await;
        let series = page.lines().filter(|line| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(['{', ' ']))
        });
        series
            .map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap())
            .sum()
    }

    /// Asks until the counter has reached `least`.
    pub(crate) async fn counter_reaches(&self, name: &str, least: u64) {
        let reached = async { while self.counter(name).await < least {} };
        tokio::time::timeout(PATIENCE, reached)
            .await
            .unwrap_or_else(|_| panic!("{name} reaches {least}"));
    }

    /// Asks until the sum over the series of a gauge is this.
    pub(crate) async fn gauge_becomes(&self, name: &str, value: u64) {
        let reached = async { while self.counter(name).await != value {} };
        tokio::time::timeout(PATIENCE, reached)
            .await
            .unwrap_or_else(|_| panic!("{name} becomes {value}"));
    }

    /// A page of the HTTP door, headers included.
    pub(crate) async fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.addresses.http).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).await.unwrap();
        page
    }
}

pub(crate) fn request(encoded: impl Into<Vec<u8>>) -> pb::DetectRequest {
    pb::DetectRequest {
        image: Some(pb::Image {
            source: Some(pb::image::Source::Encoded(encoded.into().into())),
        }),
        ..Default::default()
    }
}

/// The same with a deadline, as the header has it.
pub(crate) fn within(timeout: Duration, message: pb::DetectRequest) -> Request<pb::DetectRequest> {
    let mut request = Request::new(message);
    let timeout = format!("{}u", timeout.as_micros()).parse().unwrap();
    request.metadata_mut().insert("grpc-timeout", timeout);
    request
}

/// A PNG of one colour.
pub(crate) fn flat_png(rgb: [u8; 3], side: u32) -> Vec<u8> {
    let pixels = rgb.repeat((side * side) as usize);
    let mut png = Vec::new();
    image::codecs::png::PngEncoder::new(&mut png)
        .write_image(&pixels, side, side, ExtendedColorType::Rgb8)
        .unwrap();
    png
}

/// Code and reason of a refusal.
pub(crate) fn reason(status: &Status) -> (tonic::Code, String) {
    let details = status.get_error_details();
    let info = details
        .error_info()
        .unwrap_or_else(|| panic!("no ErrorInfo in {status:?}"));
    assert_eq!(info.domain, "detectd");
    (status.code(), info.reason.clone())
}
