//! What the simulator says about this machine, against what this machine does.
//!
//! `cargo bench --bench prediction` first asks the server for one picture at a time and reads from its replies what each
//! stage takes. A scenario is made of nothing but that, and played; then as many callers as the scenario has
//! ask the real server. Rounds alternate between measuring the stages, predicting and running.

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
use std::time::{Duration, Instant};

use clap::Parser;
use detectd::simulation::{Document, simulate};

use report::Series;

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

/// How many ask at a time.
const CALLERS: [usize; 2] = [8, 32];

/// What one picture takes, alone, in seconds of a core.
#[derive(Debug, Clone, Copy)]
struct Stages {
    preprocess: f64,
    inference: f64,
    postprocess: f64,
    /// The rest of the server's CPU time: receiving, answering, scheduling.
    transport: f64,
}

fn main() {
    let arguments = Arguments::parse();
    let length = Duration::from_secs(arguments.seconds);
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("models");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/images/coco_val_ccby27");
    let Ok(entries) = std::fs::read_dir(folder) else {
        println!("skipped: the prediction bench (../shared is absent)");
        return;
    };
    let photos: Vec<Vec<u8>> = entries
        .map(|entry| std::fs::read(entry.unwrap().path()).unwrap())
        .collect();
    let server = server::Server::start(&repository, "yolox-nano");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let cores = std::thread::available_parallelism().unwrap().get();
    runtime.block_on(async {
        server.calls(&photos, 8, Duration::from_secs(2)).await;
        for callers in CALLERS {
            let mut series = [
                Series::new("throughput, predicted", "pictures/s"),
                Series::new("throughput, measured", "pictures/s"),
                Series::new("of it (0.90 to 1.10)", ""),
                Series::new("p50, predicted", "ms"),
                Series::new("p50, measured", "ms"),
                Series::new("of it (0.90 to 1.10)", ""),
            ];
            for _ in 0..arguments.rounds {
                let stages = stages(&server, &photos, length).await;
                let measured = server.calls(&photos, callers, length).await;
                let predicted = predict(stages, cores, callers);
                let p50 = measured.1.as_secs_f64() * 1e3;
                let figures = [
                    predicted.0,
                    measured.0,
                    predicted.0 / measured.0,
                    predicted.1,
                    p50,
                    predicted.1 / p50,
                ];
                series
                    .iter_mut()
                    .zip(figures)
                    .for_each(|(series, figure)| series.push(figure));
            }
            println!("{callers} callers, {cores} cores");
            series.iter().for_each(|series| println!("{series}"));
        }
    });
}

/// Asks for one picture after another.
async fn stages(server: &server::Server, photos: &[Vec<u8>], length: Duration) -> Stages {
    let mut client = server::client(&server.connect(1).await[0]);
    let photos: Vec<bytes::Bytes> = photos.iter().map(|photo| photo.clone().into()).collect();
    let (began, cpu) = (Instant::now(), server.cpu_time());
    let (mut sums, mut count) = ([0.0; 3], 0.0);
    for photo in photos.iter().cycle() {
        let reply = client.detect(server::request(photo)).await.unwrap();
        let timings = reply.into_inner().timings.unwrap();
        let parts = [timings.preprocess, timings.inference, timings.postprocess];
        for (sum, part) in sums.iter_mut().zip(parts) {
            *sum += Duration::try_from(part.unwrap()).unwrap().as_secs_f64();
        }
        count += 1.0;
        if began.elapsed() > length {
            break;
        }
    }
    let [preprocess, inference, postprocess] = sums.map(|sum| sum / count);
    let all = (server.cpu_time() - cpu).as_secs_f64() / count;
    Stages {
        preprocess,
        inference,
        postprocess,
        transport: (all - preprocess - inference - postprocess).max(0.0),
    }
}

/// Throughput a second, and median wait in milliseconds.
fn predict(stages: Stages, cores: usize, callers: usize) -> (f64, f64) {
    let ms = |seconds: f64| format!("{}us", (seconds * 1e6).round());
    let text = format!(
        r#"
        seed = 1
        duration = "30s"
        warm_up = "5s"
        workers = {cores}
        [[model]]
        name = "yolox-nano"
        prepare = "{prepare}"
        postprocess = "{postprocess}"
        transport = "{transport}"
        [[model.device]]
        count = {cores}
        shares_cores = true
        latency = {{ 1 = "{inference}" }}
        [[source]]
        name = "callers"
        arrivals = {{ closed = {{ callers = {callers} }} }}
        "#,
        prepare = ms(stages.preprocess),
        postprocess = ms(stages.postprocess),
        transport = ms(stages.transport),
        inference = ms(stages.inference),
    );
    let document = Document::parse(&text, "this bench", Path::new("."));
    let report = simulate(&document.unwrap().scenario().unwrap());
    (report.tally.throughput_per_s, report.latency.p50_ms)
}
