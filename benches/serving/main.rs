//! What serving costs: the server against the same work done in a process without a server.
//!
//! `make bench` runs it. Every figure is the median of several rounds, in each of which the two sides take
//! turns, so that a noisy machine disturbs both; the spread is printed beside it. What is printed is:
//!
//! - throughput: one thread a core that decodes, runs the network and reads its output, as fast as it can
//!   (the limit), and the server under 32 callers;
//! - CPU seconds a request of both, the callers' not counted;
//! - latency: the time of one picture in the process, and as one caller sees it;
//! - health: how long a health check takes while 64 callers send 12-megapixel photos.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench that cannot go on says so and ends"
)]

mod in_process;
mod report;
#[allow(
    dead_code,
    reason = "shared with the hostile bench, which needs more of it"
)]
mod server;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use image::{ExtendedColorType, ImageEncoder};

use report::Series;

#[derive(Debug, Parser)]
struct Arguments {
    /// The model in the repository.
    #[arg(long, default_value = "yolox-nano")]
    model: String,
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

const CALLERS: usize = 32;
const HEALTH_CALLERS: usize = 64;

fn main() {
    let arguments = Arguments::parse();
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("models");
    let photos = photos();
    let length = Duration::from_secs(arguments.seconds);
    println!(
        "{} on {} photos, {} rounds of {} s, {} cores",
        arguments.model,
        photos.len(),
        arguments.rounds,
        arguments.seconds,
        std::thread::available_parallelism().unwrap()
    );

    let process = in_process::InProcess::new(&repository, &arguments.model);
    let server = server::Server::start(&repository, &arguments.model);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    // The first of everything is slower.
    process.throughput(&photos, Duration::from_secs(1));
    runtime.block_on(server.throughput(&photos, CALLERS, Duration::from_secs(1)));

    let (mut limit, mut served) = (
        Series::new("limit", "pictures/s"),
        Series::new("server, 32 callers", "pictures/s"),
    );
    let mut throughput = Series::new("throughput ratio (at least 0.85)", "");
    let (mut limit_cpu, mut served_cpu) = (
        Series::new("limit", "CPU ms/picture"),
        Series::new("server", "CPU ms/picture"),
    );
    let mut cpu = Series::new("CPU ratio (at most 1.15)", "");
    let (mut alone, mut called) = (
        Series::new("one picture in the process, p50", "ms"),
        Series::new("one caller, p50", "ms"),
    );
    let mut latency = Series::new("added by serving (at most 2 ms)", "ms");
    for _ in 0..arguments.rounds {
        let bare = process.throughput(&photos, length);
        let full = runtime.block_on(server.throughput(&photos, CALLERS, length));
        limit.push(bare.rate);
        served.push(full.rate);
        throughput.push(full.rate / bare.rate);
        limit_cpu.push(bare.cpu_each.as_secs_f64() * 1e3);
        served_cpu.push(full.cpu_each.as_secs_f64() * 1e3);
        cpu.push(full.cpu_each.as_secs_f64() / bare.cpu_each.as_secs_f64());
        let bare = process.latency(&photos, length / 2);
        let full = runtime.block_on(server.latency(&photos, length / 2));
        alone.push(bare.as_secs_f64() * 1e3);
        called.push(full.as_secs_f64() * 1e3);
        latency.push((full.as_secs_f64() - bare.as_secs_f64()) * 1e3);
    }
    for series in [
        limit, served, throughput, limit_cpu, served_cpu, cpu, alone, called, latency,
    ] {
        println!("{series}");
    }

    let large = twelve_megapixels();
    let (mut median, mut tail) = (
        Series::new("health check, p50", "ms"),
        Series::new("health check, p99 (at most 50 ms)", "ms"),
    );
    for _ in 0..arguments.rounds {
        let waits = runtime.block_on(server.health_under(&large, HEALTH_CALLERS, length));
        median.push(waits.percentile(50).as_secs_f64() * 1e3);
        tail.push(waits.percentile(99).as_secs_f64() * 1e3);
    }
    println!("while {HEALTH_CALLERS} callers send 4000x3000 JPEGs:\n{median}\n{tail}");
}

/// The test photos, or some of our own where they are absent.
fn photos() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/images/coco_val_ccby27");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        println!("the test photos are absent; made-up ones stand in for them");
        return (0..8).map(|seed| jpeg(640, 480, seed)).collect();
    };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect()
}

fn twelve_megapixels() -> Vec<u8> {
    jpeg(4_000, 3_000, 1)
}

/// A picture with smooth and busy parts, so that it decodes about as a photo does.
fn jpeg(width: u32, height: u32, seed: u32) -> Vec<u8> {
    let mut noise = seed.wrapping_mul(2_654_435_761).max(1);
    let mut pixels = Vec::with_capacity((width * height * 3) as usize);
    for y in 0..height {
        for x in 0..width {
            noise ^= noise << 13;
            noise ^= noise >> 17;
            noise ^= noise << 5;
            let grain = if (x / 64 + y / 64) % 3 == 0 {
                noise % 48
            } else {
                noise % 4
            };
            pixels.extend(
                [
                    x * 200 / width + grain,
                    y * 200 / height + grain,
                    (x + y) % 256 / 2 + grain,
                ]
                .map(|v| v as u8),
            );
        }
    }
    let mut jpeg = Vec::new();
    let encoder = image::codecs::jpeg::JpegEncoder::new_with_quality(&mut jpeg, 90);
    encoder
        .write_image(&pixels, width, height, ExtendedColorType::Rgb8)
        .unwrap();
    jpeg
}
