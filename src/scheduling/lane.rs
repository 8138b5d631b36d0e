//! [`Lane`]: where in a line requests wait that can be served under the same condition.

use super::event::ModelKey;

/// What there is to do for a request before it can run. What that takes is learned for each apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Job {
    /// A picture is to be made one input.
    #[default]
    Picture,
    /// A picture is to be decoded and cut into pieces, the first of which it becomes itself.
    Cut,
    /// A piece of a picture that was cut is to be made an input.
    Piece,
}

/// Those who wait for the same model and the same job. A lane that is held up holds up nobody in another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Lane {
    pub(super) model: ModelKey,
    pub(super) job: Job,
}

// === impl Lane ===

impl Lane {
    /// The lanes of a model: from the first to the last, in order.
    pub(super) fn of(model: ModelKey) -> std::ops::RangeInclusive<Lane> {
        let lane = |job| Lane { model, job };
        lane(Job::Picture)..=lane(Job::Piece)
    }
}
