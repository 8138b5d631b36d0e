//! What goes into the use case and what comes out, in the project's own types.

use std::num::NonZeroU32;

use bytes::Bytes;

use super::timings::Timings;
use crate::model::{MAX_DETECTIONS, ModelVersion, Threshold};
use crate::scheduling::Deadline;
use crate::tracking::TrackId;
use crate::vision::{
    BoundingBox, ClassId, DecodeError, DecodeLimits, ImageSize, Picture, RawFrame, RawLayout,
    Tiling,
    decode::{self, decode},
};

/// One picture in which to find things.
#[derive(Debug, Clone)]
pub struct DetectRequest {
    /// The model's name; `None` is the server's default.
    pub model: Option<String>,
    /// `None` is the newest ready version.
    pub version: Option<ModelVersion>,
    /// The picture as it was sent.
    pub image: Image,
    /// What the caller wants otherwise than the card says.
    pub options: DetectOptions,
    /// When the caller stops waiting.
    pub deadline: Deadline,
}

/// A picture as it was sent.
#[derive(Debug, Clone)]
pub enum Image {
    /// In a format whose magic bytes say what it is.
    Encoded(Bytes),
    /// Pixels without an encoding.
    Raw(RawImage),
}

/// Pixels, and how they lie. Nothing of it is checked yet.
#[derive(Debug, Clone)]
pub struct RawImage {
    /// How they lie.
    pub layout: RawLayout,
    /// The bytes.
    pub data: Bytes,
}

/// A caller's wishes. What is unset is as the model's card says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DetectOptions {
    /// Boxes scoring below this are left out.
    pub score_threshold: Option<Threshold>,
    /// Of two boxes that overlap more than this the weaker is left out. For a model without suppression of
    /// its own, setting it turns suppression on.
    pub iou_threshold: Option<Threshold>,
    /// The most boxes in a reply, at least 1; more than [`MAX_DETECTIONS`](crate::model::MAX_DETECTIONS) counts as that.
    pub max_detections: Option<std::num::NonZeroU32>,
    /// Suppression across classes rather than inside each; an error where nothing is suppressed.
    pub class_agnostic_nms: Option<bool>,
    /// Only boxes with these labels; empty is all.
    pub labels: Vec<String>,
    /// Only inside this part of the upright picture, in its pixels; `None` is all of it.
    pub region: Option<BoundingBox>,
    /// In overlapping tiles; `None` is all at once.
    pub tiling: Option<TilingOptions>,
}

/// How a caller wants a picture cut into tiles.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TilingOptions {
    /// A tile's side in pixels of the picture; `None` is as large as the network's input.
    pub tile_size: Option<std::num::NonZeroU32>,
    /// What neighbours share, as a share of a tile's side, in `[0, 0.9]`; `None` is
    /// [`DEFAULT_OVERLAP`](crate::vision::tiling::DEFAULT_OVERLAP).
    pub overlap: Option<f32>,
}

/// The options really in force for a request.
#[derive(Debug, Clone, PartialEq)]
pub struct EffectiveOptions {
    /// See [`DetectOptions::score_threshold`].
    pub score_threshold: Threshold,
    /// `None` is no suppression.
    pub iou_threshold: Option<Threshold>,
    /// See [`DetectOptions::max_detections`].
    pub max_detections: std::num::NonZeroU32,
    /// See [`DetectOptions::class_agnostic_nms`].
    pub class_agnostic_nms: bool,
    /// See [`DetectOptions::labels`].
    pub labels: Vec<String>,
    /// See [`DetectOptions::region`]. In a reply, clipped to the picture.
    pub region: Option<BoundingBox>,
    /// See [`DetectOptions::tiling`].
    pub tiling: Option<Tiling>,
    /// Where boxes below what was asked for are found too, for a tracker: what was asked for. `None` otherwise, in every
    /// reply.
    pub(super) shown_from: Option<Threshold>,
}

/// A found object.
#[derive(Debug, Clone, PartialEq)]
pub struct Detection {
    /// In pixels of the upright picture, inside it, never empty.
    pub bbox: BoundingBox,
    /// In [0, 1].
    pub score: f32,
    /// The class.
    pub class: ClassId,
    /// Its label.
    pub label: String,
    /// Which of a stream's objects it is, where they are followed and this is one of them.
    pub track: Option<TrackId>,
}

/// The reply to one request.
#[derive(Debug, Clone)]
pub struct Detections {
    /// By score, highest first.
    pub detections: Vec<Detection>,
    /// How many there were before `max_detections` cut the list.
    pub total: usize,
    /// The upright picture.
    pub image_size: ImageSize,
    /// Which model answered.
    pub model: ModelRef,
    /// What was in force.
    pub options: EffectiveOptions,
    /// Where the time went.
    pub timings: Timings,
}

/// A loaded model's name and version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelRef {
    /// The folder's name in the repository.
    pub name: String,
    /// The version folder's number.
    pub version: ModelVersion,
}

// === impl DetectOptions ===

impl DetectOptions {
    /// These, and where they say nothing what `others` say.
    pub(super) fn or(self, others: &DetectOptions) -> DetectOptions {
        DetectOptions {
            score_threshold: self.score_threshold.or(others.score_threshold),
            iou_threshold: self.iou_threshold.or(others.iou_threshold),
            max_detections: self.max_detections.or(others.max_detections),
            class_agnostic_nms: self.class_agnostic_nms.or(others.class_agnostic_nms),
            labels: match self.labels.is_empty() {
                true => others.labels.clone(),
                false => self.labels,
            },
            region: self.region.or(others.region),
            tiling: self.tiling.or(others.tiling),
        }
    }
}

// === impl EffectiveOptions ===

impl EffectiveOptions {
    /// The same with as many boxes as there may be, down to `threshold` if that is lower.
    pub(super) fn down_to(&self, threshold: Threshold) -> Self {
        let lower = threshold < self.score_threshold;
        Self {
            score_threshold: match lower {
                true => threshold,
                false => self.score_threshold,
            },
            max_detections: NonZeroU32::new(MAX_DETECTIONS).unwrap_or(self.max_detections),
            shown_from: lower.then_some(self.score_threshold),
            ..self.clone()
        }
    }
}

// === impl Image ===

impl Image {
    /// The bytes that were sent.
    pub fn len(&self) -> usize {
        match self {
            Self::Encoded(bytes) => bytes.len(),
            Self::Raw(raw) => raw.data.len(),
        }
    }

    /// Whether no bytes were sent.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The size that it says it is stored in, as far as that is told at once. Nothing of it is checked.
    pub(super) fn stored_size(&self) -> Option<ImageSize> {
        match self {
            Self::Encoded(bytes) => decode::stored_size(bytes),
            Self::Raw(raw) => Some(raw.layout.size),
        }
    }

    /// Makes an upright picture of it.
    ///
    /// # Errors
    /// [`DecodeError`], each variant as it says.
    pub(super) fn decode(&self, limits: &DecodeLimits) -> Result<Picture, DecodeError> {
        match self {
            Self::Encoded(bytes) => decode(bytes, limits),
            Self::Raw(RawImage { layout, data }) => RawFrame { layout, data }.to_picture(limits),
        }
    }
}

// === impl ModelRef ===

impl std::fmt::Display for ModelRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} version {}", self.name, self.version)
    }
}
