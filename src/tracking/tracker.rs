//! [`Tracker`]: the objects of one stream, and what a frame says of them.

use std::cmp::Reverse;
use std::num::NonZeroU32;

use super::config::TrackerConfig;
use super::overlap::{Associator, Place};
use super::track::{Presence, Track, TrackId};
use crate::vision::{BoundingBox, ScoredBox};

/// The number of no frame: the first is 1.
const NEVER: u64 = 0;

/// Gives the boxes of one stream's frames identities. One a stream, fed with its answered frames in their order.
#[derive(Debug)]
pub struct Tracker {
    config: TrackerConfig,
    tracks: Vec<Track>,
    associator: Associator,
    /// Frames passed so far, those without an answer too.
    frame: u64,
    /// Nothing was seen yet, or all was forgotten.
    fresh: bool,
    next_id: TrackId,
}

// === impl Tracker ===

impl Tracker {
    /// How many boxes of a frame are looked at, the surest; the others get no identity. As each object in sight
    /// has a box, it bounds those too.
    pub const MAX_BOXES: usize = 1000;
    /// How many lost objects are kept, those seen last.
    pub const MAX_LOST: usize = 1000;

    /// Makes a tracker that knows nothing yet.
    pub fn new(config: TrackerConfig) -> Self {
        Self {
            config,
            tracks: Vec::new(),
            associator: Associator::default(),
            frame: 0,
            fresh: true,
            next_id: TrackId::FIRST,
        }
    }

    /// The settings it was made with. Detection has to run at their `low_threshold`.
    pub fn config(&self) -> &TrackerConfig {
        &self.config
    }

    /// How many objects it knows: in sight, lost, and seen once. Never more than [`Self::MAX_BOXES`] and
    /// [`Self::MAX_LOST`] together.
    pub fn known(&self) -> usize {
        self.tracks.len()
    }

    /// Forgets all objects; the next frame is like a first one. Identities go on and are not given again.
    ///
    /// For a frame whose boxes have nothing to do with those before, such as one of another size.
    pub fn reset(&mut self) {
        self.tracks.clear();
        self.fresh = true;
    }

    /// Takes in the boxes of a frame and returns, in their order, which object each shows.
    ///
    /// `frames` is how many frames further the stream is than at the last call: 1, or more where frames in between had
    /// no answer. For the first it does not matter. `boxes` are those left after suppression, at the
    /// `low_threshold`, in pixels of the upright picture, all frames' alike. A box gets `None` when it shows nothing
    /// known and is not sure enough to be new, when it shows something for the first time (its second box confirms
    /// it; in the first frame of all there is nothing to wait for), or when it cannot be tracked: no area, numbers that
    /// are not finite, more boxes than [`Self::MAX_BOXES`].
    pub fn update(&mut self, frames: NonZeroU32, boxes: &[ScoredBox]) -> Vec<Option<TrackId>> {
        self.frame = self.frame.saturating_add(u64::from(frames.get()));
        for track in &mut self.tracks {
            track.predict(frames.get());
        }
        let mut shown = vec![None; boxes.len()];
        let (mut sure, mut unsure) = self.split(boxes);

        let mut expected = self.places(|presence| presence != Presence::New);
        let sure_overlap = self.config.sure_overlap;
        self.associate(boxes, &mut sure, &mut expected, sure_overlap, &mut shown);

        expected.retain(|place| self.tracks[place.index].presence == Presence::InSight);
        let unsure_overlap = self.config.unsure_overlap;
        self.associate(
            boxes,
            &mut unsure,
            &mut expected,
            unsure_overlap,
            &mut shown,
        );

        let mut seen_once = self.places(|presence| presence == Presence::New);
        let new_overlap = self.config.new_overlap;
        self.associate(boxes, &mut sure, &mut seen_once, new_overlap, &mut shown);

        self.begin(boxes, &sure, &mut shown);
        let identities = shown
            .into_iter()
            .map(|track| self.tracks[track?].id)
            .collect();
        self.forget();
        self.fresh = false;
        identities
    }

    /// The boxes to match first and those to match with what is left, each in their order.
    fn split(&self, boxes: &[ScoredBox]) -> (Vec<Place>, Vec<Place>) {
        let mut usable: Vec<usize> = (0..boxes.len())
            .filter(|&index| {
                boxes[index].score >= self.config.low_threshold && has_area(&boxes[index].bbox)
            })
            .collect();
        if usable.len() > Self::MAX_BOXES {
            usable.select_nth_unstable_by(Self::MAX_BOXES, |&a, &b| {
                boxes[b].score.total_cmp(&boxes[a].score).then(a.cmp(&b))
            });
            usable.truncate(Self::MAX_BOXES);
            usable.sort_unstable();
        }
        let place = |index| {
            let found: &ScoredBox = &boxes[index];
            Place {
                index,
                class: found.class,
                bbox: found.bbox,
                worth: 1.0,
            }
        };
        usable
            .into_iter()
            .map(place)
            .partition(|place| boxes[place.index].score >= self.config.high_threshold)
    }

    fn places(&self, which: impl Fn(Presence) -> bool) -> Vec<Place> {
        let tracks = self.tracks.iter().enumerate();
        tracks
            .filter(|(_, track)| which(track.presence))
            .map(|(index, track)| track.place(index))
            .collect()
    }

    /// Matches and takes in what was matched: `shown` of a box is its track.
    fn associate(
        &mut self,
        boxes: &[ScoredBox],
        candidates: &mut Vec<Place>,
        expected: &mut Vec<Place>,
        least: f32,
        shown: &mut [Option<usize>],
    ) {
        let (tracks, frame, next_id) = (&mut self.tracks, self.frame, &mut self.next_id);
        let matched = |seen: &Place, object: &Place| {
            let track = &mut tracks[object.index];
            track.see(&boxes[seen.index].bbox, frame);
            track.id.get_or_insert_with(|| take(next_id));
            shown[seen.index] = Some(object.index);
        };
        self.associator
            .associate(candidates, expected, least, matched);
    }

    /// Begins a track for each sure box that shows nothing known.
    fn begin(&mut self, boxes: &[ScoredBox], left: &[Place], shown: &mut [Option<usize>]) {
        for place in left {
            let found = &boxes[place.index];
            if found.score < self.config.new_threshold {
                continue;
            }
            let mut track = Track::new(found, self.frame);
            if self.fresh {
                track.presence = Presence::InSight;
                track.id = Some(take(&mut self.next_id));
            }
            shown[place.index] = Some(self.tracks.len());
            self.tracks.push(track);
        }
    }

    /// Lets go of what was not seen: new objects at once, others when they have been lost for long.
    fn forget(&mut self) {
        let (frame, lost_frames) = (self.frame, u64::from(self.config.lost_frames));
        self.tracks.retain_mut(|track| {
            if track.seen == frame {
                return true;
            }
            let was_new = track.presence == Presence::New;
            track.presence = Presence::Lost;
            !was_new && frame - track.seen <= lost_frames
        });
        self.forget_surplus();
    }

    fn forget_surplus(&mut self) {
        let tracks = self.tracks.iter().enumerate();
        let mut lost: Vec<(u64, usize)> = tracks
            .filter(|(_, track)| track.presence == Presence::Lost)
            .map(|(index, track)| (track.seen, index))
            .collect();
        if lost.len() <= Self::MAX_LOST {
            return;
        }
        lost.sort_unstable_by_key(|&(seen, index)| (Reverse(seen), index));
        for &(_, index) in &lost[Self::MAX_LOST..] {
            self.tracks[index].seen = NEVER;
        }
        self.tracks.retain(|track| track.seen != NEVER);
    }
}

fn take(next_id: &mut TrackId) -> TrackId {
    let id = *next_id;
    *next_id = id.next();
    id
}

/// Whether a box has an area above zero that a float can hold; no box with a NaN or an infinity has.
fn has_area(bbox: &BoundingBox) -> bool {
    let area = bbox.area();
    area > 0.0 && area.is_finite()
}
