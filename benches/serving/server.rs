//! The server: the release binary in a process of its own, and callers of it.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use detectd::grpc::pb;
use detectd::grpc::pb::detection_service_client::DetectionServiceClient;
use tokio::task::JoinSet;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::report::{Rate, Waits, cpu_time, percentile};

pub(crate) struct Server {
    process: Child,
    address: String,
    http_address: String,
}

/// Callers share connections as the callers of one machine do.
const CONNECTIONS: usize = 4;

/// As often as an impatient balancer looks.
const HEALTH_INTERVAL: Duration = Duration::from_millis(20);

impl Server {
    pub(crate) fn start(repository: &Path, model: &str) -> Self {
        Self::start_with(repository, model, &[])
    }

    /// The same with settings as environment variables. Other models may still be loading.
    pub(crate) fn start_with(repository: &Path, model: &str, settings: &[(&str, &str)]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_detectd"))
            .args([
                "serve",
                "--grpc-addr",
                "127.0.0.1:0",
                "--http-addr",
                "127.0.0.1:0",
                "--default-model",
                model,
            ])
            .arg("--models")
            .arg(repository)
            .envs(settings.iter().copied())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap()).lines();
        let mut addresses = None;
        for line in log.by_ref() {
            let line = line.unwrap();
            if let Some((_, after)) = line.split_once("grpc=") {
                let (grpc, http) = after.split_once(" http=").unwrap();
                addresses = Some((grpc.to_owned(), http.trim().to_owned()));
            }
            if line.contains("an instance is warm") {
                println!("  {}", line.split_once("warm ").unwrap().1);
            }
            if line.contains("a model is ready") && line.contains(model) {
                break;
            }
        }
        // Read on, so that the server never waits for a reader of its log.
        std::thread::spawn(move || log.for_each(drop));
        let (address, http_address) = addresses.expect("the server says where it listens");
        Self {
            process,
            address,
            http_address,
        }
    }

    /// CPU time that the server has used.
    pub(crate) fn cpu_time(&self) -> Duration {
        cpu_time(&self.process.id().to_string())
    }

    /// What `/metrics` says.
    pub(crate) fn metrics(&self) -> String {
        let mut stream = std::net::TcpStream::connect(&self.http_address).unwrap();
        let request = "GET /metrics HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Memory that the server holds, in MiB.
    pub(crate) fn resident_mib(&self) -> f64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS:"))
            .unwrap();
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<f64>()
            .unwrap()
            / 1024.0
    }

    /// `callers` callers, each with one picture after another, for `length`.
    pub(crate) async fn throughput(
        &self,
        photos: &[Vec<u8>],
        callers: usize,
        length: Duration,
    ) -> Rate {
        let process = self.process.id().to_string();
        let (cpu, started) = (cpu_time(&process), Instant::now());
        let times = self.call(photos, callers, length).await;
        Rate::new(times.len(), started.elapsed(), cpu_time(&process) - cpu)
    }

    /// The same, as calls a second and the median wait of one.
    pub(crate) async fn calls(
        &self,
        photos: &[Vec<u8>],
        callers: usize,
        length: Duration,
    ) -> (f64, Duration) {
        let started = Instant::now();
        let mut times = self.call(photos, callers, length).await;
        (
            times.len() as f64 / started.elapsed().as_secs_f64(),
            percentile(&mut times, 50),
        )
    }

    /// How long each call took.
    async fn call(&self, photos: &[Vec<u8>], callers: usize, length: Duration) -> Vec<Duration> {
        let photos: Arc<[bytes::Bytes]> = photos.iter().map(|photo| photo.clone().into()).collect();
        let channels = self.connect(CONNECTIONS).await;
        let next = Arc::new(AtomicUsize::new(0));
        let started = Instant::now();
        let mut calls = JoinSet::new();
        for caller in 0..callers {
            let mut client = client(&channels[caller % channels.len()]);
            let (photos, next) = (photos.clone(), next.clone());
            calls.spawn(async move {
                let mut times = Vec::new();
                while started.elapsed() < length {
                    let photo = &photos[next.fetch_add(1, Ordering::Relaxed) % photos.len()];
                    let began = Instant::now();
                    client.detect(request(photo)).await.unwrap();
                    times.push(began.elapsed());
                }
                times
            });
        }
        calls.join_all().await.concat()
    }

    /// The median wait of one caller who sends one picture after another.
    pub(crate) async fn latency(&self, photos: &[Vec<u8>], length: Duration) -> Duration {
        let photos: Vec<bytes::Bytes> = photos.iter().map(|photo| photo.clone().into()).collect();
        let mut client = client(&self.connect(1).await[0]);
        client.detect(request(&photos[0])).await.unwrap();
        let started = Instant::now();
        let mut times = Vec::new();
        for photo in photos.iter().cycle() {
            let began = Instant::now();
            client.detect(request(photo)).await.unwrap();
            times.push(began.elapsed());
            if started.elapsed() > length {
                break;
            }
        }
        percentile(&mut times, 50)
    }

    /// Waits of health checks while `callers` callers send `photo`, for `length`.
    pub(crate) async fn health_under(
        &self,
        photo: &[u8],
        callers: usize,
        length: Duration,
    ) -> Waits {
        let photo = bytes::Bytes::copy_from_slice(photo);
        let channels = self.connect(CONNECTIONS).await;
        let mut calls = JoinSet::new();
        for caller in 0..callers {
            let (mut client, photo) = (client(&channels[caller % channels.len()]), photo.clone());
            calls.spawn(async move {
                loop {
                    // A refusal is an answer too: the point is what it does to health.
                    drop(client.detect(request(&photo)).await);
                }
            });
        }
        let mut health = HealthClient::new(self.connect(1).await.remove(0));
        let started = Instant::now();
        let mut waits = Vec::new();
        let mut tick = tokio::time::interval(HEALTH_INTERVAL);
        while started.elapsed() < length {
            tick.tick().await;
            let began = Instant::now();
            health.check(HealthCheckRequest::default()).await.unwrap();
            waits.push(began.elapsed());
        }
        calls.shutdown().await;
        Waits(waits)
    }

    pub(crate) async fn connect(&self, count: usize) -> Vec<Channel> {
        let mut channels = Vec::new();
        for _ in 0..count {
            let endpoint = Channel::from_shared(format!("http://{}", self.address)).unwrap();
            // As our own clients: a picture goes out without waiting for window updates.
            let endpoint = endpoint
                .initial_stream_window_size(8 << 20)
                .initial_connection_window_size(8 << 20);
            channels.push(endpoint.connect().await.unwrap());
        }
        channels
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

pub(crate) fn client(channel: &Channel) -> DetectionServiceClient<Channel> {
    DetectionServiceClient::new(channel.clone()).max_decoding_message_size(64 << 20)
}

pub(crate) fn request(photo: &bytes::Bytes) -> pb::DetectRequest {
    pb::DetectRequest {
        image: Some(pb::Image {
            source: Some(pb::image::Source::Encoded(photo.clone())),
        }),
        ..Default::default()
    }
}
