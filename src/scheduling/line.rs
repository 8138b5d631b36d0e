//! The waiting line of one model: requests that are still encoded, first come first served.
//!
//! The line is bounded by who lets requests in (admission, before the machine), not here.

use std::collections::BTreeMap;
use std::time::Instant;

use super::deadline::Deadline;
use super::machine::RequestId;

/// Requests waiting for a CPU worker. Ids rise with arrival, so their order is the order of arrival.
#[derive(Debug)]
pub(super) struct Line<W> {
    waiting: BTreeMap<RequestId, Waiting<W>>,
}

/// One request in the line.
#[derive(Debug)]
pub(super) struct Waiting<W> {
    pub(super) payload: W,
    pub(super) deadline: Deadline,
    pub(super) arrived: Instant,
}

// === impl Line ===

impl<W> Line<W> {
    pub(super) fn new() -> Self {
        Self {
            waiting: BTreeMap::new(),
        }
    }

    pub(super) fn push(&mut self, id: RequestId, waiting: Waiting<W>) {
        self.waiting.insert(id, waiting);
    }

    /// The request whose turn it is.
    pub(super) fn first(&self) -> Option<RequestId> {
        self.waiting.first_key_value().map(|(id, _)| *id)
    }

    /// Takes out a request from wherever it stands.
    pub(super) fn remove(&mut self, id: RequestId) -> Option<Waiting<W>> {
        self.waiting.remove(&id)
    }

    /// Empties the line, in order.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (RequestId, Waiting<W>)> + use<W> {
        std::mem::take(&mut self.waiting).into_iter()
    }
}
