//! The use case: a picture in, boxes out. One path for every door.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::admission::{Admission, AdmissionPermit, Overloaded};
use super::answer_gauge::AnswerGauge;
use super::caller::Caller;
use super::claim::Claim;
use super::error::DetectError;
use super::metrics::Metrics;
use super::readiness::Readiness;
use super::registry::Registry;
use super::request::{DetectRequest, Detections, EffectiveOptions};
use super::served::ServedModel;
use super::stages::{Answer, Call, Sent, Waiting};
use super::stream::Streams;
use super::timings::Received;
use super::wait_gauge::WaitGauge;
use crate::model::Threshold;
use crate::scheduling::{Arrival, Batcher, Deadline, Kind, Outcome, Share, StreamKey, Ticket};

/// Answers requests. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Detector {
    pub(super) batcher: Batcher<Waiting>,
    pub(super) admission: Admission,
    pub(super) replies: Admission,
    pub(super) registry: Arc<Registry>,
    pub(super) stop: CancellationToken,
    pub(super) waits: WaitGauge,
    pub(super) answers: AnswerGauge,
    pub(super) streams: Streams,
    pub(super) metrics: Metrics,
}

/// Where a request stands among others.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) stream: StreamKey,
    pub(super) kind: Kind,
    /// Taken by the worker that begins it.
    pub(super) claim: Claim,
    /// How it is detected, of what was asked for.
    pub(super) detect: Detect,
}

/// How a request is detected.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Detect {
    /// As asked.
    AsAsked,
    /// At a lower threshold, for a tracker; the asker shows what was asked for.
    DownTo(Threshold),
}

/// A request in the line, on the shelf or with a device, and its answer in the end. Dropping it takes the request out as
/// [`Detector::detect`] says.
#[derive(Debug)]
pub(super) struct Pending {
    received: Received,
    answered: oneshot::Receiver<Answer>,
    /// Until it is answered.
    ticket: Option<Ticket<Waiting>>,
    /// Whether it may have become several requests.
    in_pieces: bool,
    /// Where what the way back takes is learned: of calls alone. A frame's answer waits for those before it, and for a reader
    /// who takes his time.
    answers: Option<AnswerGauge>,
    turned_away: Option<TurnedAway>,
    /// What was asked for, where something else was done.
    asked: Option<EffectiveOptions>,
}

/// What is remembered of a call that cannot be answered in time.
#[derive(Debug)]
struct TurnedAway {
    admission: Admission,
    caller: Caller,
    deadline: Deadline,
}

// === impl Detector ===

impl Detector {
    /// Says before a message is read whether there is any sense in reading it.
    ///
    /// # Errors
    /// [`DetectError::Draining`], [`DetectError::Overloaded`], and [`DetectError::DeadlineInfeasible`] when the same
    /// source was just told so about no less time.
    pub fn opens(&self, caller: &Caller, deadline: Deadline) -> Result<(), DetectError> {
        if self.stop.is_cancelled() {
            return Err(DetectError::Draining);
        }
        if !self.admission.has_room(caller) {
            return Err(self.overloaded());
        }
        if let Some(retry_after) = self.admission.turns_away(caller, deadline) {
            let retry_after = Some(retry_after);
            self.metrics.let_go(Outcome::Infeasible { retry_after });
            return Err(DetectError::DeadlineInfeasible { retry_after });
        }
        Ok(())
    }

    /// The same of a stream, whose frames wait for room.
    ///
    /// # Errors
    /// [`DetectError::Draining`].
    pub fn opens_stream(&self) -> Result<(), DetectError> {
        match self.stop.is_cancelled() {
            true => Err(DetectError::Draining),
            false => Ok(()),
        }
    }

    /// Takes a place for a request of `bytes`, before those bytes are held in memory.
    ///
    /// # Errors
    /// [`DetectError::Overloaded`] when there is no room.
    pub fn admit(&self, caller: &Caller, bytes: u64) -> Result<AdmissionPermit, DetectError> {
        self.admission
            .admit(caller, bytes)
            .map_err(|Overloaded| self.overloaded())
    }

    /// Takes a place for a reply of `bytes`, until its caller has taken it.
    ///
    /// # Errors
    /// [`DetectError::Overloaded`] when as much waits to be taken as may.
    pub fn admit_reply(&self, caller: &Caller, bytes: u64) -> Result<AdmissionPermit, DetectError> {
        self.replies
            .admit(caller, bytes)
            .map_err(|Overloaded| self.overloaded())
    }

    /// Finds things in one picture. `permit` was taken for the message that it came in, and holds its place
    /// until the picture is decoded.
    ///
    /// Dropping the future abandons the request: it leaves the line, or the shelf, at once; one that is with
    /// a device runs on and its result is thrown away.
    ///
    /// # Errors
    /// [`DetectError`] says which of them is the caller's to mend.
    pub async fn detect(
        &self,
        request: DetectRequest,
        permit: AdmissionPermit,
    ) -> Result<Detections, DetectError> {
        let span = tracing::info_span!(
            "detect",
            model = tracing::field::Empty,
            bytes = request.image.len()
        );
        self.detect_in(request, permit, &span)
            .instrument(span.clone())
            .await
            .inspect_err(|error| {
                // The caller's mistakes are not the operator's business.
                span.in_scope(|| tracing::debug!(%error, "refused"));
            })
    }

    /// Takes a place for a stream's frame of `bytes`, as soon as there is room. Dropping the future gives it up.
    pub fn admit_frame(
        &self,
        caller: &Caller,
        bytes: u64,
    ) -> impl Future<Output = AdmissionPermit> + Send + use<> {
        self.admission.wait(caller, bytes)
    }

    /// Whether the server takes no more requests, and a stream should end.
    pub fn stopping(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Counts a panic that a door has caught around one of its calls, and gives the call's error.
    pub fn panicked(&self, stage: &'static str) -> DetectError {
        self.metrics.panics.inc();
        DetectError::Panicked { stage }
    }

    /// The models' states, now and whenever they change.
    pub fn readiness(&self) -> watch::Receiver<Readiness> {
        self.registry.readiness()
    }

    async fn detect_in(
        &self,
        request: DetectRequest,
        permit: AdmissionPermit,
        span: &tracing::Span,
    ) -> Result<Detections, DetectError> {
        if self.stop.is_cancelled() {
            return Err(DetectError::Draining);
        }
        let deadline = request.deadline;
        let received = Received::now();
        let pending = self.submit(request, received, permit, Turn::call(), span.clone())?;
        match deadline.instant() {
            None => pending.await,
            Some(instant) => match tokio::time::timeout_at(instant.into(), pending).await {
                Ok(answer) => answer,
                // The ticket went with the rest and has taken the request out of the line.
                Err(_) => Err(DetectError::DeadlineExceeded),
            },
        }
    }

    /// Puts a request into the line, where it stands from now on.
    ///
    /// # Errors
    /// As [`Detector::detect`] says of what is found before the line.
    pub(super) fn submit(
        &self,
        request: DetectRequest,
        received: Received,
        mut permit: AdmissionPermit,
        turn: Turn,
        span: tracing::Span,
    ) -> Result<Pending, DetectError> {
        if request.deadline.has_passed(Instant::now()) {
            return Err(DetectError::DeadlineExceeded);
        }
        let model = self
            .registry
            .find(request.model.as_deref(), request.version)?;
        span.record("model", &model.reference.name);
        let mut options = model.effective(&request.options)?;
        let asked = match turn.detect {
            Detect::AsAsked => None,
            Detect::DownTo(threshold) => {
                let lower = options.down_to(threshold);
                Some(std::mem::replace(&mut options, lower))
            }
        };
        // What is kept is the picture; a compressed message turned out larger than it was sent.
        if permit.resize(request.image.len() as u64).is_err() {
            return Err(self.overloaded());
        }
        let share = Share {
            source: permit.source(),
            stream: turn.stream,
        };
        self.admission.asks_for(share.source, model.key);
        let priority = permit.priority();
        let (answer, answered) = oneshot::channel();
        let key = model.key;
        let pieces = ServedModel::pieces(&options, &request.image);
        // The like of a refused call is refused unread; frames are never refused by that, and what is true of a picture in
        // pieces says nothing of others.
        let is_plain = turn.kind == Kind::Call && pieces.is_none();
        let turned_away = is_plain.then(|| TurnedAway {
            admission: self.admission.clone(),
            caller: permit.caller().clone(),
            deadline: request.deadline,
        });
        let waiting = Waiting::Picture(Box::new(Sent {
            call: Call {
                has_deadline: request.deadline != Deadline::NEVER,
                model,
                options,
                answer,
                span,
            },
            claim: turn.claim,
            image: request.image,
            received,
            permit,
        }));
        let arrival = |id| Arrival {
            id,
            model: key,
            share,
            priority,
            kind: turn.kind,
            // To have run by then is not enough.
            deadline: request.deadline.earlier(self.answers.at_most()),
            pieces,
            payload: waiting,
        };
        let Ok(ticket) = self.batcher.arrive(arrival) else {
            return Err(self.overloaded());
        };
        self.metrics.admitted.inc();
        Ok(Pending {
            received,
            answered,
            ticket: Some(ticket),
            answers: (turn.kind == Kind::Call).then(|| self.answers.clone()),
            in_pieces: pieces.is_some(),
            turned_away,
            asked,
        })
    }

    fn overloaded(&self) -> DetectError {
        self.metrics.refused.inc();
        DetectError::Overloaded {
            retry_after: self.waits.last().clamp(MIN_RETRY, MAX_RETRY),
        }
    }
}

// === impl Turn ===

impl Turn {
    /// Of a single call.
    fn call() -> Self {
        Self {
            stream: StreamKey::CALLS,
            kind: Kind::Call,
            claim: Claim::default(),
            detect: Detect::AsAsked,
        }
    }
}

// === impl Pending ===

impl Pending {
    /// What was asked for, where it was detected otherwise. Once.
    pub(super) fn take_asked(&mut self) -> Option<EffectiveOptions> {
        self.asked.take()
    }

    /// Takes in what there is to learn from an answer.
    fn learn(&self, answer: &Answer) {
        match answer {
            Ok(found) => {
                let Some(answers) = &self.answers else {
                    return;
                };
                let run_by = found
                    .timings
                    .total
                    .saturating_sub(found.timings.postprocess);
                answers.record(self.received.elapsed().saturating_sub(run_by));
            }
            Err(DetectError::DeadlineInfeasible {
                retry_after: Some(retry_after),
            }) => {
                if let Some(TurnedAway {
                    admission,
                    caller,
                    deadline,
                }) = &self.turned_away
                {
                    admission.turn_away(caller, *deadline, *retry_after);
                }
            }
            Err(_) => {}
        }
    }
}

impl Future for Pending {
    type Output = Answer;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let this = self.get_mut();
        let answer = std::task::ready!(Pin::new(&mut this.answered).poll(context));
        match this.ticket.take() {
            // What is left of a picture when one of its pieces has failed leaves with the ticket.
            Some(ticket) if this.in_pieces && !matches!(answer, Ok(Ok(_))) => drop(ticket),
            Some(ticket) => ticket.answered(),
            None => {}
        }
        // A request that is let go without an answer met a fault of ours, which has been logged there.
        let answer = answer.unwrap_or(Err(DetectError::Panicked { stage: "schedule" }));
        this.learn(&answer);
        Poll::Ready(answer)
    }
}

/// A client that comes back sooner only finds the same line; one that waits longer than this has better
/// asked again, since the line may have gone meanwhile.
const MIN_RETRY: Duration = Duration::from_millis(20);
pub(super) const MAX_RETRY: Duration = Duration::from_secs(5);
