//! Those who wait for a permit rather than be refused: streams, whose frames HTTP/2 holds back meanwhile.
//!
//! A source is a queue of its own, and the queues take turns, so that one with many streams waits no less for each of
//! them than another does for its only one.

use std::collections::VecDeque;

use tokio::sync::oneshot;

use super::AdmissionPermit;
use crate::pipeline::caller::{Caller, Source};

/// One that waits.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) caller: Caller,
    pub(super) bytes: u64,
    /// Closed when it does not wait any more.
    pub(super) grant: oneshot::Sender<AdmissionPermit>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// Whose turn it is next first. None is empty.
    queues: VecDeque<(Source, VecDeque<Waiter>)>,
}

// === impl Waiters ===

impl Waiters {
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    pub(super) fn push(&mut self, waiter: Waiter) {
        let source = &waiter.caller.source;
        match self.queues.iter_mut().find(|(of, _)| of == source) {
            Some((_, queue)) => queue.push_back(waiter),
            None => self
                .queues
                .push_back((source.clone(), VecDeque::from([waiter]))),
        }
    }

    /// Takes out the first, by turns, that `fits`.
    pub(super) fn next(&mut self, fits: impl Fn(&Waiter) -> bool) -> Option<Waiter> {
        for (_, queue) in &mut self.queues {
            while queue.front().is_some_and(|first| first.grant.is_closed()) {
                queue.pop_front();
            }
        }
        self.queues.retain(|(_, queue)| !queue.is_empty());
        let first = |(_, queue): &(Source, VecDeque<Waiter>)| queue.front().is_some_and(&fits);
        let at = self.queues.iter().position(first)?;
        let (source, mut queue) = self.queues.remove(at)?;
        let waiter = queue.pop_front();
        if !queue.is_empty() {
            self.queues.push_back((source, queue));
        }
        waiter
    }
}
