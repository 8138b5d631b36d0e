//! [`Agenda`]: what happens when, in virtual time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Nanoseconds since the beginning.
pub(super) type Nanoseconds = u64;

/// What is to come, earliest first; what comes at the same time in the order in which it was put down.
#[derive(Debug)]
pub(super) struct Agenda<T, At = Nanoseconds> {
    entries: BinaryHeap<Entry<T, At>>,
    next: u64,
}

#[derive(Debug)]
struct Entry<T, At> {
    at: At,
    number: u64,
    what: T,
}

/// `seconds` as nanoseconds, rounded up: nothing is done before its time.
pub(super) fn nanoseconds(seconds: f64) -> Nanoseconds {
    (seconds * 1e9).ceil() as Nanoseconds
}

/// `nanoseconds` as seconds.
pub(super) fn seconds(nanoseconds: Nanoseconds) -> f64 {
    nanoseconds as f64 / 1e9
}

// === impl Agenda ===

impl<T, At: Ord + Copy> Agenda<T, At> {
    pub(super) fn new() -> Self {
        Self {
            entries: BinaryHeap::new(),
            next: 0,
        }
    }

    pub(super) fn put(&mut self, at: At, what: T) {
        let number = self.next;
        self.next += 1;
        self.entries.push(Entry { at, number, what });
    }

    pub(super) fn next(&mut self) -> Option<(At, T)> {
        self.entries.pop().map(|entry| (entry.at, entry.what))
    }

    /// When the next comes.
    pub(super) fn next_at(&self) -> Option<At> {
        self.entries.peek().map(|entry| entry.at)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

// === impl Entry ===

impl<T, At: Ord> Ord for Entry<T, At> {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap gives the greatest first.
        let by_time = other.at.cmp(&self.at);
        by_time.then(other.number.cmp(&self.number))
    }
}

impl<T, At: Ord> PartialOrd for Entry<T, At> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T, At: Ord> PartialEq for Entry<T, At> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T, At: Ord> Eq for Entry<T, At> {}
