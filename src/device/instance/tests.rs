//! Instances with an engine of the test's own making.

use std::collections::HashSet;
use std::sync::Mutex;

use crossbeam_channel::Receiver;

use super::*;
use crate::device::engine::Engine;
use crate::tensor::{DType, TensorSignature};

/// Doubles its input. Fails, or panics, when a row is poison, and has other values that it cannot stand.
struct Doubler {
    signature: Signature,
    panics: bool,
    sizes: Arc<Mutex<Vec<usize>>>,
    gate: Gate,
}

/// Fails the run.
const POISON: f32 = -1.0;
/// Takes the device away.
const LETHAL: f32 = -2.0;
/// Every run after it fails.
const SPOILS: f32 = -3.0;
/// The run waits until it is let through.
const HANGS: f32 = -4.0;

/// The run fails when there is more than this row in it.
const LONELY: f32 = -5.0;

/// What a hanging run says and waits for.
#[derive(Debug, Clone)]
struct Gate {
    hangs: Sender<()>,
    released: Receiver<()>,
}

impl Engine for Doubler {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&mut self, rows: usize, input: &Tensor) -> Result<Vec<Tensor>, EngineError> {
        self.sizes.lock().unwrap().push(rows);
        let values = &input.as_slice::<f32>().unwrap()[..rows];
        if values.contains(&HANGS) {
            self.gate.hangs.send(()).unwrap();
            self.gate.released.recv().unwrap();
        }
        if values.contains(&LONELY) && rows > 1 {
            return Err(EngineError::Run("company".into()));
        }
        if values.contains(&LETHAL) {
            return Err(EngineError::DeviceLost {
                device: Device::Cpu,
                detail: "told so".into(),
            });
        }
        if values.contains(&SPOILS) {
            self.signature.outputs.clear();
        }
        if self.signature.outputs.is_empty() {
            return Err(EngineError::Run("spoilt".into()));
        }
        if values.contains(&POISON) {
            assert!(!self.panics, "poison");
            return Err(EngineError::Run("poison".into()));
        }
        let doubled: Vec<f32> = values.iter().map(|value| 2.0 * value).collect();
        Ok(vec![Tensor::from_slice(&[rows, 1], &doubled).unwrap()])
    }
}

#[derive(Debug)]
struct Factory {
    batch: Option<usize>,
    panics: bool,
    sizes: Arc<Mutex<Vec<usize>>>,
    gate: Gate,
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
            gate: self.gate.clone(),
        }))
    }
}

#[derive(Debug)]
enum Told {
    Loaded(Result<Loaded, EngineError>),
    Finished(Option<Duration>),
    Inferred {
        context: usize,
        value: f32,
        batch_size: usize,
    },
    Failed {
        context: usize,
        error: EngineError,
    },
    Ended(End),
}

struct Channel(Sender<Told>);

impl Reports<usize> for Channel {
    fn loaded(&mut self, outcome: Result<Loaded, EngineError>) {
        self.0.send(Told::Loaded(outcome)).unwrap();
    }
    fn batch_finished(&mut self, took: Option<Duration>) {
        self.0.send(Told::Finished(took)).unwrap();
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
    fn ended(&mut self, end: End) {
        // A test that has what it wants listens no more.
        drop(self.0.send(Told::Ended(end)));
    }
    fn failed(&mut self, context: usize, error: EngineError) {
        self.0.send(Told::Failed { context, error }).unwrap();
    }
}

struct Bench {
    instance: Instance<usize>,
    told: Receiver<Told>,
    sizes: Arc<Mutex<Vec<usize>>>,
    loaded: Result<Loaded, EngineError>,
    metrics: Metrics,
    hung: Receiver<()>,
    release: Sender<()>,
}

fn start(device: Device, batch: Option<usize>, panics: bool, picture_shape: &[usize]) -> Bench {
    let sizes = Arc::<Mutex<Vec<usize>>>::default();
    let (sender, told) = bounded(1_000);
    let ((hangs, hung), (release, released)) = (bounded(16), bounded(16));
    let metrics = Metrics::default();
    let config = InstanceConfig {
        model: "doubler".into(),
        device,
        threads: 1,
        max_batch_size: 16,
        picture_shape: picture_shape.to_vec(),
        niceness: 0,
    };
    let factory = Arc::new(Factory {
        batch,
        panics,
        sizes: sizes.clone(),
        gate: Gate { hangs, released },
    });
    let instance =
        Instance::spawn("test".into(), config, factory, &metrics, Channel(sender)).unwrap();
    let Told::Loaded(loaded) = told.recv().unwrap() else {
        panic!("loading is told first")
    };
    Bench {
        instance,
        told,
        sizes,
        loaded,
        metrics,
        hung,
        release,
    }
}

fn pictures(values: &[f32]) -> Vec<Picture<usize>> {
    let picture = |(context, value): (usize, &f32)| Picture {
        tensor: Arc::new(Tensor::from_slice(&[1], &[*value]).unwrap()),
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
            .filter(|told| !matches!(told, Told::Finished(_)))
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
    assert_eq!(sizes, [1, 2, 4, 8, 16]);
    let warmed: HashSet<usize> = bench.sizes.lock().unwrap().iter().copied().collect();
    assert_eq!(warmed, HashSet::from([1, 2, 4, 8, 16]));
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
                Told::Finished(took) => assert!(took.is_some()),
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
                .filter(|told| matches!(told, Told::Finished(None)))
                .count(),
            1
        );
        // The instance lives on.
        assert!(matches!(
            bench.run(1, &[8.0])[..],
            [Told::Finished(Some(_)), Told::Inferred { value: 16.0, .. }]
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

/// Sixteen pictures of value 1, with others at these places.
fn sixteen(others: &[(usize, f32)]) -> [f32; 16] {
    let mut values = [1.0; 16];
    for (at, value) in others {
        values[*at] = *value;
    }
    values
}

#[test]
fn one_poison_in_sixteen_costs_at_most_eight_more_runs_wherever_it_is() {
    let bench = start(Device::Cpu, None, false, &[1]);
    for culprit in 0..16 {
        bench.sizes.lock().unwrap().clear();
        let told = bench.run(16, &sixteen(&[(culprit, POISON)]));
        let failed: Vec<usize> = told.iter().filter_map(Told::failed).collect();
        assert_eq!(failed, [culprit]);
        let sizes = bench.sizes.lock().unwrap().clone();
        assert_eq!(sizes.len(), 1 + 8, "{sizes:?}");
        assert_eq!(sizes.iter().filter(|size| **size == 8).count(), 2);
    }
}

#[test]
fn a_batch_of_nothing_but_poison_costs_no_more_than_its_bound() {
    let bench = start(Device::Cpu, None, false, &[1]);
    bench.sizes.lock().unwrap().clear();
    let told = bench.run(16, &[POISON; 16]);
    assert_eq!(told.iter().filter_map(Told::failed).count(), 16);
    // The batch, 2 log2(16) halves, 16 alone.
    assert_eq!(bench.sizes.lock().unwrap().len(), 1 + 8 + 16);
}

#[test]
fn a_batch_whose_pictures_all_run_apart_costs_none_of_them() {
    let bench = start(Device::Cpu, None, false, &[1]);
    for _ in 0..2 {
        let told = bench.run(4, &[1.0, LONELY, 3.0, LONELY]);
        assert_eq!(told.iter().filter_map(Told::failed).count(), 0, "{told:?}");
    }
}

#[test]
fn halves_of_a_fixed_batch_are_padded_to_it() {
    let bench = start(Device::Cpu, Some(4), false, &[1]);
    bench.run(4, &[1.0, POISON, 3.0]);
    assert!(bench.sizes.lock().unwrap().iter().all(|size| *size == 4));
}

#[test]
fn what_hangs_is_had_back_with_what_comes_after_it_and_the_thread_says_nothing_of_it() {
    for device in [Device::Cpu, Device::Cuda(0)] {
        let bench = start(device, None, false, &[1]);
        let Bench { instance, told, .. } = bench;
        instance.try_send((2, pictures(&[HANGS, 2.0]))).unwrap();
        bench.hung.recv().unwrap();
        instance.try_send((2, pictures(&[7.0]))).unwrap();
        let returned = instance.abandon();
        let values: Vec<f32> = returned
            .iter()
            .map(|picture| picture.tensor.as_slice::<f32>().unwrap()[0])
            .collect();
        assert_eq!(values, [HANGS, 2.0, 7.0]);
        let left_behind = || {
            let labels = InstanceLabels {
                model: "doubler".into(),
                device: device.to_string(),
            };
            bench.metrics.left_behind.get_or_create(&labels).get()
        };
        assert_eq!(left_behind(), 1);
        bench.release.send(()).unwrap();
        let all: Vec<Told> = told.iter().collect();
        assert!(matches!(all[..], [Told::Ended(End::LeftBehind)]), "{all:?}");
        assert_eq!(left_behind(), 0);
        // The run that hung and nothing after it.
        assert_eq!(
            bench
                .sizes
                .lock()
                .unwrap()
                .iter()
                .rev()
                .take(1)
                .sum::<usize>(),
            2
        );
    }
}

#[test]
fn a_picture_that_was_had_back_runs_elsewhere_while_the_first_thread_still_hangs() {
    let (first, second) = (
        start(Device::Cpu, None, false, &[1]),
        start(Device::Cpu, None, false, &[1]),
    );
    let hanging = pictures(&[5.0, HANGS]);
    first.instance.try_send((2, hanging)).unwrap();
    first.hung.recv().unwrap();
    let mut returned = first.instance.abandon();
    returned.truncate(1);
    second.instance.try_send((1, returned)).unwrap();
    let told: Vec<Told> = second.told.iter().take(2).collect();
    assert!(
        matches!(told[1], Told::Inferred { value: 10.0, .. }),
        "{told:?}"
    );
}

#[test]
fn of_a_batch_that_hangs_while_it_is_halved_only_what_was_not_answered_comes_back() {
    let bench = start(Device::Cpu, None, false, &[1]);
    // The first half runs; the second has to wait inside of its run once the poison has failed the whole.
    let values = [1.0, 2.0, POISON, HANGS];
    bench.instance.try_send((4, pictures(&values))).unwrap();
    bench.hung.recv().unwrap();
    bench.release.send(()).unwrap();
    bench.hung.recv().unwrap();
    let answered: Vec<Told> = bench.told.iter().take(2).collect();
    assert!(
        answered
            .iter()
            .all(|told| matches!(told, Told::Inferred { .. })),
        "{answered:?}"
    );
    let returned = bench.instance.abandon();
    let contexts: Vec<usize> = returned.iter().map(|picture| picture.context).collect();
    assert_eq!(contexts, [2, 3]);
}

#[test]
fn a_lost_device_ends_the_instance_with_all_of_its_pictures_in_hand() {
    for device in [Device::Cpu, Device::Cuda(0)] {
        let bench = start(device, None, false, &[1]);
        bench
            .instance
            .try_send((2, pictures(&[1.0, LETHAL])))
            .unwrap();
        let told: Vec<Told> = bench.told.iter().collect();
        let [Told::Ended(End::BrokeDown(EngineError::DeviceLost { .. }))] = told[..] else {
            panic!("{told:?}");
        };
        // What comes too late is in nobody's hands.
        let (_, refused) = bench.instance.try_send((1, pictures(&[9.0]))).unwrap_err();
        assert_eq!(refused.len(), 1);
        assert_eq!(bench.instance.abandon().len(), 2);
    }
}

#[test]
fn an_engine_that_fails_on_everything_ends_its_instance_and_the_last_batch_is_had_back() {
    let bench = start(Device::Cpu, None, false, &[1]);
    for _ in 0..2 {
        let told = bench.run(2, &[SPOILS, 1.0]);
        assert_eq!(told.iter().filter_map(Told::failed).count(), 2, "{told:?}");
    }
    bench.instance.try_send((2, pictures(&[1.0, 1.0]))).unwrap();
    let told: Vec<Told> = bench.told.iter().collect();
    assert!(
        matches!(told[..], [Told::Ended(End::BrokeDown(EngineError::Run(_)))]),
        "{told:?}"
    );
    assert_eq!(bench.instance.abandon().len(), 2);
}

#[test]
fn pictures_that_all_fail_do_not_end_an_engine_that_works() {
    let bench = start(Device::Cpu, None, false, &[1]);
    for _ in 0..10 {
        let told = bench.run(1, &[POISON]);
        assert_eq!(told.iter().filter_map(Told::failed).count(), 1, "{told:?}");
    }
    assert!(matches!(
        bench.run(1, &[8.0])[..],
        [Told::Finished(Some(_)), Told::Inferred { value: 16.0, .. }]
    ));
}

impl Told {
    fn failed(&self) -> Option<usize> {
        match self {
            Told::Failed { context, .. } => Some(*context),
            _ => None,
        }
    }
}

#[test]
fn the_thread_ends_when_its_sender_is_gone() {
    let Bench { instance, told, .. } = start(Device::Cuda(0), None, false, &[1]);
    drop(instance);
    assert!(matches!(told.recv(), Ok(Told::Ended(End::Asked))));
    assert!(told.recv().is_err());
}
