//! The one place where an error becomes a gRPC status.
//!
//! Every status carries a `google.rpc.ErrorInfo` with domain `detectd` and a reason from a closed set, so that
//! a program can tell errors apart without reading the text. `docs/ERRORS.md` is this table for people; a test
//! compares the two.

use std::collections::HashMap;
use std::time::Duration;

use prost::Message;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt, pb};

use super::error::CallError;
use crate::pipeline::DetectError;
use crate::vision::DecodeError;
use crate::vision::decode::MAX_SIDE;

/// The domain of every reason.
const DOMAIN: &str = "detectd";

/// Tells a client's automatic retries when to try again.
const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// Code and reason of an error.
pub(super) fn classify(error: &CallError) -> (Code, &'static str) {
    match error {
        CallError::Detect(error) => classify_detect(error),
        CallError::HeadersTooLarge { .. } => (Code::ResourceExhausted, "HEADERS_TOO_LARGE"),
        CallError::MessageTooLarge { .. } => (Code::ResourceExhausted, "MESSAGE_TOO_LARGE"),
        CallError::MessageStalled { .. } => (Code::DeadlineExceeded, "MESSAGE_STALLED"),
        CallError::CallNotEnded { .. } => (Code::DeadlineExceeded, "MESSAGE_STALLED"),
        CallError::MalformedMessage(_) => (Code::InvalidArgument, "MALFORMED_MESSAGE"),
        CallError::InvalidStream(_) => (Code::InvalidArgument, "INVALID_STREAM"),
        CallError::SlowReader { .. } => (Code::ResourceExhausted, "SLOW_READER"),
        CallError::StreamIdle { .. } => (Code::DeadlineExceeded, "STREAM_IDLE"),
    }
}

fn classify_detect(error: &DetectError) -> (Code, &'static str) {
    match error {
        DetectError::ModelNotFound { .. } | DetectError::NoDefaultModel { .. } => {
            (Code::NotFound, "MODEL_NOT_FOUND")
        }
        DetectError::ModelNotReady { .. } => (Code::Unavailable, "MODEL_NOT_READY"),
        DetectError::InvalidOption { .. } => (Code::InvalidArgument, "INVALID_OPTION"),
        DetectError::Picture(error) => (
            Code::InvalidArgument,
            match error {
                DecodeError::Empty => "EMPTY_IMAGE",
                DecodeError::UnsupportedFormat { .. } => "UNSUPPORTED_FORMAT",
                DecodeError::Corrupt { .. } | DecodeError::DecoderPanicked => "CORRUPT_IMAGE",
                DecodeError::Truncated => "TRUNCATED_IMAGE",
                DecodeError::TooLarge { .. } | DecodeError::SideTooLong { .. } => "IMAGE_TOO_LARGE",
                DecodeError::FrameSizeMismatch { .. } => "FRAME_SIZE_MISMATCH",
                DecodeError::InvalidFrame { .. } => "INVALID_OPTION",
            },
        ),
        DetectError::Overloaded { .. } => (Code::ResourceExhausted, "QUEUE_FULL"),
        DetectError::DeadlineInfeasible { .. } => (Code::ResourceExhausted, "DEADLINE_INFEASIBLE"),
        DetectError::TooManyStreams { .. } => (Code::ResourceExhausted, "TOO_MANY_STREAMS"),
        DetectError::DeadlineExceeded => (Code::DeadlineExceeded, "DEADLINE_EXCEEDED"),
        DetectError::Draining => (Code::Unavailable, "DRAINING"),
        DetectError::Inference(_)
        | DetectError::InstanceLost
        | DetectError::Head(_)
        | DetectError::Panicked { .. } => (Code::Internal, "INTERNAL"),
    }
}

/// A status travels in headers, which clients bound (grpc's own at 8 KiB, all together), and a caller's own words
/// in it may be as long as the caller likes. In bytes, each becoming up to three on the wire.
const MAX_MESSAGE: usize = 1_024;
const MAX_VALUE: usize = 128;

/// `text`, or its beginning.
fn clip(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let mut clipped: String = text[..text.floor_char_boundary(most)].to_owned();
    clipped.push_str("...");
    clipped
}

/// Whether the same call again would fare better.
enum Retry {
    After(Duration),
    Never,
}

fn retry(error: &CallError) -> Option<Retry> {
    match error {
        CallError::Detect(DetectError::Overloaded { retry_after }) => {
            Some(Retry::After(*retry_after))
        }
        CallError::Detect(DetectError::DeadlineInfeasible { retry_after }) => {
            Some(retry_after.map_or(Retry::Never, Retry::After))
        }
        _ => None,
    }
}

/// The status of an error. Causes that lie inside the server are logged, not told.
pub(super) fn status(error: &CallError) -> Status {
    let (code, reason) = classify(error);
    let mut details = ErrorDetails::with_error_info(reason, DOMAIN, metadata(error));
    let mut trailers = MetadataMap::new();
    // gRPC's own retries read the trailer and no details (gRFC A6); a negative number tells them to let it be.
    match retry(error) {
        None => {}
        Some(Retry::After(after)) => {
            details.set_retry_info(Some(after));
            let millis = i32::try_from(after.as_millis()).unwrap_or(i32::MAX);
            trailers.insert(PUSHBACK, millis.into());
        }
        Some(Retry::Never) => {
            trailers.insert(PUSHBACK, (-1).into());
        }
    }
    let text = clip(&error.to_string(), MAX_MESSAGE);
    Status::with_error_details_and_metadata(code, text, details, trailers)
}

/// The same for a frame alone, inside a stream that goes on.
pub(super) fn frame_status(error: &CallError) -> pb::Status {
    // A status carries this very message in its trailers.
    pb::Status::decode(status(error).details()).unwrap_or_default()
}

/// The numbers and names in an error's text, for programs.
fn metadata(error: &CallError) -> HashMap<String, String> {
    let pairs: Vec<(&str, String)> = match error {
        CallError::Detect(error) => detect_metadata(error),
        CallError::HeadersTooLarge { size, limit } => {
            vec![("size", size.to_string()), ("limit", limit.to_string())]
        }
        CallError::MessageTooLarge { size, limit } => {
            vec![("size", size.to_string()), ("limit", limit.to_string())]
        }
        CallError::MessageStalled { received, size, .. } => {
            let size = size.map(|size| ("size", size.to_string()));
            [("received", received.to_string())]
                .into_iter()
                .chain(size)
                .collect()
        }
        CallError::CallNotEnded { .. }
        | CallError::MalformedMessage(_)
        | CallError::InvalidStream(_)
        | CallError::SlowReader { .. }
        | CallError::StreamIdle { .. } => Vec::new(),
    };
    let owned = |(key, value): (&str, String)| (key.to_owned(), clip(&value, MAX_VALUE));
    pairs.into_iter().map(owned).collect()
}

fn detect_metadata(error: &DetectError) -> Vec<(&'static str, String)> {
    match error {
        DetectError::ModelNotFound { wanted, .. } => vec![("model", wanted.clone())],
        DetectError::ModelNotReady { model, .. } => vec![("model", model.clone())],
        DetectError::InvalidOption { field, .. }
        | DetectError::Picture(DecodeError::InvalidFrame { field, .. }) => {
            vec![("field", (*field).to_owned())]
        }
        DetectError::Picture(DecodeError::TooLarge { size, max_pixels }) => vec![
            ("width", size.width.to_string()),
            ("height", size.height.to_string()),
            ("max_pixels", max_pixels.to_string()),
        ],
        DetectError::Picture(DecodeError::SideTooLong { size }) => vec![
            ("width", size.width.to_string()),
            ("height", size.height.to_string()),
            ("max_side", MAX_SIDE.to_string()),
        ],
        DetectError::Picture(DecodeError::UnsupportedFormat { hint }) => {
            let found = hint.split(';').next().unwrap_or(hint);
            vec![("found", found.to_owned())]
        }
        DetectError::Picture(DecodeError::FrameSizeMismatch { expected, got }) => {
            vec![("expected", expected.to_string()), ("got", got.to_string())]
        }
        DetectError::Overloaded { retry_after }
        | DetectError::DeadlineInfeasible {
            retry_after: Some(retry_after),
        } => {
            vec![("retry_after_ms", millis(*retry_after))]
        }
        DetectError::TooManyStreams { limit } => vec![("limit", limit.to_string())],
        DetectError::NoDefaultModel { .. }
        | DetectError::Picture(_)
        | DetectError::DeadlineInfeasible { retry_after: None }
        | DetectError::DeadlineExceeded
        | DetectError::Draining
        | DetectError::Inference(_)
        | DetectError::InstanceLost
        | DetectError::Head(_)
        | DetectError::Panicked { .. } => Vec::new(),
    }
}

fn millis(duration: Duration) -> String {
    duration.as_millis().to_string()
}
