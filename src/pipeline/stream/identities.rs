//! [`Identities`]: which object of a frame is which of the frames before.
//!
//! Objects are followed through boxes that are less sure than what a reply shows, so a stream that is tracked is detected at a
//! lower threshold, and what is shown is chosen here, afterwards.

use std::num::NonZeroU32;

use crate::model::Threshold;
use crate::pipeline::request::{Detection, Detections, EffectiveOptions};
use crate::tracking::{Tracker, TrackerConfig};
use crate::vision::{ImageSize, ScoredBox};

/// The objects of one stream.
#[derive(Debug)]
pub(super) struct Identities {
    tracker: Tracker,
    /// Of the frame before. Boxes are in its pixels.
    size: Option<ImageSize>,
    /// The number of the frame before.
    frame: Option<u64>,
}

// === impl Identities ===

impl Identities {
    /// For a stream whose replies show what scores at least `shown`.
    pub(super) fn new(shown: Threshold) -> Self {
        Self {
            tracker: Tracker::new(TrackerConfig::for_score_threshold(shown.get())),
            size: None,
            frame: None,
        }
    }

    /// What its frames have to be detected down to.
    pub(super) fn threshold(&self) -> Option<Threshold> {
        Threshold::new(self.tracker.config().low_threshold).ok()
    }

    /// Names the objects of the stream's frame of that number, and leaves those that `asked` shows. Frames come in their
    /// order; those that were dropped are missing.
    pub(super) fn name(&mut self, frame: u64, found: &mut Detections, asked: EffectiveOptions) {
        if self.size.replace(found.image_size) != Some(found.image_size) {
            self.tracker.reset();
        }
        let passed = self.frame.replace(frame).map_or(1, |before| frame - before);
        let passed = u32::try_from(passed).unwrap_or(u32::MAX);
        let passed = NonZeroU32::new(passed).unwrap_or(NonZeroU32::MIN);
        let boxes: Vec<ScoredBox> = found.detections.iter().map(scored_box).collect();
        let names = self.tracker.update(passed, &boxes);
        for (detection, name) in found.detections.iter_mut().zip(names) {
            detection.track = name;
        }
        let shown = asked.score_threshold.get();
        found.detections.retain(|found| found.score >= shown);
        found.total = found.detections.len();
        let most = usize::try_from(asked.max_detections.get()).unwrap_or(usize::MAX);
        found.detections.truncate(most);
        let region = found.options.region;
        found.options = EffectiveOptions { region, ..asked };
    }
}

fn scored_box(detection: &Detection) -> ScoredBox {
    ScoredBox {
        bbox: detection.bbox,
        score: detection.score,
        class: detection.class,
    }
}
