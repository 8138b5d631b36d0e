//! A reply's body until the peer has taken it: what it takes in memory is counted, and it must not stay for ever.
//!
//! HTTP/2 lets a peer ask and never open its window for the answer. The body is handed on in small pieces, so that
//! hyper holds no more of it than the peer has room for, and the rest stays here, under a permit; the connection
//! is cut when a reply is not taken in time. Of a stream only the pieces are made here: it counts what waits itself, and
//! ends alone when its reader is slow (see [`super::stream`]).

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::body::MIN_RATE;
use crate::pipeline::AdmissionPermit;

/// What hyper is given at a time. A reply with some dozen boxes is one piece.
const PIECE: usize = 8 << 10;

/// Where a handler leaves the permit for its reply.
#[derive(Debug, Clone)]
pub(super) struct ReplyPermit(pub(super) Arc<AdmissionPermit>);

/// The replies of a connection that its peer has not taken yet.
#[derive(Debug, Clone, Default)]
pub(super) struct Replies {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// When each should have been taken.
    due: BTreeMap<u64, Instant>,
    next: u64,
}

/// One of them.
#[derive(Debug)]
struct Untaken {
    replies: Replies,
    number: u64,
}

/// A reply's body.
#[derive(Debug)]
pub(super) struct Reply {
    inner: Body,
    rest: Bytes,
    _counted: Option<(ReplyPermit, Untaken)>,
}

// === impl Replies ===

impl Replies {
    /// Whether one should have been taken by now.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.due.values().any(|due| *due <= now)
    }

    fn add(&self, due: Instant) -> Untaken {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let number = state.next;
        state.next += 1;
        state.due.insert(number, due);
        Untaken {
            replies: self.clone(),
            number,
        }
    }
}

impl Drop for Untaken {
    fn drop(&mut self) {
        let state = &self.replies.state;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        state.due.remove(&self.number);
    }
}

// === impl Reply ===

impl Reply {
    /// The peer has `patience`, and more for each byte that `permit` is for, to take it.
    pub(super) fn new(
        inner: Body,
        permit: ReplyPermit,
        replies: &Replies,
        patience: Duration,
    ) -> Self {
        let time = patience + Duration::from_secs(permit.0.bytes() / MIN_RATE);
        Self {
            inner,
            rest: Bytes::new(),
            _counted: Some((permit, replies.add(Instant::now() + time))),
        }
    }

    /// A stream's.
    pub(super) fn of_stream(inner: Body) -> Self {
        Self {
            inner,
            rest: Bytes::new(),
            _counted: None,
        }
    }
}

impl HttpBody for Reply {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        if this.rest.is_empty() {
            let frame = match std::task::ready!(Pin::new(&mut this.inner).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                end => return Poll::Ready(end),
            };
            match frame.into_data() {
                Ok(data) => this.rest = data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        let piece = this.rest.split_to(this.rest.len().min(PIECE));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
