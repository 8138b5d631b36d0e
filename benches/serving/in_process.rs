//! The limit: the same decode, network and head, on every core, with no server around them.

use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use detectd::device::ort::{OrtModel, Runtime};
use detectd::device::{Engine, EngineFactory, NetworkFile};
use detectd::heads::Head;
use detectd::model::{Device, ModelRepository, ModelSpec};
use detectd::tensor::Tensor;
use detectd::vision::{DecodeLimits, NonMaxSuppression, Preprocessor, decode};

use crate::report::{Rate, cpu_time, percentile};

pub(crate) struct InProcess {
    model: OrtModel,
    spec: ModelSpec,
    labels: usize,
}

/// One core's own: nothing is shared, so nothing is waited for.
struct Worker {
    engine: Box<dyn Engine>,
    preprocessor: Preprocessor,
    head: Box<dyn Head>,
    tensor: Tensor,
    spec: ModelSpec,
}

impl InProcess {
    pub(crate) fn new(repository: &Path, name: &str) -> Self {
        let repository = ModelRepository::open(repository).unwrap();
        let entry = repository.entry(name).unwrap();
        let spec = entry.spec.as_ref().unwrap().clone();
        let library =
            std::env::var("DETECTD_ONNXRUNTIME").expect("cargo sets it; see .cargo/config.toml");
        let model = OrtModel {
            runtime: Runtime::load(Path::new(&library)).unwrap(),
            file: NetworkFile {
                path: entry.network(entry.newest().unwrap()).unwrap(),
                input: spec.input_name.clone(),
                size_input: spec
                    .head
                    .size_input()
                    .map(|name| (name.to_owned(), spec.input.size)),
            },
        };
        let labels = entry.labels(&spec).unwrap().len();
        Self {
            model,
            spec,
            labels,
        }
    }

    /// One thread a core, each on one picture after another, for `length`.
    pub(crate) fn throughput(&self, photos: &[Vec<u8>], length: Duration) -> Rate {
        let cores = thread::available_parallelism().unwrap().get();
        let (warm, next) = (Barrier::new(cores + 1), AtomicUsize::new(0));
        let (cpu, started) = thread::scope(|scope| {
            for _ in 0..cores {
                let (warm, next) = (&warm, &next);
                scope.spawn(move || {
                    let mut worker = self.worker();
                    worker.one(&photos[0]);
                    warm.wait();
                    let started = Instant::now();
                    while started.elapsed() < length {
                        worker.one(&photos[next.fetch_add(1, Ordering::Relaxed) % photos.len()]);
                    }
                });
            }
            warm.wait();
            (cpu_time("self"), Instant::now())
        });
        Rate::new(next.into_inner(), started.elapsed(), cpu_time("self") - cpu)
    }

    /// The median time of one picture, one at a time on one thread.
    pub(crate) fn latency(&self, photos: &[Vec<u8>], length: Duration) -> Duration {
        let mut worker = self.worker();
        worker.one(&photos[0]);
        let started = Instant::now();
        let mut times = Vec::new();
        for photo in photos.iter().cycle() {
            let began = Instant::now();
            worker.one(photo);
            times.push(began.elapsed());
            if started.elapsed() > length {
                break;
            }
        }
        percentile(&mut times, 50)
    }

    fn worker(&self) -> Worker {
        let engine = self.model.build(Device::Cpu, 1).unwrap();
        let signature = engine.signature();
        let preprocessor =
            Preprocessor::new(self.spec.input.clone(), signature.input.dtype).unwrap();
        let head = self
            .spec
            .head
            .bind(self.spec.input.size, self.labels, &signature.outputs)
            .unwrap();
        let tensor = Tensor::zeros(signature.input.dtype, &preprocessor.tensor_shape());
        Worker {
            engine,
            preprocessor,
            head,
            tensor,
            spec: self.spec.clone(),
        }
    }
}

impl Worker {
    fn one(&mut self, photo: &[u8]) {
        let picture = decode(photo, &DecodeLimits::default()).unwrap();
        let transform = self.preprocessor.run(&picture, &mut self.tensor);
        let outputs = self.engine.run(1, &self.tensor).unwrap();
        let defaults = &self.spec.defaults;
        let mut boxes = self
            .head
            .decode(&outputs, 0, defaults.score_threshold.get())
            .unwrap()
            .boxes;
        if let Some(iou_threshold) = defaults.iou_threshold {
            let suppression = NonMaxSuppression {
                iou_threshold: iou_threshold.get(),
                class_agnostic: defaults.class_agnostic_nms,
                max_candidates: 30_000,
            };
            boxes = suppression.apply(boxes);
        }
        for found in boxes {
            std::hint::black_box(transform.invert(found.bbox).clip(picture.size()));
        }
    }
}
