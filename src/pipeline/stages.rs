//! The stages of a request between the doors and the devices, carried out for the batching actor.
//!
//! A request is [`Waiting`] while it is to be prepared and a [`Context`] beside its tensor from then on; both carry
//! the channel on which it is answered, so whoever lets go of one answers it. A stage that panics answers
//! its own request and costs nothing else. A picture that is to be looked at in pieces becomes several requests, which
//! share one answer (see [`super::mosaic`]).

mod postprocess;
mod preprocess;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tracing::Span;

use super::admission::AdmissionPermit;
use super::claim::Claim;
use super::cpu_pool::CpuPool;
use super::detector::MAX_RETRY;
use super::error::DetectError;
use super::instances::{HandedOut, Instances, Loss, WeakInstances};
use super::metrics::Metrics;
use super::mosaic::{Mosaic, Piece};
use super::request::{Detections, EffectiveOptions, Image};
use super::served::ServedModel;
use super::timings::{Preprocessed, Received};
use super::wait_gauge::WaitGauge;
use crate::device::{End, EngineError, Inferred, Loaded, Picture, Reports};
use crate::scheduling::{Completions, InstanceKey, Outcome, RequestId, Stages};
use crate::vision::{DecodeLimits, ImageSize, LetterboxTransform};
use postprocess::Ran;
use preprocess::prepare;

/// What a request is answered with.
pub(super) type Answer = Result<Detections, DetectError>;

/// A request that waits to be prepared.
#[derive(Debug)]
pub(super) enum Waiting {
    /// A picture as it was sent.
    Picture(Box<Sent>),
    /// A piece of one that was decoded.
    Piece(Piece),
}

/// A picture as it was sent.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) call: Call,
    /// To be taken before anything is done.
    pub(super) claim: Claim,
    pub(super) image: Image,
    pub(super) received: Received,
    /// Given back with the bytes that were sent.
    pub(super) permit: AdmissionPermit,
}

/// What a request carries all the way.
#[derive(Debug)]
pub(super) struct Call {
    /// Whether its caller said when the answer has to be there.
    pub(super) has_deadline: bool,
    pub(super) model: Arc<ServedModel>,
    pub(super) options: EffectiveOptions,
    pub(super) answer: oneshot::Sender<Answer>,
    pub(super) span: Span,
}

/// What a request carries beside its tensor.
#[derive(Debug)]
pub(super) struct Context {
    id: RequestId,
    asker: Asker,
    transform: LetterboxTransform,
    image_size: ImageSize,
    preprocessed: Preprocessed,
}

/// Who is to be told what became of a tensor.
#[derive(Debug)]
enum Asker {
    /// The caller.
    Call(Call),
    /// What gathers the pieces of a picture, and which of them it is.
    Piece(Arc<Mosaic>, usize),
}

/// What a CPU worker made of a request.
struct Prepared {
    picture: Picture<Context>,
    /// Of a picture in pieces: the others.
    pieces: Vec<Waiting>,
}

/// Carries out the actor's decisions.
#[derive(Debug)]
pub(super) struct PipelineStages {
    pub(super) pool: CpuPool,
    pub(super) completions: Completions<Waiting, Picture<Context>>,
    pub(super) instances: Instances,
    /// Batches for instances that had gone: they come back with the report of that.
    pub(super) stranded: HashMap<InstanceKey, HandedOut>,
    pub(super) limits: DecodeLimits,
    pub(super) waits: WaitGauge,
    pub(super) metrics: Metrics,
}

/// An instance's way to tell the rest of the house what happens.
#[derive(Debug)]
pub(super) struct InstanceReports {
    pub(super) key: InstanceKey,
    pub(super) pool: CpuPool,
    pub(super) completions: Completions<Waiting, Picture<Context>>,
    pub(super) instances: WeakInstances,
    pub(super) loaded: Option<oneshot::Sender<Result<Loaded, EngineError>>>,
    pub(super) metrics: Metrics,
}

// === impl Call ===

impl Call {
    fn answer(self, answer: Answer) {
        // A caller that has gone in the meantime is a normal event.
        drop(self.answer.send(answer));
    }

    fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }
}

// === impl Asker ===

impl Asker {
    fn is_abandoned(&self) -> bool {
        match self {
            Self::Call(call) => call.is_abandoned(),
            Self::Piece(mosaic, _) => mosaic.is_abandoned(),
        }
    }

    fn span(&self) -> &Span {
        match self {
            Self::Call(call) => &call.span,
            Self::Piece(mosaic, _) => &mosaic.span,
        }
    }

    /// Ends the call: with an error, or without a word to a caller who left. Returns whether it was still open: the
    /// pieces of a picture end one call.
    fn end(self, error: Option<DetectError>) -> bool {
        match (self, error) {
            (Self::Piece(mosaic, _), error) => mosaic.end(error),
            (Self::Call(call), Some(error)) => {
                call.answer(Err(error));
                true
            }
            (Self::Call(_), None) => true,
        }
    }
}

// === impl Context ===

impl Context {
    /// The request's name in the scheduler.
    pub(super) fn id(&self) -> RequestId {
        self.id
    }
}

// === impl PipelineStages ===

impl Stages<Waiting, Picture<Context>> for PipelineStages {
    fn prepare(&mut self, id: RequestId, waiting: Waiting, waited: Duration) {
        if matches!(waiting, Waiting::Picture(_)) {
            self.waits.record(waited);
        }
        let (completions, limits, metrics) =
            (self.completions.clone(), self.limits, self.metrics.clone());
        let job = move || {
            let began = Instant::now();
            match prepare(id, waiting, &limits, &metrics) {
                Some(Prepared { picture, pieces }) => {
                    completions.prepared(id, picture, pieces, began.elapsed());
                }
                None => completions.prepare_failed(id, began.elapsed()),
            }
        };
        if self.pool.try_start(job).is_err() {
            // The machine counts the workers, so this is a fault of ours: its request is answered by the
            // drop of its channel, its worker is given back.
            tracing::error!("the CPU pool had no room for a job that the scheduler counted");
            self.completions.prepare_failed(id, Duration::ZERO);
        }
    }

    fn run(&mut self, key: InstanceKey, bucket: usize, batch: HandedOut) {
        if let Err(batch) = self.instances.send(key, bucket, batch) {
            self.stranded.entry(key).or_default().extend(batch);
        }
    }

    fn stranded(&mut self, key: InstanceKey) -> HandedOut {
        self.stranded.remove(&key).unwrap_or_default()
    }

    fn eject(&mut self, key: InstanceKey) {
        self.instances.lose(key, &Loss::Hung);
    }

    fn drop_waiting(&mut self, waiting: Waiting, outcome: Outcome) {
        let asker = match waiting {
            Waiting::Picture(sent) => Asker::Call(sent.call),
            Waiting::Piece(piece) => Asker::Piece(piece.mosaic, piece.view),
        };
        self.let_go(asker, outcome);
    }

    fn drop_ready(&mut self, picture: Picture<Context>, outcome: Outcome) {
        self.let_go(picture.context.asker, outcome);
    }
}

impl PipelineStages {
    fn let_go(&self, asker: Asker, outcome: Outcome) {
        let (model, has_deadline) = match &asker {
            Asker::Call(call) => (&call.model, call.has_deadline),
            Asker::Piece(mosaic, _) => (&mosaic.model, mosaic.has_deadline),
        };
        let error = match outcome {
            Outcome::Expired => Some(DetectError::DeadlineExceeded),
            Outcome::Abandoned => None,
            Outcome::NoInstance => Some(DetectError::ModelNotReady {
                model: model.reference.name.clone(),
                detail: "no instance of it is running".to_owned(),
            }),
            Outcome::Infeasible { retry_after } if has_deadline => {
                Some(DetectError::DeadlineInfeasible { retry_after })
            }
            Outcome::Infeasible { retry_after } => Some(DetectError::Overloaded {
                retry_after: retry_after.unwrap_or(MAX_RETRY),
            }),
            Outcome::Lost => Some(DetectError::InstanceLost),
        };
        if asker.end(error) {
            self.metrics.let_go(outcome);
        }
    }
}

// === impl InstanceReports ===

impl Reports<Context> for InstanceReports {
    fn loaded(&mut self, outcome: Result<Loaded, EngineError>) {
        if let Some(loaded) = self.loaded.take() {
            // The registry may have given up on the model because another instance failed.
            drop(loaded.send(outcome));
        }
    }

    fn batch_finished(&mut self, took: Option<Duration>) {
        self.completions.batch_finished(self.key, took);
    }

    fn inferred(&mut self, inferred: Inferred<Context>) {
        let metrics = self.metrics.clone();
        let ran = Ran::of(inferred);
        self.pool.finish(move || ran.finish(&metrics));
    }

    fn ended(&mut self, end: End) {
        match end {
            End::Asked => {}
            End::BrokeDown(error) => self.instances.lose(self.key, &Loss::BrokeDown(error)),
            End::LeftBehind => self.instances.came_back(self.key),
        }
    }

    fn failed(&mut self, context: Context, error: EngineError) {
        let Context { asker, .. } = context;
        asker
            .span()
            .in_scope(|| tracing::error!(%error, "the network failed on a picture"));
        asker.end(Some(DetectError::Inference(error)));
    }
}

/// Turns a panic of a stage into its request's error, and counts it; the panic hook has logged it.
fn contain<T>(
    stage: &'static str,
    metrics: &Metrics,
    body: impl FnOnce() -> Result<T, DetectError>,
) -> Result<T, DetectError> {
    // What the panic leaves half done belongs to this request alone and is dropped with it.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        metrics.panics.inc();
        Err(DetectError::Panicked { stage })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_in_a_stage_is_its_requests_error_and_is_counted() {
        let metrics = Metrics::default();
        let outcome = contain::<()>("preprocess", &metrics, || panic!("on purpose"));
        assert!(matches!(
            outcome,
            Err(DetectError::Panicked {
                stage: "preprocess"
            })
        ));
        assert_eq!(metrics.panics.get(), 1);
        assert_eq!(contain("preprocess", &metrics, || Ok(7)).unwrap(), 7);
    }
}
