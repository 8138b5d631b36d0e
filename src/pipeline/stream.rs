//! A stream of frames: which are in hand, and their answers in the order in which they came.
//!
//! Each frame is a request like any other, in the share of its stream. What this adds is the window, the order, and what is
//! replaced by something newer. Whoever feeds a stream asks [`FrameStream::has_room`] before it takes in another frame,
//! and so bounds what is held.
//!
//! | policy | in hand | when that is full |
//! |---|---|---|
//! | [`FramePolicy::All`] | at most the window | nothing more is taken in; nothing is dropped but for its age |
//! | [`FramePolicy::Latest`] | at most the window, and one that waits | a newer frame replaces the one that waits |
//!
//! A frame waits until a CPU worker takes its [`Claim`]; from then on it is finished, whatever comes. So a frame that is
//! dropped has cost no decode and no run.

mod identities;
mod window;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::admission::AdmissionPermit;
use super::detector::Detector;
use super::error::DetectError;
use super::metrics::{FrameLabel, Metrics};
use super::request::{DetectOptions, Detections, EffectiveOptions, Image, ModelRef};
use crate::model::ModelVersion;
use crate::scheduling::StreamKey;
use identities::Identities;
pub use window::FrameStream;

/// What streams may hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Streams that are open at a time.
    pub max_open: usize,
    /// Frames of a stream in hand at a time, where its caller does not say.
    pub default_in_flight: NonZeroUsize,
    /// The most that a caller may say.
    pub max_in_flight: NonZeroUsize,
}

impl Default for Config {
    fn default() -> Self {
        let frames = |count| NonZeroUsize::new(count).unwrap_or(NonZeroUsize::MIN);
        Self {
            // A quiet one costs some 20 KB.
            max_open: 4_096,
            // One is decoded, one is ready, one runs, and as many are on their ways here and back.
            default_in_flight: frames(8),
            // A whole batch of one stream's frames runs while the next is made ready.
            max_in_flight: frames(64),
        }
    }
}

/// What is done with a frame when earlier ones still wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FramePolicy {
    /// Every one is looked at.
    #[default]
    All,
    /// The newest is looked at next; one that still waits is replaced.
    Latest,
}

/// What a stream is asked for.
#[derive(Debug, Clone, Default)]
pub struct StreamRequest {
    /// See [`DetectRequest::model`](super::request::DetectRequest::model).
    pub model: Option<String>,
    /// `None` is the newest ready version, frame by frame.
    pub version: Option<ModelVersion>,
    /// For frames that say nothing else.
    pub options: DetectOptions,
    /// What is done with frames that wait.
    pub policy: FramePolicy,
    /// `None` is the server's default.
    pub max_in_flight: Option<NonZeroUsize>,
    /// A frame that has waited for so long since its receipt is dropped.
    pub max_frame_age: Option<Duration>,
    /// Whether objects are followed from frame to frame.
    pub track: bool,
}

/// What is in force for a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamTerms {
    /// The model of a frame that came now.
    pub model: ModelRef,
    /// For frames that say nothing else.
    pub options: EffectiveOptions,
    /// What is done with frames that wait.
    pub policy: FramePolicy,
    /// Frames in hand at a time.
    pub max_in_flight: NonZeroUsize,
}

/// A frame's picture, and what is wanted of it otherwise than of the stream's.
#[derive(Debug)]
pub struct FrameRequest {
    /// The picture as it was sent.
    pub image: Image,
    /// What is unset is the stream's.
    pub options: DetectOptions,
    /// Its place in admission.
    pub permit: AdmissionPermit,
}

/// Why a frame was not looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReason {
    /// A newer one took its place.
    Superseded,
    /// It waited for longer than it was to.
    TooOld,
    /// It could not have been answered before it was too old, or there was no room for it.
    Overloaded,
}

/// What became of a frame.
#[derive(Debug)]
pub enum FrameOutcome {
    /// It was looked at.
    Detections(Box<Detections>),
    /// It was not, and cost nothing.
    Dropped(DropReason),
    /// It cannot be. The stream goes on.
    Failed(DetectError),
}

/// The answer to one frame.
#[derive(Debug)]
pub struct FrameAnswer<T> {
    /// What the frame was given with.
    pub tag: T,
    /// What became of it.
    pub outcome: FrameOutcome,
}

/// The streams that are open. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Streams {
    config: Config,
    open: Arc<AtomicUsize>,
    next_key: Arc<AtomicU64>,
}

/// One of them, until it is dropped.
#[derive(Debug)]
struct OpenStream {
    key: StreamKey,
    open: Arc<AtomicUsize>,
    metrics: Metrics,
}

// === impl Streams ===

impl Streams {
    pub(super) fn new(config: Config) -> Self {
        Self {
            config,
            open: Arc::default(),
            // Zero is the calls'.
            next_key: Arc::new(AtomicU64::new(StreamKey::CALLS.0 + 1)),
        }
    }

    fn open(&self, metrics: &Metrics) -> Result<OpenStream, DetectError> {
        let limit = self.config.max_open;
        // Counted first and given back by the drop, so that two at once cannot both be the last.
        let before = self.open.fetch_add(1, Ordering::Relaxed);
        metrics.streams.inc();
        let stream = OpenStream {
            key: StreamKey(self.next_key.fetch_add(1, Ordering::Relaxed)),
            open: self.open.clone(),
            metrics: metrics.clone(),
        };
        if before >= limit {
            return Err(DetectError::TooManyStreams { limit });
        }
        Ok(stream)
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.metrics.streams.dec();
    }
}

// === impl FrameOutcome ===

impl FrameOutcome {
    fn label(&self) -> FrameLabel {
        match self {
            Self::Detections(_) => FrameLabel::Answered,
            Self::Failed(_) => FrameLabel::Failed,
            Self::Dropped(DropReason::Superseded) => FrameLabel::Superseded,
            Self::Dropped(DropReason::TooOld) => FrameLabel::TooOld,
            Self::Dropped(DropReason::Overloaded) => FrameLabel::Overloaded,
        }
    }
}

impl From<Result<Detections, DetectError>> for FrameOutcome {
    fn from(answer: Result<Detections, DetectError>) -> Self {
        match answer {
            Ok(found) => Self::Detections(Box::new(found)),
            Err(DetectError::DeadlineExceeded) => Self::Dropped(DropReason::TooOld),
            Err(DetectError::DeadlineInfeasible { .. } | DetectError::Overloaded { .. }) => {
                Self::Dropped(DropReason::Overloaded)
            }
            Err(error) => Self::Failed(error),
        }
    }
}

// === impl Detector ===

impl Detector {
    /// Opens a stream of frames, for which the model is looked up and the options are checked now.
    ///
    /// Dropping the stream takes its frames out of the line, or off the shelf, at once.
    ///
    /// # Errors
    /// [`DetectError::Draining`], [`DetectError::TooManyStreams`], and what is wrong with the model or the options.
    pub fn open_stream<T>(
        &self,
        request: StreamRequest,
    ) -> Result<(FrameStream<T>, StreamTerms), DetectError> {
        if self.stop.is_cancelled() {
            return Err(DetectError::Draining);
        }
        let stream = self.streams.open(&self.metrics)?;
        let model = self
            .registry
            .find(request.model.as_deref(), request.version)?;
        let Config {
            default_in_flight,
            max_in_flight,
            ..
        } = self.streams.config;
        let asked = request.max_in_flight.unwrap_or(default_in_flight);
        let terms = StreamTerms {
            model: model.reference.clone(),
            options: model.effective(&request.options)?,
            policy: request.policy,
            max_in_flight: asked.min(max_in_flight),
        };
        let window = terms.max_in_flight.get();
        let identities = request
            .track
            .then(|| Identities::new(terms.options.score_threshold));
        let frames = FrameStream::new(self.clone(), request, stream, window, identities);
        Ok((frames, terms))
    }
}
