//! The use case: a picture in, boxes out. One path for every door.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::admission::{Admission, AdmissionPermit, Overloaded};
use super::answer_gauge::AnswerGauge;
use super::caller::Caller;
use super::error::DetectError;
use super::metrics::Metrics;
use super::readiness::Readiness;
use super::registry::Registry;
use super::request::{DetectRequest, Detections};
use super::served::ServedModel;
use super::stages::{Call, Sent, Waiting};
use super::timings::Received;
use super::wait_gauge::WaitGauge;
use crate::scheduling::{Arrival, Batcher, Deadline, Outcome, Share, StreamKey};

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
    pub(super) metrics: Metrics,
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
            self.metrics.let_go(Outcome::Infeasible { retry_after });
            return Err(DetectError::DeadlineInfeasible { retry_after });
        }
        Ok(())
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
        mut permit: AdmissionPermit,
        span: &tracing::Span,
    ) -> Result<Detections, DetectError> {
        let received = Received::now();
        if self.stop.is_cancelled() {
            return Err(DetectError::Draining);
        }
        if request.deadline.has_passed(Instant::now()) {
            return Err(DetectError::DeadlineExceeded);
        }
        let model = self
            .registry
            .find(request.model.as_deref(), request.version)?;
        span.record("model", &model.reference.name);
        let options = model.effective(&request.options)?;
        // What is kept is the picture; a compressed message turned out larger than it was sent.
        if permit.resize(request.image.len() as u64).is_err() {
            return Err(self.overloaded());
        }
        let share = Share {
            source: permit.source(),
            stream: StreamKey::CALLS,
        };
        let priority = permit.priority();
        let caller = permit.caller().clone();
        let (answer, answered) = oneshot::channel();
        let key = model.key;
        let pieces = ServedModel::pieces(&options, &request.image);
        let waiting = Waiting::Picture(Box::new(Sent {
            call: Call {
                has_deadline: request.deadline != Deadline::NEVER,
                model,
                options,
                answer,
                span: span.clone(),
            },
            image: request.image,
            received,
            permit,
        }));
        let arrival = |id| Arrival {
            id,
            model: key,
            share,
            priority,
            // To have run by then is not enough.
            deadline: request.deadline.earlier(self.answers.at_most()),
            pieces,
            payload: waiting,
        };
        let Ok(ticket) = self.batcher.arrive(arrival) else {
            return Err(self.overloaded());
        };
        self.metrics.admitted.inc();
        let answer = match request.deadline.instant() {
            None => answered.await,
            Some(instant) => match tokio::time::timeout_at(instant.into(), answered).await {
                Ok(answer) => answer,
                // The ticket goes with this return and takes the request out of the line.
                Err(_) => return Err(DetectError::DeadlineExceeded),
            },
        };
        match &answer {
            // What is left of a picture when one of its pieces has failed leaves with the ticket.
            Ok(Err(_)) if pieces.is_some() => drop(ticket),
            _ => ticket.answered(),
        }
        if let Ok(Ok(found)) = &answer {
            let run_by = found
                .timings
                .total
                .saturating_sub(found.timings.postprocess);
            self.answers
                .record(received.elapsed().saturating_sub(run_by));
        }
        // What is true of a picture in pieces says nothing of others.
        if let Ok(Err(DetectError::DeadlineInfeasible { retry_after })) = &answer
            && pieces.is_none()
        {
            self.admission
                .turn_away(&caller, key, request.deadline, *retry_after);
        }
        // A request that is let go without an answer met a fault of ours, which has been logged there.
        answer.unwrap_or(Err(DetectError::Panicked { stage: "schedule" }))
    }

    fn overloaded(&self) -> DetectError {
        self.metrics.refused.inc();
        DetectError::Overloaded {
            retry_after: self.waits.last().clamp(MIN_RETRY, MAX_RETRY),
        }
    }
}

/// A client that comes back sooner only finds the same line; one that waits longer than this has better
/// asked again, since the line may have gone meanwhile.
const MIN_RETRY: Duration = Duration::from_millis(20);
const MAX_RETRY: Duration = Duration::from_secs(5);
