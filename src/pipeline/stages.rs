//! The stages of a request between the doors and the devices, carried out for the batching actor.
//!
//! A request is [`Waiting`] while it is encoded and a [`Context`] beside its tensor from then on; both carry
//! the channel on which it is answered, so whoever lets go of one answers it. A stage that panics answers
//! its own request and costs nothing else.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tracing::Span;

use super::admission::AdmissionPermit;
use super::cpu_pool::CpuPool;
use super::error::DetectError;
use super::instances::{HandedOut, Instances, Loss, WeakInstances};
use super::metrics::Metrics;
use super::request::{Detections, EffectiveOptions, Image};
use super::served::ServedModel;
use super::timings::{Preprocessed, Received};
use super::wait_gauge::WaitGauge;
use crate::device::{End, EngineError, Inferred, Loaded, Picture, Reports};
use crate::scheduling::{Completions, InstanceKey, Outcome, RequestId, Stages};
use crate::vision::{BoundingBox, DecodeError, DecodeLimits, ImageSize, LetterboxTransform};

/// What a request is answered with.
pub(super) type Answer = Result<Detections, DetectError>;

/// A request that waits to be prepared.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) call: Call,
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
    call: Call,
    transform: LetterboxTransform,
    image_size: ImageSize,
    preprocessed: Preprocessed,
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
        self.waits.record(waited);
        let (completions, limits, metrics) =
            (self.completions.clone(), self.limits, self.metrics.clone());
        let job = move || {
            let began = Instant::now();
            match prepare(id, waiting, &limits, &metrics) {
                Some(picture) => completions.prepared(id, picture, Vec::new(), began.elapsed()),
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
        self.let_go(waiting.call, outcome);
    }

    fn drop_ready(&mut self, picture: Picture<Context>, outcome: Outcome) {
        self.let_go(picture.context.call, outcome);
    }
}

impl PipelineStages {
    fn let_go(&self, call: Call, outcome: Outcome) {
        self.metrics.let_go(outcome);
        let error = match outcome {
            Outcome::Expired => DetectError::DeadlineExceeded,
            Outcome::Abandoned => return,
            Outcome::NoInstance => DetectError::ModelNotReady {
                model: call.model.reference.name.clone(),
                detail: "no instance of it is running".to_owned(),
            },
            Outcome::Infeasible { retry_after } if call.has_deadline => {
                DetectError::DeadlineInfeasible { retry_after }
            }
            Outcome::Infeasible { retry_after } => DetectError::Overloaded { retry_after },
            Outcome::Lost => DetectError::InstanceLost,
        };
        call.answer(Err(error));
    }
}

/// Decodes and preprocesses, on a CPU worker. `None` when the request has been answered.
fn prepare(
    id: RequestId,
    waiting: Waiting,
    limits: &DecodeLimits,
    metrics: &Metrics,
) -> Option<Picture<Context>> {
    let Waiting {
        mut call,
        image,
        received,
        permit,
    } = waiting;
    if call.is_abandoned() {
        metrics.let_go(Outcome::Abandoned);
        return None;
    }
    let began = Instant::now();
    let outcome = call.span.in_scope(|| {
        contain("preprocess", metrics, || {
            let picture = image.decode(limits)?;
            let region = clipped(call.options.region, picture.size())?;
            let (tensor, transform) = call.model.preprocess(&picture, region.as_ref());
            Ok((tensor, transform, picture.size(), region))
        })
    });
    drop(image);
    drop(permit);
    match outcome {
        Ok((tensor, transform, image_size, region)) => {
            call.options.region = region;
            let preprocessed = received.preprocessed(began);
            Some(Picture {
                tensor: Arc::new(tensor),
                context: Context {
                    id,
                    call,
                    transform,
                    image_size,
                    preprocessed,
                },
            })
        }
        Err(error) => {
            if matches!(error, DetectError::Picture(DecodeError::DecoderPanicked)) {
                metrics.panics.inc();
            }
            call.answer(Err(error));
            None
        }
    }
}

/// The part of a caller's region that lies in the picture.
fn clipped(
    region: Option<BoundingBox>,
    size: ImageSize,
) -> Result<Option<BoundingBox>, DetectError> {
    let Some(region) = region else {
        return Ok(None);
    };
    let inside = region
        .clip(size)
        .ok_or_else(|| DetectError::InvalidOption {
            field: "region",
            detail: format!("nothing of it lies in the picture of {size}"),
        })?;
    Ok(Some(inside))
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
        let Inferred {
            outputs,
            row,
            context,
            run,
        } = inferred;
        let Context {
            id: _,
            call,
            transform,
            image_size,
            preprocessed,
        } = context;
        let ran = preprocessed.ran(run);
        self.pool.finish(move || {
            if call.is_abandoned() {
                return;
            }
            let outcome = call.span.in_scope(|| {
                contain("postprocess", &metrics, || {
                    Ok(call.model.postprocess(
                        &outputs,
                        row,
                        &transform,
                        image_size,
                        &call.options,
                    )?)
                })
            });
            // The outputs go back to the runtime before the caller is told.
            drop(outputs);
            let answer = outcome.map(|found| {
                metrics.dropped_candidates.inc_by(found.dropped as u64);
                Detections {
                    detections: found.detections,
                    total: found.total,
                    image_size,
                    model: call.model.reference.clone(),
                    options: call.options.clone(),
                    timings: ran.replied(),
                }
            });
            call.answer(answer);
        });
    }

    fn ended(&mut self, end: End) {
        match end {
            End::Asked => {}
            End::BrokeDown(error) => self.instances.lose(self.key, &Loss::BrokeDown(error)),
            End::LeftBehind => self.instances.came_back(self.key),
        }
    }

    fn failed(&mut self, context: Context, error: EngineError) {
        context
            .call
            .span
            .in_scope(|| tracing::error!(%error, "the network failed on a picture"));
        context.call.answer(Err(DetectError::Inference(error)));
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
