//! An engine for tests and benches: it runs no network, takes as long as a table says, and fails as it is told.
//!
//! It stands where the real library stands ([`EngineSource`]), so everything around it is the real server. Nothing in
//! a configuration leads here: a program has to ask for it.
//!
//! What it answers tells pictures apart: the first number of a picture's tensor, called its *mark* (the red of a flat
//! picture), decides its box. [`Faults`] makes engines misbehave while they run.

mod faults;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub use faults::{Fault, Faults, Target};

use super::engine::{Engine, EngineError, EngineFactory, EngineSource, NetworkFile, Signature};
use crate::model::Device;
use crate::tensor::{DType, Tensor, TensorSignature};
use faults::same_mark;

/// What every engine of a [`Synthetic`] runs.
#[derive(Debug, Clone)]
pub struct SyntheticNetwork {
    /// What it takes and gives. Dimensions that vary are those of the input, or 1. See [`SyntheticNetwork::detr`].
    pub signature: Signature,
    /// How long a run of so many rows takes, by rows. Between two entries it lies on the line between them, and
    /// beyond the last it grows in proportion; with no entry it takes no time.
    pub latency: Vec<(usize, Duration)>,
    /// Whether a run burns its time like a CPU, rather than sleep through it like a thread that waits for a device.
    pub spins: bool,
}

/// A source of engines that run no network. Clones share their [`Faults`].
#[derive(Debug, Clone)]
pub struct Synthetic {
    network: SyntheticNetwork,
    faults: Faults,
    built: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct SyntheticEngine {
    network: SyntheticNetwork,
    faults: Faults,
    device: Device,
    /// How many were built before it.
    number: usize,
}

// === impl SyntheticNetwork ===

impl SyntheticNetwork {
    /// A network with one candidate a picture for a card with `family = "detr"` and an input of `side` by `side`
    /// pixels. Its box is (0, 0, x, x) with x = (1 + 9 x mark) / 10 of the side, its score 0.9, its label 0.
    pub fn detr(side: usize, latency: Vec<(usize, Duration)>) -> Self {
        let tensor = |name: &str, dtype, shape: &[Option<usize>]| TensorSignature {
            name: name.to_owned(),
            dtype,
            shape: shape.to_vec(),
        };
        Self {
            signature: Signature {
                input: tensor(
                    "images",
                    DType::F32,
                    &[None, Some(3), Some(side), Some(side)],
                ),
                outputs: vec![
                    tensor("labels", DType::I64, &[None, Some(1)]),
                    tensor("boxes", DType::F32, &[None, Some(1), Some(4)]),
                    tensor("scores", DType::F32, &[None, Some(1)]),
                ],
            },
            latency,
            spins: false,
        }
    }

    /// How long a run of `rows` takes.
    fn takes(&self, rows: usize) -> Duration {
        let below = self.latency.iter().rev().find(|(size, _)| *size <= rows);
        let above = self.latency.iter().find(|(size, _)| *size >= rows);
        match (below, above) {
            (None, None) => Duration::ZERO,
            (None, Some((_, first))) => *first,
            (Some((size, last)), None) => last.mul_f64(rows as f64 / *size as f64),
            (Some((size, low)), Some((next, high))) => {
                let along = (rows - size) as f64 / (next - size).max(1) as f64;
                Duration::from_secs_f64(
                    low.as_secs_f64() + along * (high.as_secs_f64() - low.as_secs_f64()),
                )
            }
        }
    }

    /// The side of the input, where it has one.
    fn side(&self) -> f32 {
        self.signature
            .input
            .shape
            .last()
            .copied()
            .flatten()
            .unwrap_or(1) as f32
    }

    /// One output for pictures with these marks: boxes where its rows end in four floats, 0.9 in other floats, 0 in
    /// integers.
    fn output(&self, signature: &TensorSignature, marks: &[f32]) -> Result<Tensor, EngineError> {
        let mut shape = vec![marks.len()];
        shape.extend(
            signature
                .shape
                .iter()
                .skip(1)
                .map(|length| length.unwrap_or(1)),
        );
        let mut tensor = Tensor::zeros(signature.dtype, &shape);
        let row = shape[1..].iter().product::<usize>().max(1);
        let boxes = shape.len() > 2 && shape.last() == Some(&4);
        if let Some(values) = tensor.as_mut_slice::<f32>() {
            for (values, mark) in values.chunks_exact_mut(row).zip(marks) {
                let far = self.side() * (1.0 + 9.0 * mark.clamp(0.0, 1.0)) / 10.0;
                values.fill(0.9);
                if boxes {
                    values
                        .chunks_exact_mut(4)
                        .for_each(|corners| corners.copy_from_slice(&[0.0, 0.0, far, far]));
                }
            }
        }
        Ok(tensor)
    }
}

// === impl Synthetic ===

impl Synthetic {
    /// A source of engines that behave, until [`Synthetic::faults`] says otherwise.
    pub fn new(network: SyntheticNetwork) -> Self {
        Self {
            network,
            faults: Faults::default(),
            built: Arc::default(),
        }
    }

    /// The control by which its engines are made to fail.
    pub fn faults(&self) -> Faults {
        self.faults.clone()
    }

    /// Engines that were built so far. The next one is [`Target::Engine`] of this number.
    pub fn built(&self) -> usize {
        self.built.load(Ordering::Relaxed)
    }
}

impl EngineSource for Synthetic {
    fn network(&self, _: NetworkFile) -> Arc<dyn EngineFactory> {
        Arc::new(self.clone())
    }
}

impl EngineFactory for Synthetic {
    fn build(&self, device: Device, _threads: usize) -> Result<Box<dyn Engine>, EngineError> {
        Ok(Box::new(SyntheticEngine {
            network: self.network.clone(),
            faults: self.faults.clone(),
            device,
            number: self.built.fetch_add(1, Ordering::Relaxed),
        }))
    }
}

// === impl SyntheticEngine ===

impl Engine for SyntheticEngine {
    fn signature(&self) -> &Signature {
        &self.network.signature
    }

    fn run(&mut self, rows: usize, input: &Tensor) -> Result<Vec<Tensor>, EngineError> {
        let marks = marks(rows, input);
        // A thread that hangs in here waits for the fault to be lifted.
        let fault = self.faults.of(self.number, self.device);
        let takes = self.network.takes(rows);
        self.spend(match fault {
            Some(Fault::SlowedDown(factor)) => takes.mul_f64(factor),
            _ => takes,
        });
        match fault {
            Some(Fault::Poison(poison)) if marks.iter().any(|mark| same_mark(*mark, poison)) => {
                return Err(EngineError::Run("poison".to_owned()));
            }
            Some(Fault::Fails) => {
                return Err(EngineError::Run("told to fail".to_owned()));
            }
            Some(Fault::DeviceLost) => {
                return Err(EngineError::DeviceLost {
                    device: self.device,
                    detail: "told to be lost".to_owned(),
                });
            }
            _ => {}
        }
        let outputs = self.network.signature.outputs.iter();
        let output = |signature: &TensorSignature| {
            let mut tensor = self.network.output(signature, &marks)?;
            match fault {
                Some(Fault::WrongShapes) => Ok(Tensor::zeros(signature.dtype, &[rows, 7])),
                Some(Fault::NotNumbers) => {
                    if let Some(values) = tensor.as_mut_slice::<f32>() {
                        values.fill(f32::NAN);
                    }
                    Ok(tensor)
                }
                _ => Ok(tensor),
            }
        };
        outputs.map(output).collect()
    }
}

impl SyntheticEngine {
    fn spend(&self, time: Duration) {
        if !self.network.spins {
            return thread::sleep(time);
        }
        let until = Instant::now() + time;
        while Instant::now() < until {
            std::hint::spin_loop();
        }
    }
}

/// The first number of each of `rows` pictures that lie one behind another.
fn marks(rows: usize, input: &Tensor) -> Vec<f32> {
    fn firsts<T: Copy>(values: &[T], rows: usize, number: impl Fn(T) -> f32) -> Vec<f32> {
        let row = (values.len() / rows.max(1)).max(1);
        values.chunks(row).map(|row| number(row[0])).collect()
    }
    match input.dtype() {
        DType::F32 => firsts(input.as_slice::<f32>().unwrap_or_default(), rows, |v| v),
        DType::F16 => firsts(
            input.as_slice::<half::f16>().unwrap_or_default(),
            rows,
            half::f16::to_f32,
        ),
        DType::U8 => firsts(input.bytes(), rows, |v| f32::from(v) / 255.0),
        // No network takes pictures so.
        DType::I32 | DType::I64 => vec![0.0; rows],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn engine(source: &Synthetic) -> Box<dyn Engine> {
        source.build(Device::Cpu, 1).unwrap()
    }

    /// Two flat pictures of these marks.
    fn input(marks: [f32; 2]) -> Tensor {
        let values: Vec<f32> = marks.iter().flat_map(|mark| [*mark; 12]).collect();
        Tensor::from_slice(&[2, 3, 2, 2], &values).unwrap()
    }

    #[test]
    fn a_run_takes_what_the_table_says() {
        let network = SyntheticNetwork::detr(2, vec![(1, 6 * MS), (4, 9 * MS), (8, 17 * MS)]);
        assert_eq!(network.takes(1), 6 * MS);
        assert_eq!(network.takes(2), 7 * MS);
        assert_eq!(network.takes(6), 13 * MS);
        assert_eq!(network.takes(16), 34 * MS);
        assert_eq!(SyntheticNetwork::detr(2, vec![]).takes(3), Duration::ZERO);
    }

    #[test]
    fn pictures_are_told_apart_by_their_marks() {
        let source = Synthetic::new(SyntheticNetwork::detr(10, vec![]));
        let outputs = engine(&source).run(2, &input([0.0, 1.0])).unwrap();
        assert_eq!(
            outputs[1].as_slice::<f32>().unwrap(),
            [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 10.0, 10.0]
        );
        assert_eq!(outputs[2].as_slice::<f32>().unwrap(), [0.9, 0.9]);
    }

    #[test]
    fn an_engine_fails_as_it_is_told_and_recovers() {
        let source = Synthetic::new(SyntheticNetwork::detr(2, vec![]));
        let (mut first, mut second) = (engine(&source), engine(&source));
        let faults = source.faults();
        faults.set(Target::Engine(0), Fault::Poison(0.5));
        assert!(first.run(2, &input([0.1, 0.5])).is_err());
        assert!(first.run(2, &input([0.1, 0.2])).is_ok());
        assert!(second.run(2, &input([0.1, 0.5])).is_ok());
        faults.set(Target::Device(Device::Cpu), Fault::DeviceLost);
        faults.lift(Target::Engine(0));
        for engine in [&mut first, &mut second] {
            let error = engine.run(2, &input([0.0; 2])).unwrap_err();
            assert!(matches!(error, EngineError::DeviceLost { .. }));
        }
        faults.lift(Target::Device(Device::Cpu));
        faults.set(Target::All, Fault::WrongShapes);
        assert_eq!(first.run(2, &input([0.0; 2])).unwrap()[1].shape(), [2, 7]);
    }

    #[test]
    fn an_engine_hangs_until_it_is_released() {
        let source = Synthetic::new(SyntheticNetwork::detr(2, vec![]));
        let faults = source.faults();
        faults.set(Target::All, Fault::Hangs);
        let hung = source.clone();
        let thread = thread::spawn(move || engine(&hung).run(2, &input([0.0; 2])).is_ok());
        faults.wait_until_hung(1);
        assert!(!thread.is_finished());
        faults.lift(Target::All);
        assert!(thread.join().unwrap());
    }
}
