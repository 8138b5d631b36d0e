//! [`Agenda`]: what happens when, in virtual time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Nanoseconds since the beginning.
pub(super) type Nanoseconds = u64;

/// What is to come, earliest first; what comes at the same time in the order in which it was put down.
#[derive(Debug)]
pub(super) struct Agenda<T> {
    entries: BinaryHeap<Entry<T>>,
    next: u64,
}

#[derive(Debug)]
struct Entry<T> {
    at: Nanoseconds,
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

impl<T> Agenda<T> {
    pub(super) fn new() -> Self {
        Self {
            entries: BinaryHeap::new(),
            next: 0,
        }
    }

    pub(super) fn put(&mut self, at: Nanoseconds, what: T) {
        let number = self.next;
        self.next += 1;
        self.entries.push(Entry { at, number, what });
    }

    pub(super) fn next(&mut self) -> Option<(Nanoseconds, T)> {
        self.entries.pop().map(|entry| (entry.at, entry.what))
    }
}

// === impl Entry ===

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap gives the greatest first.
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Entry<T> {}
