//! Instances with an engine of the test's own making.

use std::collections::HashSet;
use std::sync::Mutex;

use super::*;
use crate::tensor::{DType, TensorSignature};

/// Doubles its input. Fails, or panics, when a row is poison.
struct Doubler {
    signature: Signature,
    panics: bool,
    sizes: Arc<Mutex<Vec<usize>>>,
}

const POISON: f32 = -1.0;

impl Engine for Doubler {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&mut self, rows: usize, input: &Tensor) -> Result<Vec<Tensor>, EngineError> {
        self.sizes.lock().unwrap().push(rows);
        let values = &input.as_slice::<f32>().unwrap()[..rows];
        if values.contains(&POISON) {
            assert!(!self.panics, "poison");
            return Err(EngineError::Run("poison".into()));
        }
        let doubled: Vec<f32> = values.iter().map(|value| 2.0 * value).collect();
        Ok(vec![Tensor::from_slice(&[rows, 1], &doubled).unwrap()])
    }
}

struct Factory {
    batch: Option<usize>,
    panics: bool,
    sizes: Arc<Mutex<Vec<usize>>>,
}

impl EngineFactory for Factory {
    fn build(&self, _: Device, _: usize) -> Result<Box<dyn Engine>, EngineError> {
        let tensor = |name: &str| TensorSignature {
            name: name.into(),
            dtype: DType::F32,
            shape: vec![self.batch, Some(1)],
        };
        let signature = Signature {
            input: tensor("in"),
            outputs: vec![tensor("out")],
        };
        Ok(Box::new(Doubler {
            signature,
            panics: self.panics,
            sizes: self.sizes.clone(),
        }))
    }
}

#[derive(Debug)]
enum Told {
    Loaded(Result<Loaded, EngineError>),
    Finished,
    Inferred {
        context: usize,
        value: f32,
        batch_size: usize,
    },
    Failed {
        context: usize,
        error: EngineError,
    },
}

struct Channel(Sender<Told>);

impl Reports<usize> for Channel {
    fn loaded(&mut self, outcome: Result<Loaded, EngineError>) {
        self.0.send(Told::Loaded(outcome)).unwrap();
    }
    fn batch_finished(&mut self) {
        self.0.send(Told::Finished).unwrap();
    }
    fn inferred(&mut self, inferred: Inferred<usize>) {
        let value = inferred.outputs[0].as_slice::<f32>().unwrap()[inferred.row];
        let batch_size = inferred.run.batch_size;
        self.0
            .send(Told::Inferred {
                context: inferred.context,
                value,
                batch_size,
            })
            .unwrap();
    }
    fn ended(&mut self) {}
    fn failed(&mut self, context: usize, error: EngineError) {
        self.0.send(Told::Failed { context, error }).unwrap();
    }
}

struct Bench {
    instance: Instance<usize>,
    told: Receiver<Told>,
    sizes: Arc<Mutex<Vec<usize>>>,
    loaded: Result<Loaded, EngineError>,
}

fn start(device: Device, batch: Option<usize>, panics: bool, picture_shape: &[usize]) -> Bench {
    let sizes = Arc::<Mutex<Vec<usize>>>::default();
    let (sender, told) = bounded(1_000);
    let config = InstanceConfig {
        model: "doubler".into(),
        device,
        threads: 1,
        max_batch_size: 8,
        picture_shape: picture_shape.to_vec(),
        niceness: 0,
    };
    let factory = Arc::new(Factory {
        batch,
        panics,
        sizes: sizes.clone(),
    });
    let instance = Instance::spawn(
        "test".into(),
        config,
        factory,
        &Metrics::default(),
        Channel(sender),
    )
    .unwrap();
    let Told::Loaded(loaded) = told.recv().unwrap() else {
        panic!("loading is told first")
    };
    Bench {
        instance,
        told,
        sizes,
        loaded,
    }
}

fn pictures(values: &[f32]) -> Vec<Picture<usize>> {
    let picture = |(context, value): (usize, &f32)| Picture {
        tensor: Tensor::from_slice(&[1], &[*value]).unwrap(),
        context,
    };
    values.iter().enumerate().map(picture).collect()
}

impl Bench {
    /// Everything told after `bucket` with `values` ran, until as many answers as values have come.
    fn run(&self, bucket: usize, values: &[f32]) -> Vec<Told> {
        self.instance.try_send((bucket, pictures(values))).unwrap();
        let mut told = Vec::new();
        while told
            .iter()
            .filter(|told| !matches!(told, Told::Finished))
            .count()
            < values.len()
        {
            told.push(self.told.recv().unwrap());
        }
        told
    }
}

#[test]
fn each_bucket_is_warmed_and_its_cost_known() {
    let bench = start(Device::Cpu, None, false, &[1]);
    let sizes: Vec<usize> = bench
        .loaded
        .as_ref()
        .unwrap()
        .buckets
        .iter()
        .map(|bucket| bucket.size)
        .collect();
    assert_eq!(sizes, [1, 2, 4, 8]);
    let warmed: HashSet<usize> = bench.sizes.lock().unwrap().iter().copied().collect();
    assert_eq!(warmed, HashSet::from([1, 2, 4, 8]));
}

#[test]
fn a_fixed_batch_dimension_gives_one_bucket() {
    let bench = start(Device::Cpu, Some(4), false, &[1]);
    assert_eq!(bench.loaded.as_ref().unwrap().buckets.len(), 1);
    assert_eq!(bench.loaded.as_ref().unwrap().buckets[0].size, 4);
}

#[test]
fn a_network_that_does_not_fit_the_card_is_not_loaded() {
    let bench = start(Device::Cpu, None, false, &[3]);
    assert!(
        matches!(bench.loaded, Err(EngineError::Signature(_))),
        "{:?}",
        bench.loaded
    );
}

#[test]
fn each_picture_gets_its_own_row_on_every_kind_of_device() {
    for device in [Device::Cpu, Device::Cuda(0)] {
        let bench = start(device, None, false, &[1]);
        for told in bench.run(4, &[5.0, 6.0, 7.0]) {
            match told {
                Told::Inferred {
                    context,
                    value,
                    batch_size,
                } => {
                    assert_eq!((value, batch_size), (2.0 * (5.0 + context as f32), 3));
                }
                Told::Finished => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn poison_fails_alone_whether_it_errs_or_panics() {
    for panics in [false, true] {
        let bench = start(Device::Cpu, None, panics, &[1]);
        let told = bench.run(4, &[1.0, POISON, 3.0, 4.0]);
        let failed: Vec<usize> = told
            .iter()
            .filter_map(|told| match told {
                Told::Failed { context, error } => {
                    assert_eq!(matches!(error, EngineError::Panicked(_)), panics, "{error}");
                    Some(*context)
                }
                _ => None,
            })
            .collect();
        assert_eq!(failed, [1]);
        assert_eq!(
            told.iter()
                .filter(|told| matches!(told, Told::Finished))
                .count(),
            1
        );
        // The instance lives on.
        assert!(matches!(
            bench.run(1, &[8.0])[..],
            [Told::Finished, Told::Inferred { value: 16.0, .. }]
        ));
    }
}

#[test]
fn poison_does_not_stay_behind_in_the_padding_of_a_fixed_batch() {
    let bench = start(Device::Cpu, Some(4), false, &[1]);
    let told = bench.run(4, &[1.0, 2.0, 3.0, POISON]);
    assert_eq!(
        told.iter()
            .filter(|told| matches!(told, Told::Failed { .. }))
            .count(),
        1
    );
    for value in [5.0, 6.0, 7.0] {
        let told = bench.run(4, &[value]);
        assert!(
            told.iter()
                .any(|told| matches!(told, Told::Inferred { .. })),
            "{told:?}"
        );
    }
}

#[test]
fn the_thread_ends_when_its_sender_is_gone() {
    let Bench { instance, told, .. } = start(Device::Cuda(0), None, false, &[1]);
    drop(instance);
    assert!(told.recv().is_err());
}
