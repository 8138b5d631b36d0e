//! What a device that hangs costs: answers a second with four devices, while one of them hangs, and after it was replaced.
//!
//! `cargo bench --bench failure` runs the real server in this process, over gRPC, on four synthetic engines of 40 ms a batch of
//! four. One hangs; the watchdog gives it up after two seconds, another is made in its place a second later. No call
//! may fail meanwhile.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench that cannot go on says so and ends"
)]

#[path = "serving/report.rs"]
#[allow(
    dead_code,
    reason = "shared with the serving bench, which needs more of it"
)]
mod report;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use detectd::app::App;
use detectd::config::Config;
use detectd::device::EngineSource;
use detectd::device::synthetic::{Fault, Synthetic, SyntheticNetwork, Target};
use detectd::grpc::pb;
use detectd::grpc::pb::detection_service_client::DetectionServiceClient;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tonic::transport::Channel;

use report::Series;

#[derive(Debug, Parser)]
struct Arguments {
    /// Rounds; each figure is their median.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// What cargo passes to every bench.
    #[arg(long, hide = true)]
    bench: bool,
}

const LATENCY: Duration = Duration::from_millis(40);

/// Twice as many as four devices and what stands ready for them can hold.
const CALLERS: usize = 64;

/// How long is measured while nothing is wrong.
const QUIET: Duration = Duration::from_secs(3);

const CARD: &str = r#"
description = "No network at all"
license = "MIT"
[input]
size = [16, 16]
resize = { mode = "stretch" }
color = "rgb"
[head]
family = "detr"
[labels]
file = "labels.txt"
[defaults]
score_threshold = 0.25
max_detections = 100
[batching]
max_batch_size = 4
[[instances]]
device = "cpu"
count = 4
"#;

/// What callers have seen.
#[derive(Debug, Default)]
struct Seen {
    answered: AtomicUsize,
    failed: AtomicUsize,
    /// The longest that one waited, in microseconds.
    longest: AtomicU64,
}

fn main() {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut four = Series::new("four devices", "answers/s");
        let mut parts = [
            Series::new("from the hang until it is given up", ""),
            Series::new("until it is replaced (3/4)", ""),
            Series::new("afterwards (4/4)", ""),
        ];
        let mut failed = Series::new("calls that failed", "");
        let mut longest = Series::new("the longest wait", "s");
        for _ in 0..arguments.rounds {
            let round = round().await;
            four.push(round.rates[0]);
            for (series, rate) in parts.iter_mut().zip(&round.rates[1..]) {
                series.push(rate / round.rates[0]);
            }
            failed.push(round.failed as f64);
            longest.push(round.longest.as_secs_f64());
        }
        println!("{four}");
        println!("of that");
        parts.iter().for_each(|series| println!("{series}"));
        println!("{failed}\n{longest}");
    });
}

struct Round {
    /// Before, while it hangs, while it is replaced, afterwards.
    rates: [f64; 4],
    failed: usize,
    longest: Duration,
}

async fn round() -> Round {
    let engines = Synthetic::new(SyntheticNetwork::detr(16, vec![(1, LATENCY), (4, LATENCY)]));
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("thing");
    std::fs::create_dir_all(model.join("1")).unwrap();
    std::fs::write(model.join("1/model.onnx"), "no network").unwrap();
    std::fs::write(model.join("labels.txt"), "thing\n").unwrap();
    std::fs::write(model.join("model.toml"), CARD).unwrap();
    let mut config = Config {
        models: folder.path().to_owned(),
        ..Config::default()
    };
    config.grpc.address = "127.0.0.1:0".to_owned();
    config.http.address = "127.0.0.1:0".to_owned();
    config.pipeline.devices.watchdog = Duration::from_secs(2);
    let source: Arc<dyn EngineSource> = Arc::new(engines.clone());
    let app = App::bind_with(config, source).await.unwrap();
    let addresses = app.addresses().clone();
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(app.run(async { drop(stopped.await) }));
    let http = addresses.http;
    instances_become(http, 4).await;

    let endpoint = Channel::from_shared(format!("http://{}", addresses.grpc)).unwrap();
    let seen = Arc::new(Seen::default());
    let mut callers = JoinSet::new();
    for _ in 0..4 {
        let channel = endpoint.connect().await.unwrap();
        for _ in 0..CALLERS / 4 {
            callers.spawn(call(channel.clone(), seen.clone()));
        }
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = rate(&seen, tokio::time::sleep(QUIET)).await;
    engines.faults().set(Target::Engine(1), Fault::Hangs);
    let hanging = rate(&seen, instances_become(http, 3)).await;
    let replaced = rate(&seen, instances_become(http, 4)).await;
    let after = rate(&seen, tokio::time::sleep(QUIET)).await;
    callers.shutdown().await;
    engines.faults().lift(Target::All);
    stop.send(()).unwrap();
    server.await.unwrap().unwrap();
    Round {
        rates: [before, hanging, replaced, after],
        failed: seen.failed.load(Ordering::Relaxed),
        longest: Duration::from_micros(seen.longest.load(Ordering::Relaxed)),
    }
}

/// One picture after another.
async fn call(channel: Channel, seen: Arc<Seen>) {
    let mut png = Vec::new();
    let encoder = image::codecs::png::PngEncoder::new(&mut png);
    let picture = image::RgbImage::from_pixel(16, 16, image::Rgb([100, 0, 0]));
    picture.write_with_encoder(encoder).unwrap();
    let request = pb::DetectRequest {
        image: Some(pb::Image {
            source: Some(pb::image::Source::Encoded(png.into())),
        }),
        ..Default::default()
    };
    let mut client = DetectionServiceClient::new(channel);
    loop {
        let began = Instant::now();
        let count = match client.detect(request.clone()).await {
            Ok(_) => &seen.answered,
            Err(_) => &seen.failed,
        };
        count.fetch_add(1, Ordering::Relaxed);
        let waited = u64::try_from(began.elapsed().as_micros()).unwrap();
        seen.longest.fetch_max(waited, Ordering::Relaxed);
    }
}

/// Answers a second until `end`.
async fn rate(seen: &Seen, end: impl Future<Output = ()>) -> f64 {
    let (count, began) = (seen.answered.load(Ordering::Relaxed), Instant::now());
    end.await;
    (seen.answered.load(Ordering::Relaxed) - count) as f64 / began.elapsed().as_secs_f64()
}

/// Returns when `/metrics` says that so many instances are in service.
async fn instances_become(http: std::net::SocketAddr, count: usize) {
    let end = format!(" {count}");
    loop {
        let mut stream = tokio::net::TcpStream::connect(http).await.unwrap();
        let request = "GET /metrics HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let mut lines = text.lines();
        let told = lines.find(|line| line.starts_with("detectd_instances{"));
        if told.is_some_and(|told| told.ends_with(&end)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
