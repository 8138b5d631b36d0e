//! `DetectStream`: a stream's messages in, its answers out.
//!
//! Each stream is a task of its own ([`session`]), which ends with the call: when the caller goes, what it holds goes too.
//! Which frames are in hand, and their order, is the use case's
//! ([`FrameStream`](crate::pipeline::FrameStream)); here are the contract's messages, the clocks of the connection, and
//! the way out ([`outgoing`]).

mod outgoing;
mod session;

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use serde::{Deserialize, Serialize};
use tonic::{Request, Streaming};
use tracing::Instrument;

use super::pb::DetectStreamRequest;
use super::status::status;
use crate::pipeline::Detector;
use crate::scheduling::Deadline;
pub(super) use outgoing::Outgoing;
use session::Session;

/// What a stream may do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// For how long a client may leave an answer lying; the stream ends then.
    #[serde(with = "humantime_serde")]
    pub slow_reader_timeout: Duration,
    /// A stream on which no frame has come for so long, with none in hand, ends. Zero is never.
    #[serde(with = "humantime_serde")]
    pub idle_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            // A phone that changes cells pauses for seconds.
            slow_reader_timeout: Duration::from_secs(30),
            // A camera at a door may see nothing for days.
            idle_timeout: Duration::ZERO,
        }
    }
}

/// What a stream is held to.
#[derive(Debug, Clone)]
pub(super) struct Limits {
    pub(super) config: Config,
    /// See [`super::connection::Config::message_patience`]: how long the first message may take.
    pub(super) message_patience: Duration,
    /// In bytes.
    pub(super) max_message_size: u64,
}

/// Starts a stream's task and gives its way out.
pub(super) fn serve(
    detector: Detector,
    limits: Limits,
    request: Request<Streaming<DetectStreamRequest>>,
) -> Outgoing {
    let extensions = request.extensions();
    let caller = extensions.get().cloned().unwrap_or_default();
    let permits = extensions.get().cloned().unwrap_or_default();
    let leaving = extensions.get().cloned().unwrap_or_default();
    let deadline = extensions.get().copied().unwrap_or(Deadline::NEVER);
    let (sender, outgoing) = outgoing::channel();
    let session = Session {
        detector: detector.clone(),
        limits,
        caller,
        permits,
        leaving,
        deadline,
        inbound: request.into_inner(),
        out: sender.clone(),
    };
    let span = tracing::Span::current();
    let task = async move {
        let ended = AssertUnwindSafe(session.run()).catch_unwind().await;
        let ended = ended.unwrap_or_else(|_| Err(status(&detector.panicked("stream").into())));
        tracing::debug!(ended = ?ended.as_ref().map_err(tonic::Status::code), "a stream ended");
        sender.end(ended);
    };
    tokio::spawn(task.instrument(span));
    outgoing
}
