//! The instance's thread: it loads and warms the engine, runs what it is sent and reports.
//!
//! What it was sent and has not answered stays in its [`Hands`] until the moment it is answered, so that whoever gives
//! the instance up, or clears up after it, finds it there.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use crossbeam_channel::{Receiver, bounded, select};

use super::isolate::Trouble;
use super::{End, Inferred, InstanceConfig, Loaded, Reports, RunReport, guard, pipelined};
use crate::device::assembler::{Assembler, Batch, Picture};
use crate::device::engine::{Engine, EngineError, EngineFactory};
use crate::device::flight::{FlightNumber, Hands, Order};
use crate::device::metrics::{InstanceLabels, Metrics};
use crate::device::priority::step_back;
use crate::device::warm_up::warm_up;
use crate::model::Device;
use crate::tensor::Tensor;

/// The thread's state.
pub(super) struct Runner<R, C> {
    pub(super) config: InstanceConfig,
    pub(super) labels: InstanceLabels,
    metrics: Metrics,
    pub(super) reports: R,
    pub(super) hands: Arc<Hands<C>>,
    /// The batch sizes that it was warmed for, smallest first.
    pub(super) sizes: Vec<usize>,
    pub(super) trouble: Trouble,
}

/// What a run gave: the outputs, and how it went.
pub(super) type Outcome = Result<(Arc<[Tensor]>, RunReport), EngineError>;

// === impl Runner ===

impl<C: Send + 'static, R: Reports<C>> Runner<R, C> {
    pub(super) fn new(
        config: InstanceConfig,
        labels: InstanceLabels,
        metrics: Metrics,
        reports: R,
        hands: Arc<Hands<C>>,
    ) -> Self {
        Self {
            config,
            labels,
            metrics,
            reports,
            hands,
            sizes: Vec::new(),
            trouble: Trouble::default(),
        }
    }

    /// The thread's life. Takes the inbox, so that nothing can be sent to a thread that has left.
    pub(super) fn run(&mut self, factory: &dyn EngineFactory, inbox: Receiver<Order>) -> End {
        if self.config.device == Device::Cpu {
            step_back(self.config.niceness);
        }
        let mut engine = match self.load(factory) {
            Ok((engine, loaded)) => {
                self.sizes = loaded.buckets.iter().map(|bucket| bucket.size).collect();
                self.sizes.sort_unstable();
                self.reports.loaded(Ok(loaded));
                engine
            }
            Err(error) => {
                self.reports.loaded(Err(error.clone()));
                return End::BrokeDown(error);
            }
        };
        let mut assembler = Assembler::default();
        if !pipelined(self.config.device) {
            for order in inbox {
                let batch = assembler.assemble(order.bucket, order.tensors);
                if let ControlFlow::Break(end) = self.run_batch(&mut *engine, order.number, batch) {
                    return end;
                }
            }
            return End::Asked;
        }
        // The copy of the next batch overlaps with this one's run; zero capacity, since what is put together
        // waits in the assembler's hands.
        let (assembled, next) = bounded(0);
        // Nothing is sent here; it closes when the runner leaves, though the inbox stays open.
        let (stays, left) = bounded::<()>(0);
        thread::scope(|scope| {
            scope.spawn(move || {
                loop {
                    let order = select! {
                        recv(inbox) -> order => order,
                        recv(left) -> _ => return,
                    };
                    let Ok(order) = order else { return };
                    let batch = assembler.assemble(order.bucket, order.tensors);
                    if assembled.send((order.number, batch)).is_err() {
                        return; // the runner has left; the pictures are still in the hands
                    }
                }
            });
            let end = next.iter().find_map(|(number, batch)| {
                let outcome = self.run_batch(&mut *engine, number, batch);
                outcome.break_value()
            });
            drop((stays, next));
            end.unwrap_or(End::Asked)
        })
    }

    /// Tells the end.
    pub(super) fn end(&mut self, end: End) {
        let end = match self.hands.end() {
            true => End::LeftBehind,
            false => end,
        };
        self.reports.ended(end);
    }

    fn load(&self, factory: &dyn EngineFactory) -> Result<(Box<dyn Engine>, Loaded), EngineError> {
        guard(|| {
            let mut engine = factory.build(self.config.device, self.config.threads)?;
            let warm = warm_up(
                &mut *engine,
                &self.config.picture_shape,
                self.config.max_batch_size,
            )?;
            let loaded = Loaded {
                signature: engine.signature().clone(),
                buckets: warm.buckets,
                limit: warm.limit,
            };
            Ok((engine, loaded))
        })
    }

    /// Breaks with the reason when the thread is to end.
    fn run_batch(
        &mut self,
        engine: &mut dyn Engine,
        number: FlightNumber,
        batch: Batch,
    ) -> ControlFlow<End> {
        if self.hands.is_given_up() {
            return ControlFlow::Break(End::LeftBehind);
        }
        let rows = 0..batch.tensors.len();
        let outcome = match batch.input() {
            Some(input) => self.execute(engine, batch.bucket, input, rows.len()),
            None => Err(EngineError::Run("there is nothing to run".to_owned())),
        };
        match outcome {
            Ok((outputs, run)) => {
                self.trouble.is_over();
                let Some(pictures) = self.hands.take(number, rows) else {
                    return ControlFlow::Break(End::LeftBehind);
                };
                // What the batch lies in can be filled again.
                drop(batch);
                self.reports.batch_finished(Some(run.inference));
                for (row, picture) in pictures.into_iter().enumerate() {
                    self.deliver(&outputs, row, picture, run);
                }
                ControlFlow::Continue(())
            }
            Err(error) => self.isolate(engine, number, batch.tensors, error),
        }
    }

    pub(super) fn execute(
        &mut self,
        engine: &mut dyn Engine,
        bucket: usize,
        input: &Tensor,
        batch_size: usize,
    ) -> Outcome {
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

    pub(super) fn deliver(
        &mut self,
        outputs: &Arc<[Tensor]>,
        row: usize,
        picture: Picture<C>,
        run: RunReport,
    ) {
        // The picture's tensor goes back to its pool here.
        self.reports.inferred(Inferred {
            outputs: outputs.clone(),
            row,
            context: picture.context,
            run,
        });
    }
}
