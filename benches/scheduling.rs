//! What the scheduler itself costs, and how it scales over devices: line, shelf, actor and instance threads, for real, with
//! engines that run no network and tensors that are ready.
//!
//! `cargo bench --bench scheduling` prints
//!
//! - the overhead: requests a second through one instance whose runs take no time, and CPU time of each;
//! - the scaling: 1, 2, 4 and 8 devices of 8 ms a batch of 8, against one.

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

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clap::Parser;
use detectd::device::synthetic::{Synthetic, SyntheticNetwork};
use detectd::device::{
    End, EngineError, Inferred, Instance, InstanceConfig, Loaded, Metrics, Picture, Reports,
};
use detectd::model::Device;
use detectd::scheduling::{
    Arrival, Batcher, Completions, Config, Deadline, InstanceKey, Kind, ModelKey, Outcome,
    Placement, Policy, Priority, RequestId, Share, SourceKey, Stages, StreamKey, completions,
};
use detectd::tensor::{DType, Tensor};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use report::{Series, cpu_time};

#[derive(Debug, Parser)]
struct Arguments {
    /// Rounds; each figure is their median.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Length of each measurement, in seconds.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// What cargo passes to every bench.
    #[arg(long, hide = true)]
    bench: bool,
}

const MODEL: ModelKey = ModelKey(0);

/// Pixels a side: what is copied into a batch should not be what is measured.
const SIDE: usize = 8;

/// Requests that are under way at a time, for each picture that the devices hold.
const DEEP: usize = 4;

const SOURCES: u64 = 16;

type Answer = oneshot::Sender<()>;

/// Hands batches to real instances; a request is prepared the moment that it may be.
struct Ready {
    tensor: Arc<Tensor>,
    completions: Completions<Answer, Picture<Answer>>,
    instances: Arc<Mutex<HashMap<InstanceKey, Instance<Answer>>>>,
}

impl Stages<Answer, Picture<Answer>> for Ready {
    fn prepare(&mut self, id: RequestId, context: Answer, _waited: Duration) {
        let tensor = self.tensor.clone();
        let picture = Picture { tensor, context };
        self.completions
            .prepared(id, picture, Vec::new(), Duration::ZERO);
    }

    fn run(
        &mut self,
        instance: InstanceKey,
        bucket: usize,
        batch: Vec<(RequestId, Picture<Answer>)>,
    ) {
        let pictures = batch.into_iter().map(|(_, picture)| picture).collect();
        let instances = self.instances.lock().unwrap();
        instances[&instance].try_send((bucket, pictures)).unwrap();
    }

    fn eject(&mut self, instance: InstanceKey) {
        panic!("instance {} hangs", instance.0);
    }

    fn drop_waiting(&mut self, _: Answer, outcome: Outcome) {
        panic!("a request was let go: {outcome:?}");
    }

    fn drop_ready(&mut self, _: Picture<Answer>, outcome: Outcome) {
        panic!("a request was let go: {outcome:?}");
    }
}

struct Told {
    key: InstanceKey,
    loaded: Option<oneshot::Sender<Loaded>>,
    completions: Completions<Answer, Picture<Answer>>,
}

impl Reports<Answer> for Told {
    fn loaded(&mut self, outcome: Result<Loaded, EngineError>) {
        drop(self.loaded.take().unwrap().send(outcome.unwrap()));
    }

    fn batch_finished(&mut self, took: Option<Duration>) {
        self.completions.batch_finished(self.key, took);
    }

    fn inferred(&mut self, inferred: Inferred<Answer>) {
        inferred.context.send(()).unwrap_or(());
    }

    fn failed(&mut self, _: Answer, error: EngineError) {
        panic!("a run failed: {error}");
    }

    fn ended(&mut self, _: End) {}
}

/// Requests a second, and CPU time of one.
struct Rate {
    rate: f64,
    cpu_each: Duration,
}

/// Keeps `devices` busy that take `latency` for a batch of at most `batch`.
async fn run(devices: u32, batch: usize, latency: Duration, length: Duration) -> Rate {
    // As many workers as pictures can be ready: preparing takes no time and must not be what is waited for.
    let pictures = devices as usize * batch * DEEP;
    let config = Config {
        max_waiting: 2 * pictures,
        policy: Policy {
            workers: pictures,
            max_wait: Duration::from_secs(600),
        },
        max_instances: devices as usize,
    };
    let (completions, receiver) = completions(&config);
    let instances = Arc::new(Mutex::new(HashMap::new()));
    let stages = Ready {
        tensor: Arc::new(Tensor::zeros(DType::F32, &[3, SIDE, SIDE])),
        completions: completions.clone(),
        instances: instances.clone(),
    };
    let (batcher, worker) = Batcher::new(&config, receiver, stages);
    let worker = tokio::spawn(worker.run());
    let sizes = (0..)
        .map(|power| 1 << power)
        .take_while(|size| *size <= batch);
    let network = SyntheticNetwork::detr(SIDE, sizes.map(|size| (size, latency)).collect());
    let source = Arc::new(Synthetic::new(network));
    for key in (0..devices).map(InstanceKey) {
        let (loaded, warm) = oneshot::channel();
        let reports = Told {
            key,
            loaded: Some(loaded),
            completions: completions.clone(),
        };
        let config = InstanceConfig {
            model: "synthetic".to_owned(),
            device: Device::Cpu,
            threads: 1,
            max_batch_size: batch,
            picture_shape: vec![3, SIDE, SIDE],
            niceness: 0,
        };
        let name = format!("device-{}", key.0);
        let metrics = Metrics::default();
        let instance = Instance::spawn(name, config, source.clone(), &metrics, reports).unwrap();
        let placement = Placement {
            model: MODEL,
            buckets: warm.await.unwrap().buckets,
            max_queue_delay: Duration::ZERO,
            pipelined: false,
            watchdog: Duration::from_secs(60),
        };
        instances.lock().unwrap().insert(key, instance);
        completions.instance_up(key, placement).await;
    }

    let answered = Arc::new(AtomicUsize::new(0));
    let until = Instant::now() + Duration::from_millis(500) + length;
    let mut callers = JoinSet::new();
    for caller in 0..pictures as u64 {
        let (batcher, answered) = (batcher.clone(), answered.clone());
        callers.spawn(async move {
            while Instant::now() < until {
                let (answer, answers) = oneshot::channel();
                let arrival = |id| Arrival {
                    id,
                    model: MODEL,
                    share: Share {
                        source: SourceKey(caller % SOURCES),
                        stream: StreamKey::CALLS,
                    },
                    priority: Priority::Interactive,
                    kind: Kind::Call,
                    deadline: Deadline::after(Instant::now(), Duration::from_secs(60)),
                    pieces: None,
                    payload: answer,
                };
                let ticket = batcher.arrive(arrival).unwrap();
                answers.await.unwrap();
                ticket.answered();
                answered.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (count, cpu, began) = (
        answered.load(Ordering::Relaxed),
        cpu_time("self"),
        Instant::now(),
    );
    tokio::time::sleep(length).await;
    let count = answered.load(Ordering::Relaxed) - count;
    let (cpu, elapsed) = (cpu_time("self") - cpu, began.elapsed());
    callers.join_all().await;
    drop(batcher);
    worker.await.unwrap();
    Rate {
        rate: count as f64 / elapsed.as_secs_f64(),
        cpu_each: cpu / u32::try_from(count.max(1)).unwrap(),
    }
}

fn main() {
    let arguments = Arguments::parse();
    let length = Duration::from_secs(arguments.seconds);
    let cores = std::thread::available_parallelism().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        println!(
            "{cores} cores, {} rounds of {} s",
            arguments.rounds, arguments.seconds
        );
        let mut rate = Series::new("null engine (at least 50,000)", "requests/s");
        let mut each = Series::new("CPU (under 20)", "us/request");
        let devices = [1, 2, 4, 8];
        let mut scaled: Vec<Series> = [
            "1 device of 8 ms",
            "2 devices, of linear (0.95)",
            "4 devices, of linear (0.95)",
            "8 devices, of linear (0.95)",
        ]
        .into_iter()
        .zip(["requests/s", "", "", ""])
        .map(|(name, unit)| Series::new(name, unit))
        .collect();
        for _ in 0..arguments.rounds {
            let null = run(1, 32, Duration::ZERO, length).await;
            rate.push(null.rate);
            each.push(null.cpu_each.as_secs_f64() * 1e6);
            let mut one = 0.0;
            for (devices, series) in devices.into_iter().zip(&mut scaled) {
                let measured = run(devices, 8, Duration::from_millis(8), length).await.rate;
                match devices {
                    1 => {
                        one = measured;
                        series.push(measured);
                    }
                    _ => series.push(measured / one / f64::from(devices)),
                }
            }
        }
        for series in [rate, each].into_iter().chain(scaled) {
            println!("{series}");
        }
    });
}
