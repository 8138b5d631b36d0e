//! Streams: as fast as calls, fair among themselves, and fresh.
//!
//! `cargo bench --bench streams` prints
//!
//! - *throughput*: pictures a second and CPU time of one, over streams that have 32 frames in hand together, against 32 callers
//!   with the same photos, in turns, on the release binary;
//! - *fairness*: one camera at 60 frames a second beside 15 at 5, on a model that cannot do them all: what each of the 15 gets;
//! - *freshness*: 32 cameras under LATEST on a synthetic device at half its speed, in this process: by how much the age of an
//!   answer passes a frame interval, its preprocessing and two batches.

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
#[path = "serving/server.rs"]
#[allow(
    dead_code,
    reason = "shared with the serving bench, which needs more of it"
)]
mod server;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use detectd::app::App;
use detectd::config::Config;
use detectd::device::EngineSource;
use detectd::device::synthetic::{Fault, Synthetic, SyntheticNetwork, Target};
use detectd::grpc::pb;
use detectd::grpc::pb::detect_stream_request::Payload as Sent;
use detectd::grpc::pb::detect_stream_response::Payload as Told;
use detectd::grpc::pb::frame_result::Outcome;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;

use report::{Rate, Series};

#[derive(Debug, Parser)]
struct Arguments {
    /// Rounds; each figure is their median.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Length of each measurement, in seconds.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// What cargo passes to every bench.
    #[arg(long, hide = true)]
    bench: bool,
}

const LIGHT: &str = "yolox-nano";
const HEAVY: &str = "deimv2-femto";

/// Calls, or frames, in hand together.
const IN_HAND: usize = 32;

const STREAMS: usize = 4;

fn main() {
    let arguments = Arguments::parse();
    let length = Duration::from_secs(arguments.seconds);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(freshness(arguments.rounds, length));
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("models");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/images/coco_val_ccby27");
    let Ok(entries) = std::fs::read_dir(folder) else {
        println!("skipped: the rest of the streams bench (../shared is absent)");
        return;
    };
    let photos: Vec<Vec<u8>> = entries
        .map(|entry| std::fs::read(entry.unwrap().path()).unwrap())
        .collect();
    let server = server::Server::start(&repository, LIGHT);
    runtime.block_on(async {
        throughput(&server, &photos, arguments.rounds, length).await;
        fairness(&server, &photos, arguments.rounds, length).await;
    });
}

// === throughput ===

async fn throughput(server: &server::Server, photos: &[Vec<u8>], rounds: usize, length: Duration) {
    let pictures: Vec<bytes::Bytes> = photos.iter().map(|photo| photo.clone().into()).collect();
    server
        .throughput(photos, IN_HAND, Duration::from_secs(2))
        .await;
    let mut calls = Series::new("calls", "pictures/s");
    let mut ratio = Series::new("streams, of calls (at least 0.95)", "");
    let mut cpu = Series::new("CPU of a frame, of a call", "");
    for _ in 0..rounds {
        let called = server.throughput(photos, IN_HAND, length).await;
        let (before, began) = (server.cpu_time(), Instant::now());
        let mut streams = JoinSet::new();
        for channel in server.connect(STREAMS).await {
            streams.spawn(stream_all(channel, pictures.clone(), began + length));
        }
        let count = streams.join_all().await.into_iter().sum();
        let streamed = Rate::new(count, began.elapsed(), server.cpu_time() - before);
        calls.push(called.rate);
        ratio.push(streamed.rate / called.rate);
        cpu.push(streamed.cpu_each.as_secs_f64() / called.cpu_each.as_secs_f64());
    }
    println!("{IN_HAND} in hand, {STREAMS} streams");
    println!("{calls}\n{ratio}\n{cpu}");
}

/// Sends as much as it is let, and counts the answers.
async fn stream_all(channel: Channel, pictures: Vec<bytes::Bytes>, until: Instant) -> usize {
    let config = pb::StreamConfig {
        max_in_flight: (IN_HAND / STREAMS) as u32,
        ..Default::default()
    };
    let (frames, mut answers) = open(channel, config).await;
    let sending = tokio::spawn(async move {
        for (id, picture) in (0..).zip(pictures.iter().cycle()) {
            if Instant::now() >= until {
                break;
            }
            frames.send(frame(id, picture)).await.unwrap();
        }
    });
    let mut count = 0;
    while let Some(message) = answers.message().await.unwrap() {
        if let Some(Told::Result(result)) = message.payload {
            assert!(matches!(result.outcome, Some(Outcome::Detections(_))));
            count += 1;
        }
    }
    sending.await.unwrap();
    count
}

// === fairness ===

async fn fairness(server: &server::Server, photos: &[Vec<u8>], rounds: usize, length: Duration) {
    let pictures: Vec<bytes::Bytes> = photos.iter().map(|photo| photo.clone().into()).collect();
    let mut least = Series::new("least of a slow one's, of its rate", "");
    let mut slow = Series::new("all slow ones, of their rate", "");
    let mut fast = Series::new("the fast one's", "frames/s");
    let mut dropped = Series::new("of it dropped", "frames/s");
    for _ in 0..rounds {
        let channel = server.connect(1).await.remove(0);
        let mut cameras = JoinSet::new();
        for camera in 0..16 {
            let fps = if camera == 0 { 60 } else { 5 };
            let interval = Duration::from_secs(1) / fps;
            let config = pb::StreamConfig {
                model: HEAVY.to_owned(),
                ..latest()
            };
            let camera = watch(channel.clone(), config, pictures.clone(), interval, length);
            cameras.spawn(async move { (fps, camera.await) });
        }
        let counts = cameras.join_all().await;
        let rates: Vec<f64> = counts
            .iter()
            .filter(|(fps, _)| *fps == 5)
            .map(|(_, seen)| seen.answered.len() as f64 / seen.sent as f64)
            .collect();
        let (_, one) = counts.iter().find(|(fps, _)| *fps == 60).unwrap();
        least.push(rates.iter().copied().fold(f64::INFINITY, f64::min));
        slow.push(rates.iter().sum::<f64>() / rates.len() as f64);
        fast.push(one.answered.len() as f64 / length.as_secs_f64());
        dropped.push((one.sent - one.answered.len()) as f64 / length.as_secs_f64());
    }
    println!("one camera at 60/s beside 15 at 5/s, all of one source, on {HEAVY}");
    println!("{least}\n{slow}\n{fast}\n{dropped}");
}

// === freshness ===

async fn freshness(rounds: usize, length: Duration) {
    const CAMERAS: usize = 32;
    const INTERVAL: Duration = Duration::from_millis(66);
    // A batch of eight takes 16 ms, 32 at half the speed: 250 frames a second of the 485 that come.
    let latency = vec![
        (1, Duration::from_millis(8)),
        (8, Duration::from_millis(16)),
    ];
    let engines = Synthetic::new(SyntheticNetwork::detr(16, latency));
    engines.faults().set(Target::All, Fault::SlowedDown(2.0));
    let (address, stop, folder) = synthetic_server(&engines).await;
    let pictures = vec![flat_png()];
    let mut answered = Series::new("answered", "frames/s");
    let mut dropped = Series::new("dropped", "frames/s");
    let mut age = Series::new("age of an answer, median", "ms");
    let mut oldest = Series::new("the oldest", "ms");
    let mut over = Series::new("over interval + preprocess + 2 batches", "%");
    let mut excess = Series::new("by how much at most", "ms");
    for _ in 0..rounds {
        let mut cameras = JoinSet::new();
        for camera in 0..CAMERAS {
            let endpoint = Channel::from_shared(format!("http://{address}")).unwrap();
            let channel = endpoint.connect().await.unwrap();
            let watch = watch(channel, latest(), pictures.clone(), INTERVAL, length);
            // Cameras are not in step.
            let offset = INTERVAL * camera as u32 / CAMERAS as u32;
            cameras.spawn(async move {
                tokio::time::sleep(offset).await;
                watch.await
            });
        }
        let seen = cameras.join_all().await;
        let sent: usize = seen.iter().map(|seen| seen.sent).sum();
        // Nothing newer comes after the last frame of each.
        let fresh = |seen: &Seen| match seen.last_answered {
            true => seen.answered.len() - 1,
            false => seen.answered.len(),
        };
        let timings: Vec<&pb::Timings> = seen
            .iter()
            .flat_map(|seen| &seen.answered[..fresh(seen)])
            .collect();
        let mut ages: Vec<f64> = timings
            .iter()
            .map(|timings| millis(&timings.total))
            .collect();
        ages.sort_by(f64::total_cmp);
        let excesses: Vec<f64> = timings
            .iter()
            .map(|timings| {
                let bound = INTERVAL.as_secs_f64() * 1e3
                    + millis(&timings.preprocess)
                    + 2.0 * millis(&timings.inference);
                millis(&timings.total) - bound
            })
            .collect();
        let late = excesses.iter().filter(|excess| **excess > 0.0).count();
        answered.push(timings.len() as f64 / length.as_secs_f64());
        dropped.push((sent - timings.len()) as f64 / length.as_secs_f64());
        age.push(ages[ages.len() / 2]);
        oldest.push(ages[ages.len() - 1]);
        over.push(100.0 * late as f64 / timings.len() as f64);
        excess.push(excesses.iter().copied().fold(0.0, f64::max));
    }
    println!(
        "{CAMERAS} cameras under LATEST, a frame every {INTERVAL:?}, a device at half its speed"
    );
    for series in [answered, dropped, age, oldest, over, excess] {
        println!("{series}");
    }
    stop.send(()).unwrap();
    drop(folder);
}

async fn synthetic_server(engines: &Synthetic) -> (String, oneshot::Sender<()>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("thing");
    std::fs::create_dir_all(model.join("1")).unwrap();
    std::fs::write(model.join("1/model.onnx"), "no network").unwrap();
    std::fs::write(model.join("labels.txt"), "thing\n").unwrap();
    let card = r#"
        description = "No network at all"
        license = "MIT"
        input = { size = [16, 16], resize = { mode = "stretch" }, color = "rgb" }
        head = { family = "detr" }
        labels = { file = "labels.txt" }
        defaults = { score_threshold = 0.25, max_detections = 100 }
        batching = { max_batch_size = 8 }
        instances = [{ device = "cpu", count = 1 }]
    "#;
    std::fs::write(model.join("model.toml"), card).unwrap();
    let mut config = Config {
        models: folder.path().to_owned(),
        ..Config::default()
    };
    config.grpc.address = "127.0.0.1:0".to_owned();
    config.http.address = "127.0.0.1:0".to_owned();
    let source: Arc<dyn EngineSource> = Arc::new(engines.clone());
    let app = App::bind_with(config, source).await.unwrap();
    let address = app.addresses().grpc.to_string();
    let readiness = app.detector().readiness();
    let (stop, stopped) = oneshot::channel();
    tokio::spawn(app.run(async { drop(stopped.await) }));
    let mut readiness = readiness;
    readiness
        .wait_for(|readiness| readiness.is_ready())
        .await
        .unwrap();
    (address, stop, folder)
}

// === cameras ===

/// What a camera's stream was answered.
struct Seen {
    sent: usize,
    answered: Vec<pb::Timings>,
    /// Whether that is of the last frame too.
    last_answered: bool,
}

/// A camera that sends a frame every `interval` for `length`, whatever becomes of them.
async fn watch(
    channel: Channel,
    config: pb::StreamConfig,
    pictures: Vec<bytes::Bytes>,
    interval: Duration,
    length: Duration,
) -> Seen {
    let (frames, mut answers) = open(channel, config).await;
    let sending = tokio::spawn(async move {
        let began = Instant::now();
        let mut tick = tokio::time::interval(interval);
        let mut sent = 0;
        for picture in pictures.iter().cycle() {
            tick.tick().await;
            if began.elapsed() >= length {
                break;
            }
            frames.send(frame(sent, picture)).await.unwrap();
            sent += 1;
        }
        sent
    });
    let mut answered = Vec::new();
    let mut last_answered = false;
    let mut results = 0;
    while let Some(message) = answers.message().await.unwrap() {
        let Some(Told::Result(result)) = message.payload else {
            continue;
        };
        results += 1;
        let outcome = result.outcome.unwrap();
        last_answered = matches!(outcome, Outcome::Detections(_));
        match outcome {
            Outcome::Detections(found) => answered.push(found.timings.unwrap()),
            Outcome::Dropped(_) => {}
            Outcome::Error(error) => panic!("{error:?}"),
        }
    }
    let sent = sending.await.unwrap();
    assert_eq!(results, sent, "every frame is answered");
    Seen {
        sent: usize::try_from(sent).unwrap(),
        answered,
        last_answered,
    }
}

async fn open(
    channel: Channel,
    config: pb::StreamConfig,
) -> (
    mpsc::Sender<pb::DetectStreamRequest>,
    tonic::Streaming<pb::DetectStreamResponse>,
) {
    // What a client library would buffer.
    let (frames, sent) = mpsc::channel(2);
    let payload = Some(Sent::Config(config));
    frames
        .send(pb::DetectStreamRequest { payload })
        .await
        .unwrap();
    let mut client = server::client(&channel);
    let answers = client.detect_stream(ReceiverStream::new(sent));
    (frames, answers.await.unwrap().into_inner())
}

fn latest() -> pb::StreamConfig {
    let mut config = pb::StreamConfig::default();
    config.set_frame_policy(pb::FramePolicy::Latest);
    config
}

fn frame(frame_id: u64, picture: &bytes::Bytes) -> pb::DetectStreamRequest {
    pb::DetectStreamRequest {
        payload: Some(Sent::Frame(pb::Frame {
            frame_id,
            image: server::request(picture).image,
            ..Default::default()
        })),
    }
}

fn flat_png() -> bytes::Bytes {
    let mut png = Vec::new();
    let encoder = image::codecs::png::PngEncoder::new(&mut png);
    let picture = image::RgbImage::from_pixel(16, 16, image::Rgb([100, 0, 0]));
    picture.write_with_encoder(encoder).unwrap();
    png.into()
}

fn millis(duration: &Option<prost_types::Duration>) -> f64 {
    let duration = duration.as_ref().unwrap();
    duration.seconds as f64 * 1e3 + f64::from(duration.nanos) / 1e6
}
