//! A request's body under guard: its message's size is known, and paid for, before the message is held.
//!
//! gRPC sends each message behind a prefix of five bytes: a flag and the length. The guard reads along. A
//! length above the limit ends the call at once, naming both numbers; a length within it takes a permit of so
//! many bytes, which the handler finds in the [`PermitSlot`]. A message that is begun has to keep coming, a call
//! of one message has one, and no wait for either outlasts the caller's deadline.
//!
//! A stream's messages are handed on one at a time, and a permit is waited for rather than refused: while there is no
//! room nothing more is read, and HTTP/2 holds the sender back.
//!
//! The end of a call's only message is kept back until the caller has said that it was the only one: then the
//! handler takes over at once, and nothing is inflated, or lies decoded, while somebody may still think about it.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Instant, Sleep};
use tonic::Status;

use super::connection::MAX_FRAME;
use super::error::CallError;
use super::status::status;
use crate::pipeline::{AdmissionPermit, Caller, DetectError, Detector};
use crate::scheduling::Deadline;

/// The flag and the length.
const PREFIX: usize = 5;

/// A message has to come, and a reply be taken, at this rate, in bytes a second, once its patience is used up. A
/// caller below it holds a place in the line, and memory, that others could use.
pub(super) const MIN_RATE: u64 = 16 << 10;

/// A stream's first message is its config, which costs next to nothing and is not counted, up to so many bytes.
const MAX_FREE: u64 = 16 << 10;

/// What a body's messages are measured by.
#[derive(Debug, Clone)]
pub(super) struct MessageLimits {
    /// The largest message, in bytes.
    pub(super) max_size: u64,
    /// See [`super::connection::Config::message_patience`].
    pub(super) patience: Duration,
}

/// Where the guard leaves the permits that it took, one for each message in their order, for the handler.
#[derive(Debug, Clone, Default)]
pub(super) struct PermitSlot(Arc<Mutex<VecDeque<AdmissionPermit>>>);

/// How many messages a call has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Messages {
    /// One, and it has to begin soon.
    One,
    /// Any number, at any time.
    Stream,
}

/// What messages are paid for with.
#[derive(Debug)]
pub(super) struct Toll {
    pub(super) detector: Detector,
    pub(super) caller: Caller,
    pub(super) slot: PermitSlot,
}

/// A body whose messages are looked at as they come.
pub(super) struct GuardedBody {
    inner: Body,
    limits: MessageLimits,
    messages: Messages,
    /// `None` where messages are free, and small.
    toll: Option<Toll>,
    deadline: Option<Instant>,
    state: MessageState,
    is_first: bool,
    /// A stream's message is announced, and waits for a permit.
    admitting: Option<Admitting>,
    /// What has come behind the message that is being handed on.
    rest: Bytes,
    /// The end of the only message.
    kept: Option<Bytes>,
    /// Armed while something is due and nothing more has come.
    timer: Option<Pin<Box<Sleep>>>,
}

/// A message of a stream that there is no room for yet.
struct Admitting {
    size: u64,
    permit: Pin<Box<dyn Future<Output = AdmissionPermit> + Send>>,
}

/// How far into a message the body is.
#[derive(Debug, Clone, Copy)]
enum MessageState {
    /// Before the message, or in its prefix: so many bytes of it. `since` when it is due.
    Prefix {
        bytes: [u8; PREFIX],
        len: usize,
        since: Option<Instant>,
    },
    /// In the message.
    Message {
        size: u64,
        left: u64,
        since: Instant,
    },
    /// After the only message: nothing may follow, and the end should.
    Ended { since: Instant },
}

// === impl MessageLimits ===

impl MessageLimits {
    /// How long a message of `size` bytes, of which `received` have come, may have taken so far. How far it has come
    /// shows with whole frames, so the next one's time is given too.
    fn time_for(&self, size: u64, received: u64) -> Duration {
        let next = received.saturating_add(u64::from(MAX_FRAME)).min(size);
        self.patience + Duration::from_millis(next.saturating_mul(1_000) / MIN_RATE)
    }
}

// === impl PermitSlot ===

impl PermitSlot {
    /// Takes the next permit out; there is one for each message that has come, but for a stream's config.
    pub(super) fn take(&self) -> Option<AdmissionPermit> {
        let mut permits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        permits.pop_front()
    }

    fn put(&self, permit: AdmissionPermit) {
        let mut permits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        permits.push_back(permit);
    }
}

// === impl GuardedBody ===

impl GuardedBody {
    pub(super) fn new(
        inner: Body,
        limits: MessageLimits,
        messages: Messages,
        toll: Option<Toll>,
        deadline: Deadline,
    ) -> Self {
        let since = (messages == Messages::One).then(Instant::now);
        Self {
            inner,
            limits,
            messages,
            toll,
            deadline: deadline.instant().map(Instant::from_std),
            state: MessageState::before(since),
            is_first: true,
            admitting: None,
            rest: Bytes::new(),
            kept: None,
            timer: None,
        }
    }

    /// Reads along in `data`. Answers how many bytes of it may be handed on before more is looked at: of a stream,
    /// those up to the end of a message, or to one that waits for a permit.
    fn follow(&mut self, data: &[u8]) -> Result<usize, CallError> {
        let all = data.len();
        let mut data = data;
        while !data.is_empty() {
            match &mut self.state {
                MessageState::Prefix { bytes, len, since } => {
                    since.get_or_insert_with(Instant::now);
                    let take = data.len().min(PREFIX - *len);
                    bytes[*len..*len + take].copy_from_slice(&data[..take]);
                    *len += take;
                    data = &data[take..];
                    if *len == PREFIX {
                        let [_, a, b, c, d] = *bytes;
                        self.begin(u64::from(u32::from_be_bytes([a, b, c, d])))?;
                        if self.messages == Messages::Stream {
                            return Ok(all - data.len());
                        }
                    }
                }
                MessageState::Message { left, .. } => {
                    let take = (data.len() as u64).min(*left);
                    *left -= take;
                    data = data
                        .get(usize::try_from(take).unwrap_or(usize::MAX)..)
                        .unwrap_or_default();
                    if *left == 0 {
                        self.end();
                        if self.messages == Messages::Stream {
                            return Ok(all - data.len());
                        }
                    }
                }
                MessageState::Ended { .. } => {
                    let text = "there is more than the one message of this call";
                    return Err(CallError::MalformedMessage(text.to_owned()));
                }
            }
        }
        Ok(all)
    }

    /// A message of `size` bytes is announced.
    fn begin(&mut self, size: u64) -> Result<(), CallError> {
        if size > self.limits.max_size {
            return Err(CallError::MessageTooLarge {
                size,
                limit: self.limits.max_size,
            });
        }
        if let Some(toll) = &self.toll {
            match self.messages {
                Messages::One => toll.slot.put(toll.detector.admit(&toll.caller, size)?),
                Messages::Stream if self.is_first && size <= MAX_FREE => {}
                Messages::Stream => {
                    let permit = Box::pin(toll.detector.admit_frame(&toll.caller, size));
                    self.is_first = false;
                    self.admitting = Some(Admitting { size, permit });
                    // Nothing is due from the peer meanwhile.
                    self.state = MessageState::before(None);
                    return Ok(());
                }
            }
        }
        self.is_first = false;
        self.start(size);
        Ok(())
    }

    /// A message of `size` bytes begins.
    fn start(&mut self, size: u64) {
        self.state = MessageState::Message {
            size,
            left: size,
            since: Instant::now(),
        };
        if size == 0 {
            self.end();
        }
    }

    /// Waits for the permit of a stream's message.
    fn poll_admitted(&mut self, context: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        let (Some(admitting), Some(toll)) = (&mut self.admitting, &self.toll) else {
            return Poll::Ready(Ok(()));
        };
        match admitting.permit.as_mut().poll(context) {
            Poll::Ready(permit) => {
                toll.slot.put(permit);
                let size = admitting.size;
                self.admitting = None;
                self.start(size);
                Poll::Ready(Ok(()))
            }
            Poll::Pending => self.poll_late(context).map(Err),
        }
    }

    /// A message is complete.
    fn end(&mut self) {
        self.state = match self.messages {
            Messages::One => MessageState::Ended {
                since: Instant::now(),
            },
            Messages::Stream => MessageState::before(None),
        };
    }

    /// Whether the next thing that is due has been waited for too long.
    fn poll_late(&mut self, context: &mut Context<'_>) -> Poll<CallError> {
        let (due, late) = match self.state {
            MessageState::Prefix { since: None, .. } => (None, None),
            MessageState::Prefix {
                since: Some(since), ..
            } => (Some(since + self.limits.patience), Some((0, None))),
            MessageState::Message { size, left, since } => {
                let received = size - left;
                let due = since + self.limits.time_for(size, received);
                (Some(due), Some((received, Some(size))))
            }
            MessageState::Ended { since } => (Some(since + self.limits.patience), Some((0, None))),
        };
        let Some(by) = due.into_iter().chain(self.deadline).min() else {
            self.timer = None;
            return Poll::Pending;
        };
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(by)));
        if timer.deadline() != by {
            timer.as_mut().reset(by);
        }
        ready!(timer.as_mut().poll(context));
        if self.deadline.is_some_and(|deadline| deadline <= by) {
            return Poll::Ready(DetectError::DeadlineExceeded.into());
        }
        Poll::Ready(match (self.state, late) {
            (MessageState::Ended { .. }, _) | (_, None) => CallError::CallNotEnded {
                waited: self.limits.patience,
            },
            (_, Some((received, size))) => CallError::MessageStalled {
                received,
                size,
                waited: self.limits.time_for(size.unwrap_or_default(), received),
            },
        })
    }
}

// === impl MessageState ===

impl MessageState {
    fn before(since: Option<Instant>) -> Self {
        Self::Prefix {
            bytes: [0; PREFIX],
            len: 0,
            since,
        }
    }
}

impl HttpBody for GuardedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        loop {
            if let Err(error) = ready!(this.poll_admitted(context)) {
                return Poll::Ready(Some(Err(status(&error))));
            }
            let polled = match this.rest.is_empty() {
                true => Pin::new(&mut this.inner).poll_frame(context),
                false => Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut this.rest))))),
            };
            let frame = match polled {
                Poll::Ready(Some(Ok(frame))) => frame,
                // The connection, or the caller's end of the call, has gone.
                Poll::Ready(Some(Err(error))) => {
                    let error = Status::from_error(Box::new(error));
                    return Poll::Ready(Some(Err(error)));
                }
                Poll::Ready(None) => {
                    return Poll::Ready(this.kept.take().map(|kept| Ok(Frame::data(kept))));
                }
                Poll::Pending => {
                    let error = ready!(this.poll_late(context));
                    this.kept = None;
                    return Poll::Ready(Some(Err(status(&error))));
                }
            };
            let mut data = match frame.into_data() {
                Ok(data) => data,
                // Requests have no trailers that would mean anything.
                Err(_trailers) => continue,
            };
            let had_ended = matches!(this.state, MessageState::Ended { .. });
            match this.follow(&data) {
                Ok(now) => this.rest = data.split_off(now),
                Err(error) => {
                    this.kept = None;
                    return Poll::Ready(Some(Err(status(&error))));
                }
            }
            match this.state {
                // An empty frame that only says that this was all.
                MessageState::Ended { .. } if had_ended => {}
                MessageState::Ended { .. } if !this.inner.is_end_stream() => this.kept = Some(data),
                _ => return Poll::Ready(Some(Ok(Frame::data(data)))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.kept.is_none() && self.rest.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
