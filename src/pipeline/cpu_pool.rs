//! The CPU pool: a fixed number of threads that decode, resize and postprocess.
//!
//! Two priorities. *Finishing* work (a picture that already ran on a device) goes strictly before *starting*
//! work (a picture still encoded), and one thread takes only finishing work, so a result never waits behind
//! the decoding of a 12-megapixel picture. The threads run at a lower priority than the runtime's, so health
//! checks and refusals stay prompt when every core is busy.
//!
//! A worker never waits on a queue that another worker has to empty. Jobs answer their own requests; a job
//! that panics costs the pool nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded, select_biased};
use serde::{Deserialize, Serialize};

use crate::device::step_back;

/// The pool's settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Threads that decode; 0 is one for each core that the process may use. One more only finishes.
    pub workers: usize,
    /// How far the pool's threads, and instances on a CPU, step back behind the runtime's, 0 to 19.
    pub niceness: i32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            workers: 0,
            niceness: 10,
        }
    }
}

impl Config {
    /// The number of threads that decode. Cores outside the process's cgroup quota or affinity do not count.
    pub fn workers(&self) -> usize {
        match self.workers {
            0 => thread::available_parallelism().map_or(1, usize::from),
            workers => workers,
        }
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// The handle. Cheap to clone; the threads end when the last one is gone.
#[derive(Debug, Clone)]
pub(super) struct CpuPool {
    start: Sender<Job>,
    finish: Sender<Job>,
}

/// No thread is free to start this job.
#[derive(Debug)]
pub(super) struct Busy;

// === impl CpuPool ===

impl CpuPool {
    /// Starts the threads.
    ///
    /// # Errors
    /// What the operating system says when it gives no thread.
    pub(super) fn new(config: &Config) -> std::io::Result<Self> {
        let workers = config.workers();
        // The scheduler counts idle workers and starts no more jobs than there are.
        let (start, starting) = bounded::<Job>(workers);
        // A batch of results comes at once; a device that finds no room waits, which is right: results are
        // made faster than they can be read.
        let (finish, finishing) = bounded::<Job>(workers * 64);
        let niceness = config.niceness;
        for index in 0..workers {
            let (starting, finishing) = (starting.clone(), finishing.clone());
            spawn(format!("cpu-{index}"), niceness, move || {
                work(&finishing, &starting)
            })?;
        }
        spawn("cpu-finish".to_owned(), niceness, move || {
            finishing.into_iter().for_each(run)
        })?;
        Ok(Self { start, finish })
    }

    /// Starts a job on a free worker. Never blocks.
    ///
    /// # Errors
    /// [`Busy`] when all have one.
    pub(super) fn try_start(&self, job: impl FnOnce() + Send + 'static) -> Result<(), Busy> {
        self.start.try_send(Box::new(job)).map_err(|_| Busy)
    }

    /// Runs a job before all that start. Blocks while the pool is behind: for an instance's thread only.
    pub(super) fn finish(&self, job: impl FnOnce() + Send + 'static) {
        // The workers outlive every handle, so there is always somebody to receive.
        drop(self.finish.send(Box::new(job)));
    }
}

/// A worker's life: what is to be finished, else what is to be started.
fn work(finishing: &Receiver<Job>, starting: &Receiver<Job>) {
    loop {
        select_biased! {
            recv(finishing) -> job => match job {
                Ok(job) => run(job),
                Err(_) => return,
            },
            recv(starting) -> job => match job {
                Ok(job) => run(job),
                Err(_) => return,
            },
        }
    }
}

fn run(job: Job) {
    // Jobs answer for their own panics, and the panic hook has logged this one: it only must not cost the pool
    // a thread.
    drop(catch_unwind(AssertUnwindSafe(job)));
}

fn spawn(name: String, niceness: i32, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let body = move || {
        step_back(niceness);
        body();
    };
    thread::Builder::new().name(name).spawn(body).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(workers: usize) -> CpuPool {
        CpuPool::new(&Config {
            workers,
            niceness: 0,
        })
        .unwrap()
    }

    #[test]
    fn finishing_work_goes_before_starting_work() {
        let pool = pool(1);
        let (hold, held) = bounded::<()>(0);
        let (holding, is_held) = bounded::<()>(2);
        // Both threads are held, then one job of each kind is queued, the starting one first.
        for _ in 0..2 {
            let (held, holding) = (held.clone(), holding.clone());
            pool.finish(move || {
                holding.send(()).unwrap();
                held.recv().unwrap();
            });
        }
        (0..2).for_each(|_| is_held.recv().unwrap());
        let (done, order) = bounded(2);
        let starts = done.clone();
        pool.try_start(move || starts.send("start").unwrap())
            .unwrap();
        pool.finish(move || done.send("finish").unwrap());
        // One thread is let go. Should it be the one that only finishes, the other still has to be.
        hold.send(()).unwrap();
        assert_eq!(order.recv().unwrap(), "finish");
        hold.send(()).unwrap();
        assert_eq!(order.recv().unwrap(), "start");
    }

    #[test]
    fn a_result_is_finished_while_every_worker_decodes() {
        let pool = pool(1);
        let (hold, held) = bounded::<()>(0);
        let (holding, is_held) = bounded::<()>(1);
        pool.try_start(move || {
            holding.send(()).unwrap();
            held.recv().unwrap();
        })
        .unwrap();
        is_held.recv().unwrap();
        let (done, finished) = bounded(1);
        pool.finish(move || done.send(()).unwrap());
        finished.recv().unwrap();
        hold.send(()).unwrap();
    }

    #[test]
    fn a_hundred_panics_do_not_shrink_the_pool() {
        let pool = pool(2);
        for _ in 0..100 {
            pool.finish(|| panic!("on purpose"));
        }
        let (done, finished) = bounded(1);
        pool.finish(move || done.send(7).unwrap());
        assert_eq!(finished.recv().unwrap(), 7);
        let (done, started) = bounded(1);
        pool.try_start(move || done.send(8).unwrap()).unwrap();
        assert_eq!(started.recv().unwrap(), 8);
    }

    #[test]
    fn more_jobs_than_workers_can_hold_are_refused_at_once() {
        let pool = pool(1);
        let (hold, held) = bounded::<()>(0);
        let (holding, is_held) = bounded::<()>(1);
        pool.try_start(move || {
            holding.send(()).unwrap();
            held.recv().unwrap();
        })
        .unwrap();
        is_held.recv().unwrap();
        pool.try_start(|| ()).unwrap();
        assert!(pool.try_start(|| ()).is_err());
        hold.send(()).unwrap();
    }
}
