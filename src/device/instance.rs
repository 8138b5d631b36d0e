//! A model instance: the named OS thread that owns an engine and runs batches on it.
//!
//! The thread loads its engine, warms it, reports so, and then runs what it is sent until the sender is gone, the
//! engine breaks down, or the instance is given up ([`Instance::abandon`]). What comes out, and that the instance is
//! free again, is told through [`Reports`].
//!
//! | file | job |
//! |---|---|
//! | here | the instance as its owner sees it |
//! | [`runner`] | the thread: load, warm, run, report |
//! | [`isolate`] | a failed batch is run again in halves until the culprit is alone |

mod isolate;
mod runner;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};

use super::assembler::Picture;
use super::engine::{EngineError, EngineFactory, Signature};
use super::flight::{Hands, Order};
use super::metrics::{InstanceLabels, Metrics};
use crate::model::Device;
use crate::scheduling::BatchBucket;
use crate::tensor::Tensor;
use runner::Runner;

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
    /// Why there are no others, where the network does not take all that its card allows.
    pub limit: Option<String>,
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
    /// The instance can take another batch. Called once a batch, before its pictures are told; when the batch failed,
    /// before those are told that failed alone. `took` is the run's duration, when one run was enough.
    fn batch_finished(&mut self, took: Option<Duration>);
    /// A picture ran.
    fn inferred(&mut self, inferred: Inferred<C>);
    /// A picture could not be run, alone.
    fn failed(&mut self, context: C, error: EngineError);
    /// The thread ends, its engine dropped; nothing is told after this. What it was given and has not answered
    /// is had by [`Instance::abandon`].
    fn ended(&mut self, end: End);
}

/// Why an instance's thread ended.
#[derive(Debug, Clone)]
pub enum End {
    /// Its sender is gone, and it has run what it was sent.
    Asked,
    /// Its engine could not be had or cannot run anything any more, or the thread panicked.
    BrokeDown(EngineError),
    /// It had been given up while it hung, and came back in the end.
    LeftBehind,
}

/// A batch to run: the bucket to pad to, and the pictures.
pub type Run<C> = (usize, Vec<Picture<C>>);

/// The owner's end of an instance. Dropping it ends the thread once it has run what it was sent.
#[derive(Debug)]
pub struct Instance<C> {
    orders: Sender<Order>,
    hands: Arc<Hands<C>>,
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
        let (orders, inbox) = bounded(2);
        let labels = InstanceLabels {
            model: config.model.clone(),
            device: config.device.to_string(),
        };
        let left_behind = metrics.left_behind.get_or_create(&labels).clone();
        let hands = Arc::new(Hands::new(left_behind));
        let mut runner = Runner::new(config, labels, metrics.clone(), reports, hands.clone());
        thread::Builder::new()
            .name(name)
            .spawn(move || {
                // A panic here is a fault of ours, outside a run.
                let end = guard(|| Ok(runner.run(&*factory, inbox)));
                runner.end(end.unwrap_or_else(End::BrokeDown));
            })
            .map_err(|error| EngineError::Thread(error.to_string()))?;
        Ok(Self { orders, hands })
    }

    /// Hands over a batch. Returns it when the thread has ended, or the instance already has all it can take.
    ///
    /// # Errors
    /// The batch itself.
    pub fn try_send(&self, (bucket, pictures): Run<C>) -> Result<(), Run<C>> {
        let rows = 0..pictures.len();
        let order = self.hands.give(bucket, pictures);
        let number = order.number;
        self.orders.try_send(order).map_err(|_| {
            let returned = self.hands.take(number, rows);
            (bucket, returned.unwrap_or_default())
        })
    }

    /// Gives the instance up and takes back everything that it was given and has not answered: the batch that runs, as
    /// far as it has not been answered, and the next one.
    ///
    /// The thread answers none of these any more. If it hangs inside a run it is left behind with its engine and its
    /// buffers, is counted so, and ends as soon as that run does.
    pub fn abandon(self) -> Vec<Picture<C>> {
        self.hands.give_up()
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
