//! Those who wait for a permit rather than be refused: streams, whose frames HTTP/2 holds back meanwhile.
//!
//! A source is a queue of its own, and the queues take turns, so that one with many streams waits no less for each of
//! them than another does for its only one. A frame for whose bytes there is no room yet is passed by smaller ones, but not
//! for ever.

use std::collections::VecDeque;

use tokio::sync::oneshot;

use super::AdmissionPermit;
use crate::pipeline::caller::{Caller, Source};

/// So many may pass one that is too large for the room there is. Then nobody does, and room becomes free until it fits: a
/// frame is held up for no longer than it takes to serve so many and what is in the line.
const MAX_PASSES: u32 = 64;

/// One that waits.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) name: Name,
    pub(super) caller: Caller,
    pub(super) bytes: u64,
    pub(super) grant: oneshot::Sender<AdmissionPermit>,
    /// How many went before it because it was too large.
    pub(super) passes: u32,
}

/// Names one that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Name(u64);

/// Whether one that waits can be let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    Now,
    /// Its source has as much as it may.
    ShareFull,
    /// It needs more room than there is.
    TooLarge,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// Whose turn it is next first. None is empty.
    queues: VecDeque<(Source, VecDeque<Waiter>)>,
    next_name: u64,
}

// === impl Waiters ===

impl Waiters {
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    pub(super) fn push(
        &mut self,
        caller: &Caller,
        bytes: u64,
        grant: oneshot::Sender<AdmissionPermit>,
    ) -> Name {
        let name = Name(self.next_name);
        self.next_name += 1;
        let waiter = Waiter {
            name,
            caller: caller.clone(),
            bytes,
            grant,
            passes: 0,
        };
        match self.queues.iter_mut().find(|(of, _)| *of == caller.source) {
            Some((_, queue)) => queue.push_back(waiter),
            None => self
                .queues
                .push_back((caller.source.clone(), VecDeque::from([waiter]))),
        }
        name
    }

    /// One of `source` does not wait any more, if it still did.
    pub(super) fn remove(&mut self, source: &Source, name: Name) {
        let Some(at) = self.queues.iter().position(|(of, _)| of == source) else {
            return;
        };
        let (_, queue) = &mut self.queues[at];
        queue.retain(|waiter| waiter.name != name);
        if queue.is_empty() {
            self.queues.remove(at);
        }
    }

    /// Takes out the first, by turns, that fits.
    pub(super) fn next(&mut self, fit: impl Fn(&Waiter) -> Fit) -> Option<Waiter> {
        let mut passed = Vec::new();
        let (q, w) = self.find(&fit, &mut passed)?;
        for (q, w) in passed {
            self.queues[q].1[w].passes += 1;
        }
        let (source, mut queue) = self.queues.remove(q)?;
        let waiter = queue.remove(w);
        if !queue.is_empty() {
            self.queues.push_back((source, queue));
        }
        waiter
    }

    /// Queue and place of the first that fits, and of those before it that are too large.
    fn find(
        &self,
        fit: impl Fn(&Waiter) -> Fit,
        passed: &mut Vec<(usize, usize)>,
    ) -> Option<(usize, usize)> {
        for (q, (_, queue)) in self.queues.iter().enumerate() {
            for (w, waiter) in queue.iter().enumerate() {
                match fit(waiter) {
                    Fit::Now => return Some((q, w)),
                    Fit::ShareFull => break,
                    Fit::TooLarge if waiter.passes >= MAX_PASSES => return None,
                    Fit::TooLarge => passed.push((q, w)),
                }
            }
        }
        None
    }
}
