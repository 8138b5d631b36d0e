//! What the machine knows of an instance: what it can run, what it has in hand, when it hangs.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::scheduling::bucket::Buckets;
use crate::scheduling::event::{Placement, RequestId};

/// A run that takes this many times what its like take is not slow any more. Neighbours and throttled devices
/// make runs several times longer; nothing that still works makes them twenty times longer.
const HANGS: f64 = 20.0;

/// A live instance.
#[derive(Debug)]
pub(super) struct Instance {
    pub(super) buckets: Buckets,
    pub(super) max_queue_delay: Duration,
    pipelined: bool,
    watchdog: Duration,
    /// Batches in its hands, the one that runs first.
    flights: VecDeque<Flight>,
    /// When the batch that runs has taken too long, by what its like took when it began.
    hangs_at: Option<Instant>,
    /// Given up; only its report that it is gone is still to come.
    ejected: bool,
}

/// A batch that was handed out.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) bucket: usize,
    pub(super) requests: Vec<RequestId>,
    /// When it began to run, as far as is known.
    pub(super) started: Instant,
}

// === impl Instance ===

impl Instance {
    /// `None` when there is no bucket.
    pub(super) fn new(placement: Placement) -> Option<Self> {
        Some(Self {
            buckets: Buckets::new(placement.buckets)?,
            max_queue_delay: placement.max_queue_delay,
            pipelined: placement.pipelined,
            watchdog: placement.watchdog,
            flights: VecDeque::new(),
            hangs_at: None,
            ejected: false,
        })
    }

    /// Whether it has nothing to do.
    pub(super) fn is_free(&self) -> bool {
        self.flights.is_empty() && !self.ejected
    }

    /// Whether a next batch may be put together while one runs.
    pub(super) fn takes_another(&self) -> bool {
        self.pipelined && self.flights.len() == 1 && !self.ejected
    }

    pub(super) fn start(&mut self, flight: Flight) {
        self.flights.push_back(flight);
        if self.flights.len() == 1 {
            self.watch();
        }
    }

    /// The batch that ran is out of its hands; the next one, if there is one, runs from now on.
    pub(super) fn finish(&mut self, now: Instant) -> Option<Flight> {
        let finished = self.flights.pop_front();
        if let Some(next) = self.flights.front_mut() {
            next.started = now;
        }
        self.watch();
        finished
    }

    /// When it is to be given up, unless it finishes before. Asked on every event.
    pub(super) fn hangs_at(&self) -> Option<Instant> {
        self.hangs_at
    }

    /// The batch that runs, if there is one, has just begun.
    fn watch(&mut self) {
        let front = self.flights.front().filter(|_| !self.ejected);
        self.hangs_at = front.and_then(|flight| {
            let patience = HANGS * self.buckets.expected(flight.bucket);
            let patience = Duration::try_from_secs_f64(patience).unwrap_or(Duration::MAX);
            flight.started.checked_add(patience.max(self.watchdog))
        });
    }

    /// From now on it gets nothing.
    pub(super) fn eject(&mut self) {
        self.ejected = true;
        self.hangs_at = None;
    }

    pub(super) fn is_ejected(&self) -> bool {
        self.ejected
    }

    /// Seconds until it is free, as far as is known.
    pub(super) fn busy_for(&self, now: Instant) -> f64 {
        let whole = |flight: &Flight| self.buckets.expected(flight.bucket);
        let all: f64 = self.flights.iter().map(whole).sum();
        let Some(front) = self.flights.front() else {
            return 0.0;
        };
        let elapsed = now.saturating_duration_since(front.started).as_secs_f64();
        all - elapsed.min(whole(front))
    }

    /// What a run takes at most, but for one time in a hundred, of a batch of which so many wait.
    pub(super) fn at_most(&self, waiting: usize) -> f64 {
        self.buckets.at_most(self.buckets.cheapest(waiting))
    }

    /// Everything that it has in hand, when it is gone.
    pub(super) fn into_requests(self) -> impl Iterator<Item = RequestId> {
        self.flights.into_iter().flat_map(|flight| flight.requests)
    }
}
