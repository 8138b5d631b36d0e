//! Pictures that are cut: how many are open at a time, and what becomes of their pieces.
//!
//! A worker decodes such a picture, becomes done with its first piece, and hands the others back. They stand in the
//! line as requests of their own, in their picture's place: of the same share, priority and deadline, and each is
//! charged for itself. Until the last of them is prepared the decoded picture is kept for them; it is *open*. How many
//! may be is bounded, and decided before a picture is decoded. An open picture never waits for another to close, so its
//! pieces get on whenever there is room on the shelf, be they many more than the shelf has slots.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Instant;

use super::{Machine, Stage, Tracked};
use crate::scheduling::deadline::Deadline;
use crate::scheduling::event::{Kind, Priority, RequestId};
use crate::scheduling::lane::Job;
use crate::scheduling::line::{Cost, Place, Waiting};

/// Pictures that were cut, as long as something is left of them.
#[derive(Debug)]
pub(super) struct CutPictures {
    /// By their first piece.
    pictures: HashMap<RequestId, CutPicture>,
    /// Those that workers are decoding.
    coming: BTreeMap<RequestId, Coming>,
    /// Those that are being decoded, or kept for pieces that are still to be prepared.
    open: usize,
    /// Those of them that are batch work.
    open_to_batch: usize,
    most: usize,
}

/// A picture that is being decoded: where it stood, and how many pieces are expected of it besides the first.
#[derive(Debug, Clone, Copy)]
pub(super) struct Coming {
    pub(super) place: Place,
    pub(super) pieces: usize,
}

#[derive(Debug)]
struct CutPicture {
    priority: Priority,
    /// Pieces that wait, are prepared, are ready or run; with the first one.
    pieces: BTreeSet<RequestId>,
    /// Pieces that wait or are prepared.
    unprepared: usize,
    /// One of its pieces was late: the picture is, once.
    late: bool,
}

// === impl CutPictures ===

impl CutPictures {
    /// At most so many are open.
    pub(super) fn new(most: usize) -> Self {
        Self {
            pictures: HashMap::new(),
            coming: BTreeMap::new(),
            open: 0,
            open_to_batch: 0,
            most,
        }
    }

    /// Whether another may be opened. Batch work, which is served last, never keeps all places from the rest.
    pub(super) fn may_open(&self, priority: Priority) -> bool {
        let most_of_batch = self.most / 2;
        self.open < self.most
            && (priority == Priority::Interactive || self.open_to_batch < most_of_batch)
    }

    /// A worker begins to decode one.
    pub(super) fn open(&mut self, id: RequestId, place: Place, pieces: usize) {
        self.coming.insert(id, Coming { place, pieces });
        self.open += 1;
        self.open_to_batch += usize::from(place.priority == Priority::Batch);
    }

    /// It is back from its worker, if it was one.
    pub(super) fn came_back(&mut self, id: RequestId) {
        self.coming.remove(&id);
    }

    /// Those that are being decoded, in the order of their arrival.
    pub(super) fn coming(&self) -> impl Iterator<Item = Coming> + '_ {
        self.coming.values().copied()
    }

    fn close(&mut self, priority: Priority) {
        debug_assert!(self.open > 0, "a picture is closed once");
        self.open = self.open.saturating_sub(1);
        let of_batch = usize::from(priority == Priority::Batch);
        self.open_to_batch = self.open_to_batch.saturating_sub(of_batch);
    }

    /// What has left the line or its worker needs its picture no longer.
    pub(super) fn piece_prepared(&mut self, tracked: &Tracked) {
        let picture = tracked.picture.and_then(|id| self.pictures.get_mut(&id));
        let Some(picture) = picture.filter(|_| tracked.place.job == Job::Piece) else {
            return;
        };
        picture.unprepared -= 1;
        if picture.unprepared == 0 {
            let priority = picture.priority;
            self.close(priority);
        }
    }

    /// What is left of the picture that begins with `id`.
    pub(super) fn pieces(&self, id: RequestId) -> Option<&BTreeSet<RequestId>> {
        self.pictures.get(&id).map(|picture| &picture.pieces)
    }

    /// A request is gone for good.
    pub(super) fn forget(&mut self, id: RequestId, tracked: &Tracked) {
        let Some(first) = tracked.picture else {
            return;
        };
        if let Some(picture) = self.pictures.get_mut(&first) {
            picture.pieces.remove(&id);
            if picture.pieces.is_empty() {
                self.pictures.remove(&first);
            }
        }
    }

    /// Whether a request that was in time, or late, tells something of its call: of a picture's pieces the first that
    /// is late does, or the last of all.
    pub(super) fn tells(&mut self, tracked: &Tracked, in_time: bool) -> bool {
        let picture = tracked.picture.and_then(|id| self.pictures.get_mut(&id));
        let Some(picture) = picture else {
            return true;
        };
        if in_time {
            return !picture.late && picture.pieces.len() == 1;
        }
        !std::mem::replace(&mut picture.late, true)
    }

    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, usize) {
        assert!(self.coming.len() <= self.open);
        (self.open, self.pictures.len())
    }
}

// === impl Machine ===

impl<W, R> Machine<W, R> {
    /// Puts the pieces of a picture into the line, in its place. Without any, it is not kept.
    pub(super) fn line_up(
        &mut self,
        id: RequestId,
        tracked: &mut Tracked,
        pieces: Vec<(RequestId, W)>,
        now: Instant,
    ) {
        let priority = tracked.place.priority;
        if pieces.is_empty() {
            if tracked.place.job == Job::Cut {
                self.cut.close(priority);
            }
            return;
        }
        debug_assert!(
            tracked.place.job == Job::Cut,
            "what is to be cut was said to be"
        );
        tracked.picture = Some(id);
        let place = Place {
            job: Job::Piece,
            ..tracked.place
        };
        let cost = self.expected_cost(place);
        // What of a frame was begun is finished.
        let deadline = match tracked.kind {
            Kind::Call => tracked.deadline,
            Kind::Frame => Deadline::NEVER,
        };
        let mut picture = CutPicture {
            priority,
            pieces: BTreeSet::from([id]),
            unprepared: pieces.len(),
            late: false,
        };
        for (piece, payload) in pieces {
            picture.pieces.insert(piece);
            let waiting = Waiting {
                payload,
                place,
                arrived: now,
                cost,
                to_come: Cost::default(),
            };
            self.line.push(piece, waiting);
            let waits = Tracked {
                place,
                deadline,
                stage: Stage::Waiting,
                cost: Cost::default(),
                requeued: false,
                pieces: 0,
                ..*tracked
            };
            self.track(piece, waits);
        }
        self.cut.pictures.insert(id, picture);
    }

    /// A picture that was to be cut is let go of before it was.
    pub(super) fn close_uncut(&mut self, tracked: &Tracked) {
        if tracked.place.job == Job::Cut {
            self.cut.close(tracked.place.priority);
        }
    }
}
