//! [`Counts`]: how requests ended, and how long they took.

use std::ops::AddAssign;

use hdrhistogram::Histogram;

use super::report::{Refused, Tally};

/// How a request ended for its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Refused(Refusal),
    Expired,
    Lost,
    Answered { in_time: bool },
}

/// Why a request was not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    Overloaded,
    Infeasible,
    NoInstance,
}

/// Requests of one kind of sources, or of all.
#[derive(Debug)]
pub(super) struct Counts {
    /// Whether in the warm-up or after it.
    pub(super) sent: u64,
    pub(super) tally: Tally,
    pub(super) latency: Histogram<u64>,
    /// Answers between the warm-up and the end, whenever they were asked for.
    pub(super) answers: u64,
    pub(super) answers_in_time: u64,
}

// === impl Counts ===

impl Counts {
    pub(super) fn new() -> Self {
        Self {
            sent: 0,
            tally: Tally::default(),
            latency: histogram(),
            answers: 0,
            answers_in_time: 0,
        }
    }

    pub(super) fn take(&mut self, ending: Ending, latency: u64) {
        let tally = &mut self.tally;
        match ending {
            Ending::Refused(refusal) => {
                let Refused {
                    overloaded,
                    infeasible,
                    no_instance,
                } = &mut tally.refused;
                *match refusal {
                    Refusal::Overloaded => overloaded,
                    Refusal::Infeasible => infeasible,
                    Refusal::NoInstance => no_instance,
                } += 1;
            }
            Ending::Expired => tally.expired += 1,
            Ending::Lost => tally.lost += 1,
            Ending::Answered { in_time } => {
                tally.answered += 1;
                tally.in_time += u64::from(in_time);
                self.latency.saturating_record(latency);
            }
        }
    }

    /// What came of them, by the time in which they are counted, in seconds.
    pub(super) fn tally(&self, window: f64) -> Tally {
        let mut tally = self.tally.clone();
        let Refused {
            overloaded,
            infeasible,
            no_instance,
        } = tally.refused;
        tally.admitted = tally.offered - overloaded - infeasible - no_instance;
        tally.offered_per_s = tally.offered as f64 / window;
        tally.throughput_per_s = self.answers as f64 / window;
        tally.goodput_per_s = self.answers_in_time as f64 / window;
        tally
    }
}

impl AddAssign<&Counts> for Counts {
    fn add_assign(&mut self, other: &Counts) {
        self.sent += other.sent;
        self.answers += other.answers;
        self.answers_in_time += other.answers_in_time;
        self.latency += &other.latency;
        let (tally, more) = (&mut self.tally, &other.tally);
        tally.offered += more.offered;
        tally.refused.overloaded += more.refused.overloaded;
        tally.refused.infeasible += more.refused.infeasible;
        tally.refused.no_instance += more.refused.no_instance;
        tally.expired += more.expired;
        tally.lost += more.lost;
        tally.answered += more.answered;
        tally.in_time += more.in_time;
    }
}

/// Microseconds up to an hour, to a thousandth.
pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("the bounds are sound")
}
