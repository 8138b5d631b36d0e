//! Why a call was not answered: the use case's reasons, and those of the messages themselves.

use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::pipeline::DetectError;

/// Why a call was not answered. `status` turns each into what goes over the wire.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The use case refused or failed.
    #[error(transparent)]
    Detect(#[from] DetectError),
    /// A call's headers are larger than any may be.
    #[error("headers of {size} bytes are above the limit of {limit} bytes")]
    HeadersTooLarge {
        /// All of them together, in bytes as HTTP/2 counts them: 32 for each beside its name and value.
        size: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// A message is larger than any may be.
    #[error("a message of {size} bytes is above the limit of {limit} bytes")]
    MessageTooLarge {
        /// Its length, in bytes; when it was sent compressed, as far as it was inflated.
        size: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// A message stopped coming half way, or never began.
    #[error("the message came too slowly: {received} of {} bytes in {} s", size.map_or("?".to_owned(), |size| size.to_string()), waited.as_secs_f32())]
    MessageStalled {
        /// Bytes that had come.
        received: u64,
        /// Bytes that were announced; `None` before its prefix was there.
        size: Option<u64>,
        /// For how long it was waited.
        waited: Duration,
    },
    /// The only message of a call came, and the call's end did not.
    #[error("the call's message came, and after {} s still not the end of the call", waited.as_secs_f32())]
    CallNotEnded {
        /// For how long it was waited.
        waited: Duration,
    },
    /// A message is not what the contract says.
    #[error("the message cannot be read: {0}")]
    MalformedMessage(String),
    /// A stream's messages are not in the order that the contract has.
    #[error("{0}")]
    InvalidStream(String),
    /// A stream's answers were not taken.
    #[error("the stream's answers were not taken for {} s", waited.as_secs_f32())]
    SlowReader {
        /// For how long it was waited.
        waited: Duration,
    },
    /// Nothing was said on a stream.
    #[error("no frame came on the stream for {} s, and none was in hand", waited.as_secs_f32())]
    StreamIdle {
        /// For how long it was waited.
        waited: Duration,
    },
}

/// A status without details is tonic's own, about a message that it could not read. That is the caller's fault, and
/// never INTERNAL. `None` when there is nothing to reword.
pub(super) fn unread(told: &Status, limit: u64) -> Option<CallError> {
    if told.get_details_error_info().is_some() {
        return None;
    }
    match told.code() {
        Code::Internal | Code::Unknown | Code::InvalidArgument => {
            Some(CallError::MalformedMessage(told.message().to_owned()))
        }
        // Inflated beyond the limit; how far beyond is not known, since it was stopped there.
        Code::ResourceExhausted | Code::OutOfRange => Some(CallError::MessageTooLarge {
            size: limit + 1,
            limit,
        }),
        // Of a method or an encoding that is not served, tonic says all there is to say.
        _ => None,
    }
}
