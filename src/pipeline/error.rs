//! Why a request was not answered with boxes.

use std::time::Duration;

use crate::device::EngineError;
use crate::heads::HeadError;
use crate::vision::DecodeError;

/// Why a request was not answered with boxes. The doors turn each into a status of their protocol.
///
/// The text is for the caller, and says what to do where something can be done.
#[derive(Debug, thiserror::Error)]
pub enum DetectError {
    /// No such model, or no such version of it.
    #[error("there is no model {wanted}; there are: {known}")]
    ModelNotFound {
        /// What was asked for.
        wanted: String,
        /// What there is.
        known: String,
    },
    /// No model was named and the server has no default.
    #[error("no model was named and the server has no default; there are: {known}")]
    NoDefaultModel {
        /// What there is.
        known: String,
    },
    /// The model exists and cannot answer now.
    #[error("model {model} is not ready: {detail}")]
    ModelNotReady {
        /// Which.
        model: String,
        /// Its state.
        detail: String,
    },
    /// An option has a value that it cannot have.
    #[error("{field}: {detail}")]
    InvalidOption {
        /// The option's name in the contract.
        field: &'static str,
        /// What is wrong with it.
        detail: String,
    },
    /// The picture cannot be read.
    #[error(transparent)]
    Picture(#[from] DecodeError),
    /// There is no room for it: requests or bytes that wait are as many as may, or it would wait for too long.
    #[error("too much is waiting at the server to take this request too; try again in {} ms", retry_after.as_millis())]
    Overloaded {
        /// When it makes sense to try again.
        retry_after: Duration,
    },
    /// It could not have been answered before the caller's deadline.
    #[error("the request cannot be answered before its deadline; try again {}with a later one", retry_after.map_or(String::new(), |after| format!("in {} ms, or ", after.as_millis())))]
    DeadlineInfeasible {
        /// When such a request could be. `None` when it takes longer than it had, however little the server has to do.
        retry_after: Option<Duration>,
    },
    /// As many streams are open as may be.
    #[error("{limit} streams are open, and no more may be; use another server, or close some")]
    TooManyStreams {
        /// How many.
        limit: usize,
    },
    /// The caller's deadline passed.
    #[error("the deadline passed before the answer was ready")]
    DeadlineExceeded,
    /// The server is going away.
    #[error("the server is shutting down; use another one")]
    Draining,
    /// The network could not be run on this picture, alone.
    #[error("the network failed on this picture")]
    Inference(#[source] EngineError),
    /// Two instances in turn broke down with it.
    #[error("two instances of the model broke down with this picture")]
    InstanceLost,
    /// The network's output cannot be read.
    #[error("the network's output cannot be read")]
    Head(#[from] HeadError),
    /// Something in the server broke on this picture.
    #[error("the server failed on this picture")]
    Panicked {
        /// Where: a stage's name, for the log.
        stage: &'static str,
    },
}
