//! What becomes of a batch that failed: it is run again in halves until the culprit is alone.
//!
//! One bad picture in a batch of n costs 2 log2(n) more runs. When halving has not paid by then, because there
//! are many, what is left is run picture by picture: at most 2 log2(n) + n runs in all.
//!
//! An engine on which *every* picture fails may be broken itself. After three such batches in a row it is tried on a
//! picture of zeros, as at warm-up. If that fails too the instance breaks down, and what the last of the batches
//! held goes back to run elsewhere; if it works, the pictures are what is wrong, and fail. So a caller who sends
//! nothing but poison loses its own requests and no more.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use super::runner::Runner;
use super::{End, Reports, guard};
use crate::device::assembler::Assembler;
use crate::device::engine::{Engine, EngineError};
use crate::device::flight::FlightNumber;
use crate::tensor::Tensor;

/// Batches in a row of which no picture could be run, after which the engine is tried.
const SUSPICIOUS: u32 = 3;

/// What speaks against the engine itself.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// Batches in a row of which no picture could be run.
    batches: u32,
}

/// The parts of a failed batch that are still to be run, and how many of them may hold more than one picture.
#[derive(Debug)]
struct Halving {
    /// The one to be run next last.
    parts: Vec<Range<usize>>,
    left: u32,
}

// === impl Trouble ===

impl Trouble {
    /// A picture ran.
    pub(super) fn is_over(&mut self) {
        self.batches = 0;
    }
}

// === impl Halving ===

impl Halving {
    /// Of `rows` that failed together.
    fn of(rows: Range<usize>) -> Self {
        let left = 2 * rows.len().next_power_of_two().ilog2();
        let parts = Vec::new();
        let mut halving = Self { parts, left };
        halving.split(rows);
        halving
    }

    /// More than one row that failed together are to be run apart.
    fn split(&mut self, rows: Range<usize>) {
        let middle = rows.start + rows.len() / 2;
        self.parts.push(middle..rows.end);
        self.parts.push(rows.start..middle);
    }

    fn next(&mut self) -> Option<Range<usize>> {
        let part = self.parts.pop()?;
        if part.len() <= 1 {
            return Some(part);
        }
        if self.left > 0 {
            self.left -= 1;
            return Some(part);
        }
        self.parts.extend(part.rev().map(|row| row..row + 1));
        self.parts.pop()
    }
}

// === impl Runner ===

impl<C: Send + 'static, R: Reports<C>> Runner<R, C> {
    /// Finds out which pictures of a batch cannot be run. The others are answered as they run; the culprits at the
    /// end, when it is known that it is them.
    pub(super) fn isolate(
        &mut self,
        engine: &mut dyn Engine,
        number: FlightNumber,
        tensors: Vec<Arc<Tensor>>,
        error: EngineError,
    ) -> ControlFlow<End> {
        check(&error)?;
        let count = tensors.len();
        let mut culprits = Vec::new();
        if count > 1 {
            tracing::warn!(model = self.labels.model, device = self.labels.device, %error, batch_size = count, "a batch failed and is run again in halves");
            culprits = self.run_in_halves(engine, number, &tensors)?;
        } else {
            culprits.push(error);
        }
        drop(tensors);

        if culprits.len() < count {
            self.trouble.is_over();
        } else {
            self.trouble.batches += 1;
            if self.trouble.batches >= SUSPICIOUS {
                self.trouble.is_over();
                self.prove(engine)?;
            }
        }
        // All that is left in hand, at once: what the scheduler takes for finished must not be had back afterwards.
        let Some(pictures) = self.hands.take(number, 0..count) else {
            return ControlFlow::Break(End::LeftBehind);
        };
        self.reports.batch_finished(None);
        for (picture, error) in pictures.into_iter().zip(culprits) {
            self.reports.failed(picture.context, error);
        }
        ControlFlow::Continue(())
    }

    /// Answers the pictures that run, and returns why the others fail alone, in the order of their rows.
    fn run_in_halves(
        &mut self,
        engine: &mut dyn Engine,
        number: FlightNumber,
        tensors: &[Arc<Tensor>],
    ) -> ControlFlow<End, Vec<EngineError>> {
        // Not the instance's own: that one may be putting the next batch together.
        let mut assembler = Assembler::default();
        let mut culprits = Vec::new();
        let mut halving = Halving::of(0..tensors.len());
        while let Some(rows) = halving.next() {
            if self.hands.is_given_up() {
                return ControlFlow::Break(End::LeftBehind);
            }
            let bucket = self.bucket_for(rows.len());
            let part = assembler.assemble(bucket, tensors[rows.clone()].to_vec());
            let Some(input) = part.input() else {
                continue;
            };
            match self.execute(engine, bucket, input, rows.len()) {
                Ok((outputs, run)) => {
                    let Some(pictures) = self.hands.take(number, rows) else {
                        return ControlFlow::Break(End::LeftBehind);
                    };
                    for (row, picture) in pictures.into_iter().enumerate() {
                        self.deliver(&outputs, row, picture, run);
                    }
                }
                Err(error) => {
                    check(&error)?;
                    match rows.len() {
                        1 => culprits.push(error),
                        _ => halving.split(rows),
                    }
                }
            }
        }
        ControlFlow::Continue(culprits)
    }

    /// Runs a picture of zeros, which any engine that works can run.
    fn prove(&mut self, engine: &mut dyn Engine) -> ControlFlow<End> {
        let bucket = self.bucket_for(1);
        let mut shape = vec![bucket];
        shape.extend_from_slice(&self.config.picture_shape);
        let zeros = Tensor::zeros(engine.signature().input.dtype, &shape);
        match guard(|| engine.run(bucket, &zeros)) {
            Ok(_) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(End::BrokeDown(error)),
        }
    }

    /// The smallest batch size that holds so many.
    fn bucket_for(&self, count: usize) -> usize {
        let holds = |size: &&usize| **size >= count;
        self.sizes.iter().find(holds).copied().unwrap_or(count)
    }
}

/// Breaks when an error speaks of the device and not of the pictures.
fn check(error: &EngineError) -> ControlFlow<End> {
    match error {
        EngineError::DeviceLost { .. } => ControlFlow::Break(End::BrokeDown(error.clone())),
        _ => ControlFlow::Continue(()),
    }
}
