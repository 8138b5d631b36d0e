//! One stream from its first message to its end.
//!
//! The session reads while there is room in the window, and answers in the order of the frames. It ends
//!
//! - when the caller has closed its side, or the server or the connection is to go, and everything taken in is answered;
//! - in an error of the stream itself, likewise after what was taken in is answered;
//! - at once when the caller has gone, when its deadline has passed, and when it does not read.

use std::collections::VecDeque;
use std::future::pending;
use std::time::Duration;

use prost::Message;
use prost_types::Timestamp;
use tokio::time::{Instant, sleep_until};
use tonic::{Status, Streaming};

use super::outgoing::Sender;
use super::{Config, Limits};
use crate::grpc::body::PermitSlot;
use crate::grpc::connection::Leaving;
use crate::grpc::convert::{self, Terms};
use crate::grpc::error::{CallError, unread};
use crate::grpc::pb;
use crate::grpc::pb::detect_stream_request::Payload as In;
use crate::grpc::pb::detect_stream_response::Payload as Out;
use crate::grpc::pb::frame_result;
use crate::grpc::status::{frame_status, status};
use crate::grpc::unary::log_fault;
use crate::pipeline::{
    AdmissionPermit, Caller, DetectError, Detector, FrameAnswer, FrameOutcome, FrameRequest,
    FrameStream,
};
use crate::scheduling::Deadline;

/// A stream that is about to run.
pub(super) struct Session {
    pub(super) detector: Detector,
    pub(super) limits: Limits,
    pub(super) caller: Caller,
    pub(super) permits: PermitSlot,
    pub(super) leaving: Leaving,
    pub(super) deadline: Deadline,
    pub(super) inbound: Streaming<pb::DetectStreamRequest>,
    pub(super) out: Sender,
}

/// What is given back with a frame's answer.
#[derive(Debug)]
struct Tag {
    frame_id: u64,
    captured_at: Option<Timestamp>,
}

/// A message that waits to be handed on, since when.
struct Queued {
    payload: Out,
    permit: Option<AdmissionPermit>,
    since: Instant,
}

/// A stream that runs.
struct Running {
    detector: Detector,
    caller: Caller,
    permits: PermitSlot,
    config: Config,
    frames: FrameStream<Tag>,
    heartbeat: Option<Duration>,
    last_frame_id: Option<u64>,
    /// Until the caller has closed its side, or no more is wanted.
    reading: bool,
    /// How it ends, once everything is answered.
    ending: Result<(), Status>,
    queue: VecDeque<Queued>,
    /// When something was handed on last.
    spoke: Instant,
    /// When something was heard, or the last answer given.
    active: Instant,
}

// === impl Session ===

impl Session {
    /// Runs the stream to its end.
    ///
    /// # Errors
    /// The status with which it ends.
    pub(super) async fn run(mut self) -> Result<(), Status> {
        let out = self.out.clone();
        let by = self.deadline.instant().map(Instant::from_std);
        tokio::select! {
            biased;
            () = out.gone() => Ok(()),
            ended = self.converse() => ended,
            () = at(by) => Err(status(&DetectError::DeadlineExceeded.into())),
        }
    }

    async fn converse(&mut self) -> Result<(), Status> {
        let first = self.first().await?;
        drop(self.permits.take());
        let Terms { request, heartbeat } = match first {
            Some(In::Config(config)) => {
                convert::stream_request(config).map_err(|error| status(&error.into()))?
            }
            _ => return Err(invalid("the first message of a stream is its config")),
        };
        let opened = self.detector.open_stream(request);
        let (frames, terms) = opened.map_err(|error| status(&error.into()))?;
        let now = Instant::now();
        let running = Running {
            detector: self.detector.clone(),
            caller: self.caller.clone(),
            permits: self.permits.clone(),
            config: self.limits.config.clone(),
            frames,
            heartbeat,
            last_frame_id: None,
            reading: true,
            ending: Ok(()),
            queue: VecDeque::new(),
            spoke: now,
            active: now,
        };
        let started = Out::Started(convert::started(&terms));
        running.run(self, started).await
    }

    /// The first message's payload, which has to come soon: until then the stream costs more than it tells.
    async fn first(&mut self) -> Result<Option<In>, Status> {
        let patience = self.limits.message_patience;
        let stop = self.detector.stopping();
        let message = tokio::select! {
            message = tokio::time::timeout(patience, self.inbound.message()) => message,
            () = stop.cancelled() => return Err(status(&DetectError::Draining.into())),
        };
        match message {
            Ok(Ok(Some(message))) => Ok(message.payload),
            Ok(Ok(None)) => Err(invalid("the stream ended before its config")),
            Ok(Err(told)) => Err(reworded(told, &self.limits)),
            Err(_) => Err(status(&CallError::MessageStalled {
                received: 0,
                size: None,
                waited: patience,
            })),
        }
    }
}

fn reworded(told: Status, limits: &Limits) -> Status {
    unread(&told, limits.max_message_size).map_or(told, |error| status(&error))
}

fn invalid(text: &str) -> Status {
    status(&CallError::InvalidStream(text.to_owned()))
}

/// Returns then, or never.
async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => pending().await,
    }
}

// === impl Running ===

impl Running {
    async fn run(mut self, session: &mut Session, started: Out) -> Result<(), Status> {
        let Session {
            inbound,
            out,
            leaving,
            limits,
            ..
        } = session;
        let stop = self.detector.stopping();
        let mut told_to_leave = false;
        self.queue(started, None);
        while self.reading || !self.frames.is_empty() || !self.queue.is_empty() {
            let (slow, idle, quiet) = (self.slow_at(), self.idle_at(), self.heartbeat_at());
            tokio::select! {
                // Answers before news, so that a stream that is fed faster than it is read does not grow.
                biased;
                room = out.room(), if !self.queue.is_empty() => {
                    if let Some(Queued { payload, permit, .. }) = self.queue.pop_front() {
                        // A sign of life is no activity.
                        if !matches!(payload, Out::Heartbeat(_)) {
                            self.active = Instant::now();
                        }
                        let message = pb::DetectStreamResponse { payload: Some(payload) };
                        room.send((message, permit));
                    }
                    self.spoke = Instant::now();
                }
                () = at(slow) => {
                    let waited = self.config.slow_reader_timeout;
                    return Err(status(&CallError::SlowReader { waited }));
                }
                answer = self.frames.next(), if self.queue.is_empty() && !self.frames.is_empty() => {
                    self.answer(answer);
                }
                () = async { tokio::select! {
                    () = stop.cancelled() => {}
                    () = leaving.0.cancelled() => {}
                } }, if !told_to_leave => {
                    told_to_leave = true;
                    if self.reading {
                        self.reading = false;
                        let last_frame_id = self.last_frame_id;
                        self.queue(Out::Draining(pb::StreamDraining { last_frame_id }), None);
                    }
                }
                message = inbound.message(), if self.reading && self.frames.has_room() => {
                    self.active = Instant::now();
                    match message {
                        Ok(Some(message)) => self.take_in(message.payload),
                        Ok(None) => self.reading = false,
                        Err(told) => self.end(reworded(told, limits)),
                    }
                }
                () = at(quiet) => self.queue(Out::Heartbeat(pb::StreamHeartbeat {}), None),
                () = at(idle) => {
                    let waited = self.config.idle_timeout;
                    self.end(status(&CallError::StreamIdle { waited }));
                }
            }
        }
        self.ending
    }

    fn queue(&mut self, payload: Out, permit: Option<AdmissionPermit>) {
        self.queue.push_back(Queued {
            payload,
            permit,
            since: Instant::now(),
        });
    }

    /// When the first message has waited for too long to be handed on.
    fn slow_at(&self) -> Option<Instant> {
        let first = self.queue.front()?;
        first.since.checked_add(self.config.slow_reader_timeout)
    }

    fn heartbeat_at(&self) -> Option<Instant> {
        match self.queue.is_empty() {
            // What is too far away for a clock is never.
            true => self.spoke.checked_add(self.heartbeat?),
            false => None,
        }
    }

    fn idle_at(&self) -> Option<Instant> {
        let idle = self.reading && self.frames.is_empty() && !self.config.idle_timeout.is_zero();
        let at = self.active.checked_add(self.config.idle_timeout);
        at.filter(|_| idle)
    }

    /// No more is read; what was taken in is answered, then the stream ends so.
    fn end(&mut self, told: Status) {
        self.reading = false;
        self.ending = Err(told);
    }

    fn take_in(&mut self, payload: Option<In>) {
        let permit = self.permits.take();
        let frame = match payload {
            Some(In::Frame(frame)) => frame,
            Some(In::Config(_)) => return self.end(invalid("a stream has one config")),
            None => return self.end(invalid("a message without a config or a frame")),
        };
        let pb::Frame {
            frame_id,
            captured_at,
            image,
            options,
        } = frame;
        if let Some(last) = self.last_frame_id.filter(|last| frame_id <= *last) {
            let text = format!("frame {frame_id} comes after frame {last}: frame_id has to rise");
            return self.end(invalid(&text));
        }
        let tag = Tag {
            frame_id,
            captured_at,
        };
        self.last_frame_id = Some(frame_id);
        let request = convert::frame(image, options).and_then(|(image, options)| {
            let permit = match permit {
                Some(permit) => permit,
                // Every message has had one; without the guard it is taken here.
                None => self.detector.admit(&self.caller, image.len() as u64)?,
            };
            Ok(FrameRequest {
                image,
                options,
                permit,
            })
        });
        self.frames.push(tag, request);
    }

    fn answer(&mut self, answer: FrameAnswer<Tag>) {
        let FrameAnswer { tag, outcome } = answer;
        let outcome = match outcome {
            FrameOutcome::Detections(found) => {
                let mut response = convert::response(*found);
                // A stream is told once, at its start.
                response.effective_options = None;
                frame_result::Outcome::Detections(response)
            }
            FrameOutcome::Dropped(reason) => frame_result::Outcome::Dropped(pb::FrameDropped {
                reason: convert::drop_reason(reason).into(),
            }),
            FrameOutcome::Failed(error) => {
                log_fault(&error);
                frame_result::Outcome::Error(frame_status(&error.into()))
            }
        };
        let mut result = pb::FrameResult {
            frame_id: tag.frame_id,
            captured_at: tag.captured_at,
            outcome: Some(outcome),
        };
        // What waits to be taken is counted, as replies to calls are.
        let bytes = result.encoded_len() as u64;
        let permit = match self.detector.admit_reply(&self.caller, bytes) {
            Ok(permit) => Some(permit),
            Err(error) => {
                result.outcome = Some(frame_result::Outcome::Error(frame_status(&error.into())));
                None
            }
        };
        self.queue(Out::Result(result), permit);
    }
}
