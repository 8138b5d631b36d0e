//! [`Pool`]: the CPU workers, as `pipeline::cpu_pool` has them.
//!
//! So many workers that finish before they start, and one more thread that only finishes. What is finished while
//! all of them are busy waits for the first that is free, before anything that is to be started.

use std::collections::VecDeque;

/// A picture on its way through a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    Prepare(usize),
    Finish(usize),
}

/// Threads and what waits for them.
#[derive(Debug)]
pub(super) struct Pool {
    idle: usize,
    finisher_idle: bool,
    finishing: VecDeque<usize>,
    starting: VecDeque<usize>,
}

/// Which thread does it; given back when it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Thread {
    Worker,
    Finisher,
}

// === impl Pool ===

impl Pool {
    pub(super) fn new(workers: usize) -> Self {
        Self {
            idle: workers,
            finisher_idle: true,
            finishing: VecDeque::new(),
            starting: VecDeque::new(),
        }
    }

    pub(super) fn put(&mut self, task: Task) {
        match task {
            Task::Prepare(request) => self.starting.push_back(request),
            Task::Finish(request) => self.finishing.push_back(request),
        }
    }

    /// What a free thread does next.
    pub(super) fn take(&mut self) -> Option<(Task, Thread)> {
        if !self.finishing.is_empty() && (self.finisher_idle || self.idle > 0) {
            let thread = match self.finisher_idle {
                true => Thread::Finisher,
                false => Thread::Worker,
            };
            self.occupy(thread);
            return self
                .finishing
                .pop_front()
                .map(|request| (Task::Finish(request), thread));
        }
        if self.idle == 0 {
            return None;
        }
        let request = self.starting.pop_front()?;
        self.occupy(Thread::Worker);
        Some((Task::Prepare(request), Thread::Worker))
    }

    pub(super) fn give_back(&mut self, thread: Thread) {
        match thread {
            Thread::Worker => self.idle += 1,
            Thread::Finisher => self.finisher_idle = true,
        }
    }

    fn occupy(&mut self, thread: Thread) {
        match thread {
            Thread::Worker => self.idle -= 1,
            Thread::Finisher => self.finisher_idle = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finishing_comes_before_starting_and_has_a_thread_of_its_own() {
        let mut pool = Pool::new(1);
        pool.put(Task::Prepare(1));
        assert_eq!(pool.take(), Some((Task::Prepare(1), Thread::Worker)));
        pool.put(Task::Prepare(2));
        (3..=4).for_each(|request| pool.put(Task::Finish(request)));
        assert_eq!(pool.take(), Some((Task::Finish(3), Thread::Finisher)));
        assert_eq!(pool.take(), None);
        pool.give_back(Thread::Worker);
        assert_eq!(pool.take(), Some((Task::Finish(4), Thread::Worker)));
        pool.give_back(Thread::Worker);
        assert_eq!(pool.take(), Some((Task::Prepare(2), Thread::Worker)));
    }
}
