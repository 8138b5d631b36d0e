//! A model instance: the named OS thread that owns an engine and runs batches on it.
//!
//! The thread loads its engine, warms it, reports so, and then runs what it is sent until the sender is gone.
//! A run that fails is repeated picture by picture, so that only the culprit's request fails. What comes out,
//! and that the instance is free again, is told through [`Reports`].

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};

use super::assembler::{Assembler, Batch, Picture};
use super::engine::{Engine, EngineError, EngineFactory, Signature};
use super::metrics::{InstanceLabels, Metrics};
use super::priority::step_back;
use super::warm_up::warm_up;
use crate::model::Device;
use crate::scheduling::BatchBucket;
use crate::tensor::Tensor;

/// How one instance is made.
#[derive(Debug, Clone)]
pub struct InstanceConfig {
    /// The model it serves, for logs and metrics.
    pub model: String,
    /// Where it runs.
    pub device: Device,
    /// Threads of one run, where the device is a CPU.
    pub threads: usize,
    /// The largest batch it is to be warmed for.
    pub max_batch_size: usize,
    /// The shape of one picture's tensor.
    pub picture_shape: Vec<usize>,
    /// Its thread's niceness where the device is a CPU, so that it gives way to the doors.
    pub niceness: i32,
}

/// What an instance knows once it is warm.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// What the network takes and gives.
    pub signature: Signature,
    /// The batch sizes it runs and what each costs.
    pub buckets: Vec<BatchBucket>,
}

/// How a picture's run went.
#[derive(Debug, Clone, Copy)]
pub struct RunReport {
    /// Duration of the batch's run on the device.
    pub inference: Duration,
    /// Pictures in the batch, padding not counted.
    pub batch_size: usize,
    /// Where it ran.
    pub device: Device,
}

/// A picture that ran: row `row` of `outputs`.
#[derive(Debug)]
pub struct Inferred<C> {
    /// The whole batch's outputs, shared by its pictures.
    pub outputs: Arc<[Tensor]>,
    /// This picture's row in each.
    pub row: usize,
    /// What its sender wanted back.
    pub context: C,
    /// How the run went.
    pub run: RunReport,
}

/// Where an instance tells what happens. Called on its thread; a method that blocks holds only it up.
pub trait Reports<C>: Send + 'static {
    /// The engine is loaded and warm, or cannot be. Called once, before everything else.
    fn loaded(&mut self, outcome: Result<Loaded, EngineError>);
    /// The instance can take another batch. Called once a batch, before its pictures are told.
    fn batch_finished(&mut self);
    /// A picture ran.
    fn inferred(&mut self, inferred: Inferred<C>);
    /// A picture could not be run, alone.
    fn failed(&mut self, context: C, error: EngineError);
    /// The thread ends, be it by a panic; nothing is told after this.
    fn ended(&mut self);
}

/// A batch to run: the bucket to pad to, and the pictures.
pub type Run<C> = (usize, Vec<Picture<C>>);

/// The sender's end of an instance. Dropping it ends the thread once it has run what it was sent.
#[derive(Debug)]
pub struct Instance<C> {
    runs: Sender<Run<C>>,
}

// === impl Instance ===

impl<C: Send + 'static> Instance<C> {
    /// Starts the thread, which loads the engine on itself.
    ///
    /// # Errors
    /// [`EngineError::Thread`] when the operating system gives no thread.
    pub fn spawn(
        name: String,
        config: InstanceConfig,
        factory: Arc<dyn EngineFactory>,
        metrics: &Metrics,
        reports: impl Reports<C>,
    ) -> Result<Self, EngineError> {
        // One batch that runs and one that is put together meanwhile: the scheduler sends no more.
        let (runs, inbox) = bounded(2);
        let labels = InstanceLabels {
            model: config.model.clone(),
            device: config.device.to_string(),
        };
        let mut runner = Runner {
            config,
            labels,
            metrics: metrics.clone(),
            reports,
        };
        thread::Builder::new()
            .name(name)
            .spawn(move || {
                // A fault of ours, outside a run; the panic hook has logged it.
                drop(catch_unwind(AssertUnwindSafe(|| {
                    runner.run(&*factory, &inbox)
                })));
                runner.reports.ended();
            })
            .map_err(|error| EngineError::Thread(error.to_string()))?;
        Ok(Self { runs })
    }

    /// Hands over a batch. Returns it when the instance has gone, or already has all it can take.
    ///
    /// # Errors
    /// The batch itself.
    pub fn try_send(&self, run: Run<C>) -> Result<(), Run<C>> {
        self.runs
            .try_send(run)
            .map_err(crossbeam_channel::TrySendError::into_inner)
    }
}

/// Whether putting a batch together ahead pays: on a GPU the copy takes long against the run, on a CPU the
/// run needs the very core that would copy.
pub fn pipelined(device: Device) -> bool {
    match device {
        Device::Cpu => false,
        Device::Cuda(_) => true,
    }
}

/// The thread's state.
struct Runner<R> {
    config: InstanceConfig,
    labels: InstanceLabels,
    metrics: Metrics,
    reports: R,
}

// === impl Runner ===

impl<R> Runner<R> {
    fn run<C: Send + 'static>(&mut self, factory: &dyn EngineFactory, inbox: &Receiver<Run<C>>)
    where
        R: Reports<C>,
    {
        if self.config.device == Device::Cpu {
            step_back(self.config.niceness);
        }
        let mut engine = match self.load(factory) {
            Ok((engine, loaded)) => {
                self.reports.loaded(Ok(loaded));
                engine
            }
            Err(error) => return self.reports.loaded(Err(error)),
        };
        let mut assembler = Assembler::default();
        if !pipelined(self.config.device) {
            for (bucket, pictures) in inbox {
                self.run_batch(&mut *engine, assembler.assemble(bucket, pictures));
            }
            return;
        }
        // The copy of the next batch overlaps with this one's run; zero capacity, since what is put together
        // waits in the assembler's hands.
        let (assembled, next) = bounded(0);
        thread::scope(|scope| {
            scope.spawn(move || {
                for (bucket, pictures) in inbox {
                    if assembled
                        .send(assembler.assemble(bucket, pictures))
                        .is_err()
                    {
                        return; // the runner has gone, and takes the process's drain with it
                    }
                }
            });
            for batch in next {
                self.run_batch(&mut *engine, batch);
            }
        });
    }

    fn load(&self, factory: &dyn EngineFactory) -> Result<(Box<dyn Engine>, Loaded), EngineError> {
        guard(|| {
            let mut engine = factory.build(self.config.device, self.config.threads)?;
            let buckets = warm_up(
                &mut *engine,
                &self.config.picture_shape,
                self.config.max_batch_size,
            )?;
            let loaded = Loaded {
                signature: engine.signature().clone(),
                buckets,
            };
            Ok((engine, loaded))
        })
    }

    fn run_batch<C>(&mut self, engine: &mut dyn Engine, batch: Batch<C>)
    where
        R: Reports<C>,
    {
        let Some(input) = batch.input() else {
            return self.reports.batch_finished();
        };
        let outcome = self.execute(engine, batch.bucket, input, batch.pictures.len());
        match outcome {
            Ok((outputs, run)) => {
                self.reports.batch_finished();
                for (row, picture) in batch.pictures.into_iter().enumerate() {
                    self.deliver(&outputs, row, picture, run);
                }
            }
            Err(error) if batch.pictures.len() == 1 => {
                self.reports.batch_finished();
                for picture in batch.pictures {
                    self.reports.failed(picture.context, error.clone());
                }
            }
            Err(error) => {
                tracing::warn!(model = self.labels.model, device = self.labels.device, %error, batch_size = batch.pictures.len(), "a batch failed and is run again picture by picture");
                self.isolate(engine, batch);
            }
        }
    }

    /// Runs the pictures of a failed batch alone: as many runs as there are pictures, and no more.
    fn isolate<C>(&mut self, engine: &mut dyn Engine, batch: Batch<C>)
    where
        R: Reports<C>,
    {
        let fixed = engine.signature().input.shape.first().copied().flatten();
        let mut alone = Assembler::default();
        let mut pictures = batch.pictures.into_iter().peekable();
        while let Some(picture) = pictures.next() {
            let single = alone.assemble(fixed.unwrap_or(1), vec![picture]);
            let outcome = match single.input() {
                Some(input) => self.execute(engine, single.bucket, input, 1),
                None => continue,
            };
            if pictures.peek().is_none() {
                self.reports.batch_finished();
            }
            for picture in single.pictures {
                match &outcome {
                    Ok((outputs, run)) => self.deliver(outputs, 0, picture, *run),
                    Err(error) => self.reports.failed(picture.context, error.clone()),
                }
            }
        }
    }

    fn execute(
        &mut self,
        engine: &mut dyn Engine,
        bucket: usize,
        input: &Tensor,
        batch_size: usize,
    ) -> Result<(Arc<[Tensor]>, RunReport), EngineError> {
        self.metrics.executions.get_or_create(&self.labels).inc();
        self.metrics
            .pictures
            .get_or_create(&self.labels)
            .inc_by(batch_size as u64);
        let started = Instant::now();
        let outcome = guard(|| engine.run(bucket, input));
        let inference = started.elapsed();
        if outcome.is_err() {
            self.metrics.failures.get_or_create(&self.labels).inc();
        }
        Ok((
            outcome?.into(),
            RunReport {
                inference,
                batch_size,
                device: self.config.device,
            },
        ))
    }

    fn deliver<C>(
        &mut self,
        outputs: &Arc<[Tensor]>,
        row: usize,
        picture: Picture<C>,
        run: RunReport,
    ) where
        R: Reports<C>,
    {
        // The picture's tensor goes back to its pool here.
        self.reports.inferred(Inferred {
            outputs: outputs.clone(),
            row,
            context: picture.context,
            run,
        });
    }
}

/// Turns a panic into an error.
fn guard<T>(run: impl FnOnce() -> Result<T, EngineError>) -> Result<T, EngineError> {
    // What a panic leaves half done is the engine's own; its next run either works or fails by itself.
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<&str>()
            .copied()
            .or(panic.downcast_ref::<String>().map(String::as_str));
        Err(EngineError::Panicked(
            text.unwrap_or("no message").to_owned(),
        ))
    })
}

#[cfg(test)]
mod tests;
