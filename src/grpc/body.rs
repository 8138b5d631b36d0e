//! A request's body under guard: its message's size is known, and paid for, before the message is held.
//!
//! gRPC sends each message behind a prefix of five bytes: a flag and the length. The guard reads along. A
//! length above the limit ends the call at once, naming both numbers; a length within it takes a permit of so
//! many bytes, which the handler finds in the [`PermitSlot`]. A message that is begun has to keep coming.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Instant, Sleep};
use tonic::Status;

use super::error::CallError;
use super::status::status;
use crate::pipeline::{AdmissionPermit, Caller, Detector};

/// The flag and the length.
const PREFIX: usize = 5;

/// A message has to come at this rate, in bytes a second, once its patience is used up. A caller below it holds
/// a place in the line, and memory, that others could use: 32 MiB would take more than half an hour.
const MIN_RATE: u64 = 16 << 10;

/// What a body's messages are measured by.
#[derive(Debug, Clone)]
pub(super) struct MessageLimits {
    /// The largest message, in bytes.
    pub(super) max_size: u64,
    /// See [`super::connection::Config::message_patience`].
    pub(super) patience: Duration,
}

/// Where the guard leaves the permit that it took, for the handler.
#[derive(Debug, Clone, Default)]
pub(super) struct PermitSlot(Arc<Mutex<Option<AdmissionPermit>>>);

/// A body whose messages are looked at as they come.
#[derive(Debug)]
pub(super) struct GuardedBody {
    inner: Body,
    limits: MessageLimits,
    detector: Detector,
    caller: Caller,
    slot: PermitSlot,
    state: MessageState,
    /// Armed while a message is due and nothing more has come.
    timer: Option<Pin<Box<Sleep>>>,
}

/// How far into a message the body is, and until when it may be there.
#[derive(Debug, Clone, Copy)]
enum MessageState {
    /// Before the message, or in its prefix: so many bytes of it. Between the messages of a stream there is no
    /// hurry.
    Prefix {
        bytes: [u8; PREFIX],
        len: usize,
        by: Option<Instant>,
    },
    /// In the message.
    Message { size: u64, left: u64, by: Instant },
}

/// After a message, of a stream: the next may take its time.
const BETWEEN: MessageState = MessageState::Prefix {
    bytes: [0; PREFIX],
    len: 0,
    by: None,
};

// === impl MessageLimits ===

impl MessageLimits {
    /// How long a message of `size` bytes may take to come.
    fn time_for(&self, size: u64) -> Duration {
        self.patience + Duration::from_secs(size / MIN_RATE)
    }
}

// === impl PermitSlot ===

impl PermitSlot {
    /// Takes the permit out; there is one once a message has come.
    pub(super) fn take(&self) -> Option<AdmissionPermit> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn put(&self, permit: AdmissionPermit) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(permit);
    }
}

// === impl GuardedBody ===

impl GuardedBody {
    /// `hurried` is whether the first message has to begin soon, as that of a unary call has.
    pub(super) fn new(
        inner: Body,
        limits: MessageLimits,
        detector: Detector,
        caller: Caller,
        slot: PermitSlot,
        hurried: bool,
    ) -> Self {
        let by = hurried.then(|| Instant::now() + limits.patience);
        let state = MessageState::Prefix {
            bytes: [0; PREFIX],
            len: 0,
            by,
        };
        Self {
            inner,
            limits,
            detector,
            caller,
            slot,
            state,
            timer: None,
        }
    }

    /// Reads along in `data`.
    fn follow(&mut self, mut data: &[u8]) -> Result<(), CallError> {
        while !data.is_empty() {
            match &mut self.state {
                MessageState::Prefix { bytes, len, by } => {
                    by.get_or_insert_with(|| Instant::now() + self.limits.patience);
                    let take = data.len().min(PREFIX - *len);
                    bytes[*len..*len + take].copy_from_slice(&data[..take]);
                    *len += take;
                    data = &data[take..];
                    if *len == PREFIX {
                        let [_, a, b, c, d] = *bytes;
                        self.begin(u64::from(u32::from_be_bytes([a, b, c, d])))?;
                    }
                }
                MessageState::Message { left, .. } => {
                    let take = (data.len() as u64).min(*left);
                    *left -= take;
                    data = data
                        .get(usize::try_from(take).unwrap_or(usize::MAX)..)
                        .unwrap_or_default();
                    if *left == 0 {
                        self.state = BETWEEN;
                    }
                }
            }
        }
        Ok(())
    }

    /// A message of `size` bytes is announced.
    fn begin(&mut self, size: u64) -> Result<(), CallError> {
        if size > self.limits.max_size {
            return Err(CallError::MessageTooLarge {
                size,
                limit: self.limits.max_size,
            });
        }
        self.slot.put(self.detector.admit(&self.caller, size)?);
        let by = Instant::now() + self.limits.time_for(size);
        self.state = if size == 0 {
            BETWEEN
        } else {
            MessageState::Message {
                size,
                left: size,
                by,
            }
        };
        Ok(())
    }

    /// Whether a message that is due has been waited for too long.
    fn poll_stalled(&mut self, context: &mut Context<'_>) -> Poll<CallError> {
        let (by, stalled) = match self.state {
            MessageState::Prefix { by: None, .. } => {
                self.timer = None;
                return Poll::Pending;
            }
            MessageState::Prefix { by: Some(by), .. } => (
                by,
                CallError::MessageStalled {
                    received: 0,
                    size: None,
                    waited: self.limits.patience,
                },
            ),
            MessageState::Message { size, left, by } => {
                let waited = self.limits.time_for(size);
                (
                    by,
                    CallError::MessageStalled {
                        received: size - left,
                        size: Some(size),
                        waited,
                    },
                )
            }
        };
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(by)));
        if timer.deadline() != by {
            timer.as_mut().reset(by);
        }
        ready!(timer.as_mut().poll(context));
        Poll::Ready(stalled)
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
        match Pin::new(&mut this.inner).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                let outcome = frame.data_ref().map_or(Ok(()), |data| this.follow(data));
                Poll::Ready(Some(
                    outcome.map(|()| frame).map_err(|error| status(&error)),
                ))
            }
            // The connection, or the caller's end of the call, has gone.
            Poll::Ready(Some(Err(error))) => {
                Poll::Ready(Some(Err(Status::from_error(Box::new(error)))))
            }
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => {
                let error = ready!(this.poll_stalled(context));
                Poll::Ready(Some(Err(status(&error))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
