//! The gate: what is decided about a call on its headers, before any of its message is read.
//!
//! Outside in: the call gets its name and its deadline, and is refused if its headers are too large; health and reflection pass; everything else is refused
//! at once while the server drains or the line is full, and else goes on with a [`GuardedBody`]. On the way
//! back a status that tonic made of a message it could not read gets our code and reason. Bearer tokens have
//! their place between the name and the refusals.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use http::{HeaderMap, HeaderName, Method, StatusCode, header};
use tonic::{Code, Status};
use tracing::Instrument;

use super::MAX_QUESTION;
use super::body::{GuardedBody, MessageLimits, Messages, PermitSlot, Toll};
use super::caller::{Peer, caller};
use super::deadline;
use super::error::{CallError, unread};
use super::health::SERVICE;
use super::metrics::Metrics;
use super::reply::{Replies, Reply, ReplyPermit};
use super::request_id::{self, RequestIds};
use super::status::status;
use crate::pipeline::Detector;
use crate::scheduling::Deadline;

/// All headers of a call together, in bytes as HTTP/2 counts them. Usual ones are a few hundred; tokens of several
/// kilobytes occur. grpc's own libraries draw the line at the same size.
const MAX_HEADERS: usize = 16 << 10;

/// What HTTP/2 counts for each header beside its name and value (RFC 9113, 6.5.2).
const HEADER_OVERHEAD: usize = 32;

/// What the gate decides by.
#[derive(Debug, Clone)]
pub(super) struct Gate {
    pub(super) detector: Detector,
    pub(super) limits: MessageLimits,
    /// See [`super::Config::source_header`].
    pub(super) source_header: Option<HeaderName>,
    pub(super) names: Arc<RequestIds>,
    pub(super) metrics: Metrics,
}

/// One call's way in and out.
pub(super) async fn pass(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let name = gate.names.name(request.headers());
    let span = tracing::info_span!("call", id = %name);
    let mut response = gate.answer(request, next).instrument(span.clone()).await;
    // A status that is an error is in the extensions; that of a reply follows it.
    let code = response.extensions().get().map_or(Code::Ok, Status::code);
    let took = began.elapsed();
    if code == Code::ResourceExhausted {
        gate.metrics.refusals.observe(took.as_secs_f64());
    }
    span.in_scope(|| tracing::debug!(http = %response.status(), ?code, ?took, "answered"));
    response
        .headers_mut()
        .insert(request_id::HEADER, name.header());
    response
}

// === impl Gate ===

impl Gate {
    async fn answer(&self, request: Request, next: Next) -> Response {
        let size = headers_size(request.headers());
        if size > MAX_HEADERS {
            let limit = MAX_HEADERS;
            return refuse(&CallError::HeadersTooLarge { size, limit });
        }
        if let Some(refusal) = other_protocol(&request) {
            return refusal;
        }
        match deadline::read(request.headers(), Instant::now()) {
            Err(error) => refuse(&error),
            Ok(deadline) if is_detection(request.uri().path()) => {
                self.detect(request, deadline, next).await
            }
            Ok(deadline) => self.ask(request, deadline, next).await,
        }
    }

    /// Health, reflection, and what is not served: free, and small.
    async fn ask(&self, request: Request, deadline: Deadline, next: Next) -> Response {
        let limits = MessageLimits {
            max_size: MAX_QUESTION as u64,
            patience: self.limits.patience,
        };
        let messages = match request.uri().path().starts_with("/grpc.reflection.") {
            true => Messages::Stream,
            false => Messages::One,
        };
        let guard = |body| Body::new(GuardedBody::new(body, limits, messages, None, deadline));
        self.reword(next.run(request.map(guard)).await)
    }

    async fn detect(&self, request: Request, deadline: Deadline, next: Next) -> Response {
        let (mut parts, body) = request.into_parts();
        let peer = parts.extensions.get().copied().unwrap_or(Peer(None));
        let caller = match caller(&parts.headers, peer, self.source_header.as_ref()) {
            Ok(caller) => caller,
            Err(error) => return refuse(&error),
        };
        let is_stream = parts.uri.path().ends_with("/DetectStream");
        // A stream waits for room, frame by frame.
        let opens = match is_stream {
            true => self.detector.opens_stream(),
            false => self.detector.opens(&caller, deadline),
        };
        if let Err(error) = opens {
            return refuse(&error.into());
        }
        let replies: Replies = parts.extensions.get().cloned().unwrap_or_default();
        let slot = PermitSlot::default();
        parts.extensions.insert(deadline);
        parts.extensions.insert(caller.clone());
        parts.extensions.insert(slot.clone());
        // A stream may be quiet before its first message, as after it.
        let messages = match is_stream {
            true => Messages::Stream,
            false => Messages::One,
        };
        let toll = Toll {
            detector: self.detector.clone(),
            caller,
            slot,
        };
        let limits = self.limits.clone();
        let body = GuardedBody::new(body, limits, messages, Some(toll), deadline);
        let request = Request::from_parts(parts, Body::new(body));
        let Some(response) = contained(next.run(request)).await else {
            return refuse(&self.detector.panicked("call").into());
        };
        let mut response = self.reword(response);
        if is_stream {
            return response.map(|body| Body::new(Reply::of_stream(body)));
        }
        let Some(permit) = response.extensions_mut().remove::<ReplyPermit>() else {
            return response;
        };
        let patience = self.limits.patience;
        response.map(|body| Body::new(Reply::new(body, permit, &replies, patience)))
    }

    /// A status without details is tonic's own, about a message that it could not read. That is the caller's
    /// fault, and never INTERNAL.
    fn reword(&self, response: Response) -> Response {
        let told = response.extensions().get::<Status>();
        match told.and_then(|told| unread(told, self.limits.max_size)) {
            Some(error) => refuse(&error),
            None => response,
        }
    }
}

/// What a call gives, or `None` when it panics. Other calls run on the same connection's task, and go on.
async fn contained<T>(call: impl Future<Output = T>) -> Option<T> {
    // What the panic leaves half done is the call's own, and goes with it.
    AssertUnwindSafe(call).catch_unwind().await.ok()
}

/// Whether a path is one of our service's. The others (health, reflection) are answered whatever the load.
fn is_detection(path: &str) -> bool {
    path.strip_prefix('/')
        .and_then(|path| path.strip_prefix(SERVICE))
        .is_some_and(|rest| rest.starts_with('/'))
}

/// What is not gRPC gets what HTTP says about it. gRPC is POST, with a content type of its own.
fn other_protocol(request: &Request) -> Option<Response> {
    if request.method() != Method::POST {
        let refusal = (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "POST")]);
        return Some(refusal.into_response());
    }
    let content_type = request.headers().get(header::CONTENT_TYPE);
    let is_grpc = content_type.is_some_and(|value| {
        let rest = value.as_bytes().strip_prefix(b"application/grpc");
        rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
    });
    (!is_grpc).then(|| StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response())
}

fn headers_size(headers: &HeaderMap) -> usize {
    let sizes = headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + HEADER_OVERHEAD);
    sizes.sum()
}

fn refuse(error: &CallError) -> Response {
    tracing::debug!(%error, "refused");
    status(error).into_http()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_call_that_panics_is_contained_wherever_it_does() {
        assert_eq!(contained(async { 7 }).await, Some(7));
        assert_eq!(contained(async { panic!("at once") }).await, None::<()>);
        let later = async {
            tokio::task::yield_now().await;
            panic!("later")
        };
        assert_eq!(contained(later).await, None::<()>);
    }

    #[test]
    fn only_our_service_is_gated() {
        assert!(is_detection("/detectd.v1.DetectionService/Detect"));
        assert!(is_detection("/detectd.v1.DetectionService/Nonsense"));
        for path in [
            "/grpc.health.v1.Health/Check",
            "/detectd.v1.DetectionServiceX/Detect",
            "/",
            "",
        ] {
            assert!(!is_detection(path), "{path}");
        }
    }
}
