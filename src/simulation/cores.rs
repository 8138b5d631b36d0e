//! [`Cores`]: cores shared alike by all that runs on them.
//!
//! Processor sharing: with more running than there are cores, everything slows down by the same factor. All jobs
//! progress at one rate, so a job is done when the progress made since the cores were idle reaches a mark that never
//! moves; only the time at which that will be does.

use std::cmp::Ordering;

use super::agenda::{Agenda, Nanoseconds, nanoseconds, seconds};

/// A billionth of a second: what rounding to whole nanoseconds may leave of a job.
const REST: f64 = 1e-9;

/// Running jobs.
#[derive(Debug)]
pub(super) struct Cores<J> {
    cores: f64,
    /// Core seconds that a job would have had that ran since the cores were last idle.
    progress: f64,
    at: Nanoseconds,
    jobs: Agenda<J, Mark>,
    /// Core seconds spent.
    busy: f64,
}

/// The progress at which a job is done.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Mark(f64);

// === impl Cores ===

impl<J> Cores<J> {
    pub(super) fn new(cores: f64) -> Self {
        Self {
            cores,
            progress: 0.0,
            at: 0,
            jobs: Agenda::new(),
            busy: 0.0,
        }
    }

    /// Starts a job of `work` core seconds.
    pub(super) fn start(&mut self, work: f64, job: J, now: Nanoseconds) {
        self.advance(now);
        if self.jobs.len() == 0 {
            // Begins anew: a large number has no room for small differences.
            self.progress = 0.0;
        }
        self.jobs.put(Mark(self.progress + work), job);
    }

    /// A job that is done by `now`.
    pub(super) fn finished(&mut self, now: Nanoseconds) -> Option<J> {
        self.advance(now);
        let Mark(mark) = self.jobs.next_at()?;
        let done = mark <= self.progress + REST;
        done.then(|| self.jobs.next())?.map(|(_, job)| job)
    }

    /// When the next job will be done, if none comes before.
    pub(super) fn next(&self) -> Option<Nanoseconds> {
        let Mark(mark) = self.jobs.next_at()?;
        let left = (mark - self.progress).max(0.0) / self.rate();
        Some(self.at.saturating_add(nanoseconds(left)))
    }

    /// Core seconds spent by `now`.
    pub(super) fn busy(&mut self, now: Nanoseconds) -> f64 {
        self.advance(now);
        self.busy
    }

    /// Progress of each job a second.
    fn rate(&self) -> f64 {
        (self.cores / self.jobs.len() as f64).min(1.0)
    }

    fn advance(&mut self, now: Nanoseconds) {
        let passed = seconds(now.saturating_sub(self.at));
        self.at = self.at.max(now);
        if self.jobs.len() > 0 {
            let made = passed * self.rate();
            self.progress += made;
            self.busy += made * self.jobs.len() as f64;
        }
    }
}

// === impl Mark ===

impl Eq for Mark {}

impl PartialOrd for Mark {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Mark {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn two_jobs_on_one_core_take_twice_as_long() {
        let mut cores = Cores::new(1.0);
        cores.start(0.010, 'a', 0);
        assert_eq!(cores.next(), Some(10 * MS));
        cores.start(0.010, 'b', 5 * MS);
        assert_eq!(cores.next(), Some(15 * MS)); // 5 ms left at half the rate
        assert_eq!(cores.finished(14 * MS), None);
        assert_eq!(cores.finished(15 * MS), Some('a'));
        assert_eq!(cores.next(), Some(20 * MS));
        assert_eq!(cores.finished(20 * MS), Some('b'));
        assert!((cores.busy(30 * MS) - 0.020).abs() < 1e-9);
    }

    #[test]
    fn jobs_with_a_core_each_do_not_slow_down() {
        let mut cores = Cores::new(2.0);
        cores.start(0.010, 'a', 0);
        cores.start(0.010, 'b', 5 * MS);
        assert_eq!(cores.next(), Some(10 * MS));
    }

    #[test]
    fn cores_that_are_busy_for_years_still_finish_what_they_do() {
        let mut cores = Cores::new(3.0);
        for job in 0..100u32 {
            cores.start(1e6 * (1.0 + f64::from(job) / 7.0), job, u64::from(job));
        }
        let mut steps = 0;
        while let Some(at) = cores.next() {
            while cores.finished(at).is_some() {}
            steps += 1;
            assert!(steps <= 300, "{cores:?}");
        }
    }
}
