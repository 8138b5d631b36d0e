//! Who gets what of a server that is asked for more than it can do.
//!
//! `cargo bench --bench fairness` runs it on the release binary with photos, sources named by a header, and deadlines of a
//! second. Calls come at random (Poisson), whether or not the server keeps up.
//!
//! - *A flood beside modest ones*: 15 sources ask for six tenths of their sixteenth of the capacity, one for three times
//!   the whole. On one model; then with the modest ones on a light and on a heavy model, and the flood on either.
//! - *Equal ones*: 16 sources ask for two to four times the sixteenth that each can have. On one model, and half of them on
//!   each of two.
//! - *One after another*: 24 sources with one caller each, who sends the next picture when the last is answered, and one with
//!   eight such callers.

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
use detectd::grpc::pb;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;
use tokio::task::JoinSet;
use tonic::transport::Channel;
use tonic::{Code, Request};

use report::Series;

#[derive(Debug, Parser)]
struct Arguments {
    /// Rounds; each figure is their median.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Length of each measurement, in seconds.
    #[arg(long, default_value_t = 8)]
    seconds: u64,
    /// What cargo passes to every bench.
    #[arg(long, hide = true)]
    bench: bool,
}

const LIGHT: &str = "yolox-nano";
const HEAVY: &str = "deimv2-femto";

/// With the flood, where there is one.
const SOURCES: usize = 16;

/// What a modest source asks for, of its share.
const MODEST: f64 = 0.6;

/// What the flood asks for, of the whole capacity.
const FLOOD: f64 = 3.0;

/// Sources with a single caller each, and the callers of the one beside them.
const SINGLE: usize = 24;
const CALLERS: usize = 8;

const DEADLINE: Duration = Duration::from_secs(1);

/// Not counted, at the beginning of each measurement.
const WARM_UP: Duration = Duration::from_secs(2);

/// What somebody asks for.
#[derive(Debug, Clone, Copy)]
struct Source {
    model: &'static str,
    /// Calls a second.
    rate: f64,
}

/// What became of it.
#[derive(Debug, Clone, Copy, Default)]
struct Served {
    asked: usize,
    in_time: usize,
    /// Let in, and not answered in time.
    late: usize,
}

struct Bench {
    channels: Vec<Channel>,
    pictures: Vec<bytes::Bytes>,
    length: Duration,
}

fn main() {
    let arguments = Arguments::parse();
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("models");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/images/coco_val_ccby27");
    let Ok(entries) = std::fs::read_dir(folder) else {
        println!("skipped: the fairness bench (../shared is absent)");
        return;
    };
    let photos: Vec<Vec<u8>> = entries
        .map(|entry| std::fs::read(entry.unwrap().path()).unwrap())
        .collect();
    let settings = [("DETECTD_GRPC_SOURCE_HEADER", "x-source")];
    let server = server::Server::start_with(&repository, LIGHT, &settings);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let channels = server.connect(4).await;
        let pictures = photos.into_iter().map(bytes::Bytes::from).collect();
        let bench = Bench {
            channels,
            pictures,
            length: Duration::from_secs(arguments.seconds),
        };
        bench.run(arguments.rounds).await;
    });
}

/// One when all have the same, one over their number when one has everything (Jain, 1984).
fn jain(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    sum * sum / (values.len() as f64 * squares)
}

/// Above 0 and at most 1.
fn uniform(random: &mut Pcg64Mcg) -> f64 {
    ((random.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
}

// === impl Bench ===

impl Bench {
    async fn run(&self, rounds: usize) {
        let length = self.length.as_secs();
        println!("{rounds} rounds of {length} s, deadlines of {DEADLINE:?}, {SOURCES} sources");
        for model in [LIGHT, HEAVY] {
            self.capacity(model).await;
        }
        let mut capacities = [
            Series::new("capacity on the light model", "pictures/s"),
            Series::new("capacity on the heavy model", "pictures/s"),
        ];
        let flooded = [
            ("one model", [LIGHT, LIGHT], LIGHT),
            ("two models, the flood on the light", [LIGHT, HEAVY], LIGHT),
            ("two models, the flood on the heavy", [LIGHT, HEAVY], HEAVY),
        ];
        let name = |name| Series::new(name, "");
        let mut modest = flooded.map(|_| {
            [
                name("least of a modest one's, of its rate"),
                name("Jain's index of the modest ones"),
                name("late, of all modest calls"),
                name("the flood's, of the capacity"),
                name("all work, of the capacity"),
            ]
        });
        let equals = [
            ("one model", [LIGHT, LIGHT]),
            ("two models", [LIGHT, HEAVY]),
        ];
        let mut equal = equals.map(|_| {
            [
                name("Jain's index of the equal ones"),
                name("late, of those let in"),
                name("all work, of the capacity"),
            ]
        });
        let mut after_another = [
            name("that of the one with eight callers, of the mean of the others"),
            name("least of the others', of their mean"),
            name("Jain's index of all"),
        ];
        for _ in 0..rounds {
            let light = self.capacity(LIGHT).await;
            let heavy = self.capacity(HEAVY).await;
            capacities[0].push(light);
            capacities[1].push(heavy);
            let capacity = |model| if model == LIGHT { light } else { heavy };
            // In what the whole server does in a second, so that pictures of two models can be added.
            let share = |source: &Source, served: &Served| {
                served.in_time as f64 / self.length.as_secs_f64() / capacity(source.model)
            };
            for ((_, models, flood), series) in flooded.iter().zip(&mut modest) {
                let mut sources: Vec<Source> = (0..SOURCES - 1)
                    .map(|number| {
                        let model = models[number % 2];
                        let rate = MODEST * capacity(model) / SOURCES as f64;
                        Source { model, rate }
                    })
                    .collect();
                sources.push(Source {
                    model: flood,
                    rate: FLOOD * capacity(*flood),
                });
                let served = self.offer(&sources).await;
                let shares: Vec<f64> = sources
                    .iter()
                    .zip(&served)
                    .map(|(source, served)| share(source, served))
                    .collect();
                let (others, flood) = (&served[..SOURCES - 1], shares[SOURCES - 1]);
                let rates: Vec<f64> = others
                    .iter()
                    .map(|served| served.in_time as f64 / served.asked as f64)
                    .collect();
                let asked: usize = others.iter().map(|served| served.asked).sum();
                let late: usize = others.iter().map(|served| served.late).sum();
                let figures = [
                    rates.iter().copied().fold(f64::INFINITY, f64::min),
                    jain(&rates),
                    late as f64 / asked as f64,
                    flood,
                    shares.iter().sum(),
                ];
                for (series, figure) in series.iter_mut().zip(figures) {
                    series.push(figure);
                }
            }
            let answers = self.one_after_another().await;
            let mean = answers[1..].iter().sum::<f64>() / SINGLE as f64;
            let least = answers[1..].iter().copied().fold(f64::INFINITY, f64::min);
            let figures = [answers[0] / mean, least / mean, jain(&answers)];
            for (series, figure) in after_another.iter_mut().zip(figures) {
                series.push(figure);
            }
            for ((_, models), series) in equals.iter().zip(&mut equal) {
                let sources: Vec<Source> = (0..SOURCES)
                    .map(|number| {
                        let model = models[number % 2];
                        // Pairs of one of each model that ask for the same part of the server.
                        let times = if number / 2 % 2 == 0 { 2.0 } else { 4.0 };
                        let rate = times * capacity(model) / SOURCES as f64;
                        Source { model, rate }
                    })
                    .collect();
                let served = self.offer(&sources).await;
                let shares: Vec<f64> = sources
                    .iter()
                    .zip(&served)
                    .map(|(source, served)| share(source, served))
                    .collect();
                let in_time: usize = served.iter().map(|served| served.in_time).sum();
                let late: usize = served.iter().map(|served| served.late).sum();
                let figures = [
                    jain(&shares),
                    late as f64 / (in_time + late).max(1) as f64,
                    shares.iter().sum(),
                ];
                for (series, figure) in series.iter_mut().zip(figures) {
                    series.push(figure);
                }
            }
        }
        for series in capacities {
            println!("{series}");
        }
        println!(
            "one with {CALLERS} callers beside {SINGLE} with one, each of whom sends one picture after another"
        );
        after_another.iter().for_each(|series| println!("{series}"));
        for ((name, _, _), series) in flooded.iter().zip(modest) {
            println!("a flood of {FLOOD} x the capacity beside 15 modest sources, {name}");
            series.iter().for_each(|series| println!("{series}"));
        }
        for ((name, _), series) in equals.iter().zip(equal) {
            println!("equal sources that all ask for too much, {name}");
            series.iter().for_each(|series| println!("{series}"));
        }
    }

    /// Answers to each source: first the one with several callers, then the others.
    async fn one_after_another(&self) -> Vec<f64> {
        tokio::time::sleep(WARM_UP).await;
        let end = Instant::now() + self.length;
        let mut callers = JoinSet::new();
        let sources = std::iter::repeat_n(0, CALLERS).chain(1..=SINGLE);
        for (caller, source) in sources.enumerate() {
            let mut client = server::client(&self.channels[caller % self.channels.len()]);
            let pictures = self.pictures.clone();
            callers.spawn(async move {
                let (mut answered, name) = (0.0, format!("after-{source}"));
                for picture in pictures.iter().cycle().skip(caller) {
                    if Instant::now() >= end {
                        break;
                    }
                    let mut message = call(picture, LIGHT, &name);
                    // Nobody is refused: this is about whose turn it is.
                    message.metadata_mut().remove("grpc-timeout");
                    client.detect(message).await.unwrap();
                    answered += 1.0;
                }
                (source, answered)
            });
        }
        let mut answers = vec![0.0; 1 + SINGLE];
        for (source, answered) in callers.join_all().await {
            answers[source] += answered;
        }
        answers
    }

    /// Pictures a second with a closed loop of 32 callers.
    async fn capacity(&self, model: &'static str) -> f64 {
        // Those who asked for too much are forgotten.
        tokio::time::sleep(WARM_UP).await;
        let began = Instant::now();
        let mut callers = JoinSet::new();
        for caller in 0..32 {
            let mut client = server::client(&self.channels[caller % self.channels.len()]);
            let (pictures, length) = (self.pictures.clone(), self.length / 2);
            callers.spawn(async move {
                let mut answered = 0;
                for picture in pictures.iter().cycle().skip(caller) {
                    if began.elapsed() >= length {
                        break;
                    }
                    match client.detect(call(picture, model, "capacity")).await {
                        Ok(_) => answered += 1,
                        // It is still loading.
                        Err(status) => assert_eq!(status.code(), Code::Unavailable, "{status:?}"),
                    }
                }
                answered
            });
        }
        let answered: usize = callers.join_all().await.into_iter().sum();
        answered as f64 / began.elapsed().as_secs_f64()
    }

    /// Every source asks at its rate, whatever becomes of it.
    async fn offer(&self, sources: &[Source]) -> Vec<Served> {
        let began = Instant::now();
        let mut asking = JoinSet::new();
        for (number, source) in sources.iter().copied().enumerate() {
            let client = server::client(&self.channels[number % self.channels.len()]);
            let (pictures, length) = (self.pictures.clone(), self.length);
            asking.spawn(async move {
                let mut random = Pcg64Mcg::new(number as u128);
                let mut calls = JoinSet::new();
                let mut at = Duration::ZERO;
                let name = format!("source-{number}");
                for picture in pictures.iter().cycle().skip(number) {
                    // The time between two calls that come at random.
                    at += Duration::from_secs_f64(-uniform(&mut random).ln() / source.rate);
                    if at >= WARM_UP + length {
                        break;
                    }
                    tokio::time::sleep_until((began + at).into()).await;
                    let request = call(picture, source.model, &name);
                    let mut client = client.clone();
                    calls.spawn(async move {
                        let sent = Instant::now();
                        let answer = client.detect(request).await;
                        let code = answer.map_or_else(|status| status.code(), |_| Code::Ok);
                        (at >= WARM_UP, code, sent.elapsed() <= DEADLINE)
                    });
                }
                let mut served = Served::default();
                for (counts, code, in_time) in calls.join_all().await {
                    if !counts {
                        continue;
                    }
                    served.asked += 1;
                    match code {
                        Code::Ok if in_time => served.in_time += 1,
                        Code::Ok | Code::DeadlineExceeded | Code::Cancelled => served.late += 1,
                        Code::ResourceExhausted => {} // refused
                        other => panic!("a call ended with {other:?}"),
                    }
                }
                (number, served)
            });
        }
        let mut served = asking.join_all().await;
        served.sort_by_key(|(number, _)| *number);
        served.into_iter().map(|(_, served)| served).collect()
    }
}

fn call(picture: &bytes::Bytes, model: &str, source: &str) -> Request<pb::DetectRequest> {
    let mut request = Request::new(pb::DetectRequest {
        model: model.to_owned(),
        ..server::request(picture)
    });
    if source != "capacity" {
        request.set_timeout(DEADLINE);
    }
    let metadata = request.metadata_mut();
    metadata.insert("x-source", source.parse().unwrap());
    request
}
