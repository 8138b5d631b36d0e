//! [`Track`]: one object, from its first box until it is forgotten.

use super::kalman::BoxFilter;
use super::overlap::Place;
use crate::vision::{BoundingBox, ClassId, ScoredBox};

/// What a lost object's overlap counts, next to that of one in sight. What is hidden behind another is expected just
/// where the other is seen, and must not take its boxes when it happens to fit a little better.
const LOST_WORTH: f32 = 0.9;

/// The identity of an object in its stream: 1, 2, 3 and so on, never given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrackId(u64);

/// One object.
#[derive(Debug, Clone)]
pub(super) struct Track {
    /// None while it was seen in one frame alone: what is never seen again was none.
    pub(super) id: Option<TrackId>,
    pub(super) presence: Presence,
    class: ClassId,
    filter: BoxFilter,
    /// Where it is now, as far as is known.
    bbox: BoundingBox,
    /// The frame of its last one.
    pub(super) seen: u64,
}

/// How an object stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    /// Seen once, without a name yet.
    New,
    /// Seen in the last frame, or matched in this one.
    InSight,
    /// Not seen lately; it may come back.
    Lost,
}

// === impl TrackId ===

impl TrackId {
    pub(super) const FIRST: Self = Self(1);

    /// The number, from 1.
    pub const fn get(self) -> u64 {
        self.0
    }

    pub(super) const fn next(self) -> Self {
        // At a billion a second they last for centuries.
        Self(self.0.saturating_add(1))
    }
}

// === impl Track ===

impl Track {
    pub(super) fn new(found: &ScoredBox, frame: u64) -> Self {
        Self {
            id: None,
            presence: Presence::New,
            class: found.class,
            filter: BoxFilter::new(&found.bbox),
            bbox: found.bbox,
            seen: frame,
        }
    }

    /// Moves on by `frames`.
    pub(super) fn predict(&mut self, frames: u32) {
        if self.presence == Presence::Lost {
            self.filter.hold_size();
        }
        self.filter.predict(frames);
        self.bbox = self.filter.bbox();
    }

    /// Takes in that the object was seen here, in this frame.
    pub(super) fn see(&mut self, bbox: &BoundingBox, frame: u64) {
        self.filter.correct(bbox);
        self.bbox = self.filter.bbox();
        self.seen = frame;
        self.presence = Presence::InSight;
    }

    /// Where it is expected, as the object number `index`.
    pub(super) fn place(&self, index: usize) -> Place {
        Place {
            index,
            class: self.class,
            bbox: self.bbox,
            worth: match self.presence {
                Presence::Lost => LOST_WORTH,
                Presence::New | Presence::InSight => 1.0,
            },
        }
    }
}
