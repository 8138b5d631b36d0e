//! Tracking: which box of this frame shows what which box of earlier frames showed.
//!
//! ByteTrack (Zhang et al., 2022) in its own words: a filter predicts where each known object is now, the sure
//! boxes are matched with these places first, then the unsure ones with what is left, so that an object whose
//! score drops behind another keeps its identity. It looks at boxes, scores and classes, never at a picture.
//!
//! | module | what it does |
//! |---|---|
//! | `config` | thresholds, and how they follow from a stream's own |
//! | `kalman` | predicts a box and corrects the prediction by what was seen |
//! | `overlap` | which boxes could show which objects: of one class, and overlapping enough |
//! | `assignment` | the best of all ways to match them |
//! | `track` | one object: where it is, and whether it is new, in sight or lost |
//! | `tracker` | one stream's objects, from frame to frame |
//!
//! Everything here is plain computation on the caller's thread, in coordinates of the upright picture: no clock,
//! no chance, no setting but [`TrackerConfig`]. The same frames give the same numbers.

mod assignment;
mod config;
mod kalman;
mod overlap;
#[cfg(test)]
mod tests;
mod track;
mod tracker;

pub use config::TrackerConfig;
pub use track::TrackId;
pub use tracker::Tracker;
