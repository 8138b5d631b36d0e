//! More than the server can do: what is answered in time at 0.5 to 5 times its capacity.
//!
//! `cargo bench --bench overload` runs it on the release binary with small pictures and deadlines of 200 ms. Calls
//! come at random (Poisson), whether or not the server keeps up. The generator shares the machine: what it takes of
//! the processor is said, and the goodput is also given as what it would be if the server had had that too. What
//! counts is that the goodput past capacity stays near its peak, that what is let in is answered in time, and how
//! long a refusal takes in the server.

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
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;
use tokio::task::JoinSet;
use tonic::{Code, Request};

use report::cpu_time;

#[derive(Debug, Parser)]
struct Arguments {
    /// Rounds; each figure is their median.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Length of each measurement, in seconds.
    #[arg(long, default_value_t = 6)]
    seconds: u64,
    /// Deadline of each call, in milliseconds.
    #[arg(long, default_value_t = 200)]
    deadline_ms: u64,
    /// What cargo passes to every bench.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Of the capacity.
const LOADS: [f64; 8] = [0.5, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0];

/// The longer side of what is sent, in pixels: about what the network takes.
const SIDE: u32 = 416;

/// Not counted, at the beginning of each measurement: what was learned at another load is learned anew.
const WARM_UP: Duration = Duration::from_secs(2);

/// What became of the calls of one measurement.
#[derive(Debug, Default, Clone)]
struct Outcome {
    in_time: usize,
    late: usize,
    refused: usize,
    other: usize,
    /// Cores that the generator and the server took.
    generator: f64,
    server: f64,
    seconds: f64,
    /// The bucket bound below which 99 of 100 refusals were, in seconds.
    refusal_p99: f64,
}

fn main() {
    let arguments = Arguments::parse();
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("models");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/images/coco_val_ccby27");
    let Ok(entries) = std::fs::read_dir(folder) else {
        println!("skipped: the overload bench (../shared is absent)");
        return;
    };
    let pictures: Vec<bytes::Bytes> = entries
        .map(|entry| small(&std::fs::read(entry.unwrap().path()).unwrap()))
        .collect();
    let server = server::Server::start(&repository, "yolox-nano");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let cores = std::thread::available_parallelism().unwrap().get() as f64;
    runtime.block_on(async {
        let bytes: Vec<Vec<u8>> = pictures.iter().map(|picture| picture.to_vec()).collect();
        let length = Duration::from_secs(arguments.seconds);
        let deadline = Duration::from_millis(arguments.deadline_ms);
        server.calls(&bytes, 32, Duration::from_secs(3)).await;
        let capacity = server.calls(&bytes, 32, length).await.0;
        println!("{cores} cores; capacity with 32 callers: {capacity:.1} pictures/s; deadlines of {:?}", deadline);
        println!("  load   offered/s  goodput/s   if alone  in time of let in  refused/s  refusal p99  generator  server");
        let mut rounds: Vec<Vec<Outcome>> = vec![Vec::new(); LOADS.len()];
        for _ in 0..arguments.rounds {
            for (load, outcomes) in LOADS.iter().zip(&mut rounds) {
                outcomes.push(offer(&server, &pictures, load * capacity, length, deadline).await);
            }
        }
        let mut goodputs = Vec::new();
        for (load, outcomes) in LOADS.iter().zip(&rounds) {
            let figure = |of: &dyn Fn(&Outcome) -> f64| median(outcomes.iter().map(of).collect());
            let alone = |outcome: &Outcome| outcome.goodput() * cores / (cores - outcome.generator);
            goodputs.push((*load, figure(&alone)));
            println!(
                "  {load:<4} {:>10.1} {:>10.1} {:>10.1} {:>17.2}% {:>10.1} {:>9.1} ms {:>9.2} {:>8.2}",
                figure(&|o| (o.in_time + o.late + o.refused + o.other) as f64 / o.seconds),
                figure(&Outcome::goodput),
                figure(&alone),
                100.0 * figure(&|o| o.in_time as f64 / (o.in_time + o.late).max(1) as f64),
                figure(&|o| o.refused as f64 / o.seconds),
                1e3 * figure(&|o| o.refusal_p99),
                figure(&|o| o.generator),
                figure(&|o| o.server),
            );
            let other: usize = outcomes.iter().map(|outcome| outcome.other).sum();
            assert_eq!(other, 0, "calls ended in a way that is none of these");
        }
        let peak = goodputs.iter().map(|(_, goodput)| *goodput).fold(0.0, f64::max);
        let past = goodputs.iter().filter(|(load, _)| *load >= 1.0);
        let least = past.map(|(_, goodput)| goodput / peak).fold(1.0, f64::min);
        println!("  least goodput past capacity, of its peak (at least 0.95): {least:.3}");
    });
}

/// A picture as a client would send it that knows what the network takes.
fn small(photo: &[u8]) -> bytes::Bytes {
    let reader = image::ImageReader::new(std::io::Cursor::new(photo));
    let picture = reader.with_guessed_format().unwrap().decode().unwrap();
    let picture = picture.into_rgb8();
    let scale = f64::from(SIDE) / f64::from(picture.width().max(picture.height()));
    let side = |side: u32| (f64::from(side) * scale).round() as u32;
    let (width, height) = (side(picture.width()), side(picture.height()));
    let filter = image::imageops::FilterType::Triangle;
    let small = image::imageops::resize(&picture, width, height, filter);
    let mut jpeg = Vec::new();
    let encoder = image::codecs::jpeg::JpegEncoder::new_with_quality(&mut jpeg, 85);
    small.write_with_encoder(encoder).unwrap();
    jpeg.into()
}

/// Above 0 and at most 1.
fn uniform(random: &mut Pcg64Mcg) -> f64 {
    ((random.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
}

/// Offers `rate` calls a second for `length`, whatever becomes of them.
async fn offer(
    server: &server::Server,
    pictures: &[bytes::Bytes],
    rate: f64,
    length: Duration,
    deadline: Duration,
) -> Outcome {
    let channels = server.connect(4).await;
    let mut random = Pcg64Mcg::new(7);
    let mut calls = JoinSet::new();
    let began = Instant::now();
    let (mut at, mut number) = (Duration::ZERO, 0);
    let mut before = None;
    while at < WARM_UP + length {
        // The time between two calls that come at random.
        let gap = -uniform(&mut random).ln() / rate;
        at += Duration::from_secs_f64(gap);
        tokio::time::sleep_until((began + at).into()).await;
        if at >= WARM_UP && before.is_none() {
            before = Some((
                Instant::now(),
                cpu_time("self"),
                server.cpu_time(),
                server.metrics(),
            ));
        }
        let mut client = server::client(&channels[number % channels.len()]);
        let mut request = Request::new(server::request(&pictures[number % pictures.len()]));
        request.set_timeout(deadline);
        let counts = before.is_some();
        number += 1;
        calls.spawn(async move {
            let started = Instant::now();
            let outcome = client.detect(request).await;
            let in_time = started.elapsed() <= deadline;
            (
                counts,
                outcome.map(drop).map_err(|status| status.code()),
                in_time,
            )
        });
    }
    let (since, own, servers, metrics) = before.unwrap();
    let seconds = since.elapsed().as_secs_f64();
    let cores = |cpu: Duration| cpu.as_secs_f64() / seconds;
    let mut outcome = Outcome {
        generator: cores(cpu_time("self") - own),
        server: cores(server.cpu_time() - servers),
        seconds,
        refusal_p99: refusal_p99(&metrics, &server.metrics()),
        ..Outcome::default()
    };
    for (counts, answer, in_time) in calls.join_all().await {
        let count = match answer {
            _ if !counts => continue,
            Ok(()) if in_time => &mut outcome.in_time,
            Ok(()) | Err(Code::DeadlineExceeded | Code::Cancelled) => &mut outcome.late,
            Err(Code::ResourceExhausted) => &mut outcome.refused,
            Err(_) => &mut outcome.other,
        };
        *count += 1;
    }
    outcome
}

/// From what `/metrics` said before and after.
fn refusal_p99(before: &str, after: &str) -> f64 {
    let buckets = |text: &str| -> Vec<(f64, f64)> {
        let lines = text.lines();
        let buckets =
            lines.filter_map(|line| line.strip_prefix("detectd_refusal_seconds_bucket{le=\""));
        let parse = |line: &str| {
            let (bound, count) = line.split_once("\"} ").unwrap();
            let bound = bound.parse().unwrap_or(f64::INFINITY);
            (bound, count.parse::<f64>().unwrap())
        };
        buckets.map(parse).collect()
    };
    let (before, after) = (buckets(before), buckets(after));
    let all = after.last().unwrap().1 - before.last().unwrap().1;
    let within = before
        .iter()
        .zip(&after)
        .find(|((_, was), (_, is))| is - was >= 0.99 * all);
    match all > 0.0 {
        true => within.unwrap().1.0,
        false => 0.0,
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

// === impl Outcome ===

impl Outcome {
    fn goodput(&self) -> f64 {
        self.in_time as f64 / self.seconds
    }
}
