//! The ready shelf of one model: pictures whose tensors are prepared, waiting for a device.
//!
//! A slot is reserved *before* a request is prepared, so that no CPU time is spent on a picture for which
//! there is no room, and given back when the picture leaves for a device or leaves for good. The shelf holds
//! at most one next batch for each live instance; what is bounded here bounds the tensors in memory.

use std::collections::BTreeMap;
use std::time::Instant;

use super::deadline::Deadline;
use super::event::RequestId;

/// The order in which the line let requests go to be prepared. It is the order on the shelf too, so that what the line
/// decided holds, whichever picture took longer to decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn(pub(super) u64);

/// Ready pictures of one model, in the order of their turns.
#[derive(Debug)]
pub(super) struct Shelf<R> {
    ready: BTreeMap<Turn, Ready<R>>,
    /// Slots taken by requests that are being prepared.
    reserved: usize,
}

/// One ready picture.
#[derive(Debug)]
pub(super) struct Ready<R> {
    pub(super) id: RequestId,
    pub(super) payload: R,
    pub(super) deadline: Deadline,
    pub(super) ready_at: Instant,
}

// === impl Shelf ===

impl<R> Shelf<R> {
    pub(super) fn new() -> Self {
        Self {
            ready: BTreeMap::new(),
            reserved: 0,
        }
    }

    /// Slots taken: ready pictures and those in preparation.
    pub(super) fn taken(&self) -> usize {
        self.reserved + self.ready.len()
    }

    pub(super) fn reserve(&mut self) {
        self.reserved += 1;
    }

    pub(super) fn release(&mut self) {
        debug_assert!(
            self.reserved > 0,
            "a slot is released once, by the request that reserved it"
        );
        self.reserved = self.reserved.saturating_sub(1);
    }

    /// Puts a prepared picture into the slot that [`Shelf::release`] has just given back, or one whose instance was
    /// lost back to where it was.
    pub(super) fn put(&mut self, turn: Turn, ready: Ready<R>) {
        self.ready.insert(turn, ready);
    }

    /// Pictures ready to run.
    pub(super) fn len(&self) -> usize {
        self.ready.len()
    }

    /// When the picture that is ready longest became so.
    pub(super) fn oldest_ready_at(&self) -> Option<Instant> {
        self.ready.values().map(|ready| ready.ready_at).min()
    }

    /// The deadlines of the first `count`, in their order.
    pub(super) fn deadlines(&self, count: usize) -> impl Iterator<Item = Deadline> + '_ {
        self.ready.values().take(count).map(|ready| ready.deadline)
    }

    pub(super) fn remove(&mut self, turn: Turn) -> Option<Ready<R>> {
        self.ready.remove(&turn)
    }

    /// Takes the picture whose turn it is.
    pub(super) fn pop(&mut self) -> Option<Ready<R>> {
        self.ready.pop_first().map(|(_, ready)| ready)
    }
}
