//! Heads: what a network's raw outputs mean, one file per family.
//!
//! A card's `[head]` table is a [`HeadSpec`]. Once the network's outputs are known, [`HeadSpec::bind`] checks
//! them against it and gives a [`Head`], which turns one picture's row of a batch into boxes.
//!
//! Every head gives boxes in pixels of the *network's input* (the size in the card's `[input]`), neither
//! sorted, nor suppressed, nor clipped: `vision` does all that, in one way for every family. Heads do no
//! thresholding beyond "at least this score", know nothing of labels but how many there are, and never trust
//! a number: what a network emits for a strange picture (NaN, infinity, a class that does not exist) costs
//! that candidate alone and is counted.

mod boxes;
mod cells;
mod classes;
mod detr;
mod detr_raw;
mod end_to_end;
mod error;
mod finished;
mod outputs;
mod rows;
mod spec;
mod ssd;
mod ssd_decoded;
#[cfg(test)]
mod tests;
mod tf_detections;
mod yolov5;
mod yolov8;
mod yolox;

use std::fmt;

pub use boxes::BoxFormat;
pub use classes::{Activation, Background};
pub use detr::DetrSpec;
pub use detr_raw::DetrRawSpec;
pub use end_to_end::{Column, Columns, EndToEndSpec};
pub use error::HeadError;
pub use spec::HeadSpec;
pub use ssd::{
    AnchorSpec, AnchorTable, BoxCoding, MAX_ANCHORS, Positive, PriorMap, PriorMaps, SsdSpec,
};
pub use ssd_decoded::SsdDecodedSpec;
pub use tf_detections::TfDetectionsSpec;
pub use yolov5::Yolov5Spec;
pub use yolov8::{OutputLayout, Yolov8Spec};
pub use yolox::YoloxSpec;

use crate::tensor::Tensor;
use crate::vision::{BoundingBox, ScoredBox};

/// A head bound to the outputs of one network.
pub trait Head: Send + Sync + fmt::Debug {
    /// Decodes one picture of a batch.
    ///
    /// `outputs` are the whole batch's tensors in the order of the signatures that the head was bound to: `[N, ...]`, but
    /// for a family that says in the tensor whose a row is. `index` is the picture's row. Boxes scoring below
    /// `score_threshold` are left out.
    ///
    /// # Errors
    /// [`HeadError`] when the tensors are not what the head was bound to, or hold no such row. Odd *values*
    /// are no error; see [`Decoded::dropped`].
    fn decode(
        &self,
        outputs: &[Tensor],
        index: usize,
        score_threshold: f32,
    ) -> Result<Decoded, HeadError>;
}

/// What a head found in one picture.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Decoded {
    /// The boxes, in pixels of the network's input, in no particular order. All numbers are finite, every
    /// box has an area above zero, and every class is one of the model's.
    pub boxes: Vec<ScoredBox>,
    /// Candidates thrown away: of those that are not below the threshold, as no NaN is, the ones with a score that is
    /// not finite, with a box that is not finite or has no area, or of a class that is none of the model's.
    pub dropped: usize,
}

// === impl Decoded ===

impl Decoded {
    /// Keeps `found` where its numbers make a box, and counts it as dropped otherwise.
    fn push(&mut self, found: ScoredBox) {
        if found.score.is_finite() && has_area(&found.bbox) {
            self.boxes.push(found);
        } else {
            self.dropped += 1;
        }
    }
}

/// Whether a box has an area above zero that a float can hold; no box with a NaN or an infinity has.
fn has_area(bbox: &BoundingBox) -> bool {
    let (width, height) = (bbox.x_max - bbox.x_min, bbox.y_max - bbox.y_min);
    let area = width * height;
    width > 0.0 && area > 0.0 && area.is_finite()
}
