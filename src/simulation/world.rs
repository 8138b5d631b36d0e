//! [`World`]: the loop. What happens is told to the machine, and what the machine decides is done to the world.

mod pieces;
mod requests;
mod runs;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::agenda::{Agenda, Nanoseconds};
use super::caller::Caller;
use super::cores::Cores;
use super::counts::{Ending, Refusal};
use super::device::{Change, Device, Flight};
use super::ledger::Ledger;
use super::pool::{Pool, Task, Thread};
use super::random::Random;
use super::report::Report;
use super::scenario::Scenario;
use crate::scheduling::{Action, Event, Machine, Outcome, Policy, RequestId};
pub(super) use requests::Request;

/// How long to wait before a machine that asks to be woken in the past is woken again: such a machine has a fault,
/// which shows in the number of events and not as a simulation that never ends.
const PATIENCE: Nanoseconds = 100_000;

/// How long a caller that was refused waits, besides what it thinks, before it asks again: nobody who is told that
/// there is no room asks again in the same instant.
pub(super) const AFTER_REFUSAL: Nanoseconds = 10_000_000;

/// Everything there is.
pub(super) struct World<'a> {
    scenario: &'a Scenario,
    /// What the machine takes for the beginning. Only differences to it are ever looked at.
    epoch: Instant,
    now: Nanoseconds,
    agenda: Agenda<Happening>,
    machine: Machine<usize, usize>,
    actions: Vec<Action<usize, usize>>,
    /// What is still to be told to the machine.
    inbox: VecDeque<Event<usize, usize>>,
    callers: Vec<Caller<'a>>,
    devices: Vec<Device<'a>>,
    /// Which device an instance is.
    instances: Vec<usize>,
    pool: Pool,
    cores: Cores<Job>,
    /// For preparing and finishing.
    random: Random,
    requests: Vec<Request>,
    /// Places of requests that are done with.
    vacant: Vec<usize>,
    next_id: u64,
    /// Requests that hold a permit, in all and of each source.
    permits: usize,
    permits_of: Vec<usize>,
    /// When the machine wants to be woken.
    tick_at: Option<Nanoseconds>,
    /// Events that the machine was told.
    told: u64,
    ledger: Ledger<'a>,
}

/// What comes to pass.
#[derive(Debug)]
enum Happening {
    /// A source sends what it sends at its own pace.
    Sends(usize),
    /// A caller that waited for its answer sends again.
    Asks(usize),
    /// Something on the cores is done.
    Cores,
    /// A run ends on a device.
    Ends { device: usize, run: u64 },
    /// The deadline of a request passes.
    GivesUp { request: usize, id: RequestId },
    /// Something goes wrong with a device, or right again.
    Changes { device: usize, change: Change },
    /// The machine asked to be woken.
    Tick,
}

/// What runs on the cores.
#[derive(Debug)]
enum Job {
    Receives(usize),
    Works {
        task: Task,
        thread: Thread,
        since: Nanoseconds,
    },
    Runs {
        device: usize,
        run: u64,
    },
}

// === impl World ===

impl<'a> World<'a> {
    pub(super) fn new(scenario: &'a Scenario) -> Self {
        let callers = Caller::all(scenario);
        let policy = Policy {
            workers: scenario.workers,
            max_wait: scenario.max_wait.0,
        };
        let devices = Device::all(scenario);
        Self {
            scenario,
            epoch: Instant::now(),
            now: 0,
            agenda: Agenda::new(),
            machine: Machine::new(policy),
            actions: Vec::new(),
            inbox: VecDeque::new(),
            permits_of: vec![0; callers.len()],
            ledger: Ledger::new(scenario, &devices, &callers),
            callers,
            devices,
            instances: Vec::new(),
            pool: Pool::new(scenario.workers),
            cores: Cores::new(scenario.cores()),
            random: Random::new(scenario.seed, 0),
            requests: Vec::new(),
            vacant: Vec::new(),
            next_id: 0,
            permits: 0,
            tick_at: None,
            told: 0,
        }
    }

    /// Plays to the end.
    pub(super) fn run(mut self) -> Report {
        for device in 0..self.devices.len() {
            self.change(device, Change::ComesBack);
            for (at, change) in self.devices[device].faults() {
                self.agenda.put(at, Happening::Changes { device, change });
            }
        }
        for caller in 0..self.callers.len() {
            match self.callers[caller].waiting_callers() {
                None => self.send_later(caller),
                Some(callers) => (0..callers).for_each(|_| self.ask_later(caller, 0)),
            }
        }
        self.settle();
        let mut events = 0;
        while let Some((at, happening)) = self.next() {
            if at == Nanoseconds::MAX {
                // What takes for ever has no end to wait for.
                return self.ledger.report(events, self.told);
            }
            events += 1;
            self.ledger.roll(at, self.cores.busy(at));
            self.now = at;
            self.happen(happening);
            self.settle();
        }
        debug_assert_eq!(self.machine.pending(), 0, "nothing is left over");
        self.ledger.report(events, self.told)
    }

    /// What comes first. Of what comes at the same time, what was agreed on, then what the cores did, then the tick.
    fn next(&mut self) -> Option<(Nanoseconds, Happening)> {
        let agreed = self.agenda.next_at();
        let cores = self.cores.next();
        let earliest = [agreed, cores, self.tick_at].into_iter().flatten().min()?;
        if agreed == Some(earliest) {
            return self.agenda.next();
        }
        let happening = match cores == Some(earliest) {
            true => Happening::Cores,
            false => Happening::Tick,
        };
        Some((earliest, happening))
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Sends(caller) => {
                self.send(caller);
                self.send_later(caller);
            }
            Happening::Asks(caller) => self.send(caller),
            Happening::Cores => {
                while let Some(job) = self.cores.finished(self.now) {
                    self.done(job);
                }
            }
            Happening::Ends { device, run } => self.end_run(device, run),
            Happening::GivesUp { request, id } => self.give_up(request, id),
            Happening::Changes { device, change } => self.change(device, change),
            Happening::Tick => self.inbox.push_back(Event::Tick),
        }
    }

    /// Lets everything follow that follows at once.
    fn settle(&mut self) {
        let mut told = false;
        while let Some(event) = self.inbox.pop_front() {
            told = true;
            self.told += 1;
            let now = self.instant(self.now);
            let mut actions = std::mem::take(&mut self.actions);
            self.machine.handle(event, now, &mut actions);
            actions.drain(..).for_each(|action| self.act(action));
            self.actions = actions;
        }
        while let Some((task, thread)) = self.pool.take() {
            let work = self.work(task);
            let since = self.now;
            self.cores.start(
                work,
                Job::Works {
                    task,
                    thread,
                    since,
                },
                self.now,
            );
        }
        if told {
            self.tick_at = self.machine.next_tick().map(|tick| {
                let at = tick.saturating_duration_since(self.epoch).as_nanos() as Nanoseconds;
                match at > self.now {
                    true => at,
                    false => self.now + PATIENCE,
                }
            });
        }
    }

    fn instant(&self, at: Nanoseconds) -> Instant {
        self.epoch + Duration::from_nanos(at)
    }

    fn act(&mut self, action: Action<usize, usize>) {
        match action {
            Action::Prepare { payload: place, .. } => {
                self.ledger.line(-1, self.now);
                self.requests[place].admitted = true;
                self.requests[place].taken_up = self.now;
                self.pool.put(Task::Prepare(place));
            }
            Action::Run {
                instance,
                bucket,
                batch,
            } => {
                let device = self.instances[instance.0 as usize];
                let requests = batch.into_iter().map(|(_, place)| place).collect();
                self.devices[device].take(Flight { bucket, requests });
                self.begin_run(device);
            }
            Action::Eject(instance) => {
                let device = self.instances[instance.0 as usize];
                self.ledger.ejected(device);
                self.change(device, Change::Goes);
            }
            Action::DropWaiting(place, outcome) => {
                self.ledger.line(-1, self.now);
                self.part_prepared(self.picture(place));
                let admitted = self.requests[place].admitted;
                self.let_go(
                    place,
                    match outcome {
                        Outcome::Infeasible { .. } => Ending::Refused(Refusal::Infeasible),
                        Outcome::NoInstance if !admitted => Ending::Refused(Refusal::NoInstance),
                        outcome => why(outcome),
                    },
                );
            }
            Action::DropReady(place, outcome) => self.let_go(place, why(outcome)),
        }
    }

    /// Core seconds of a task.
    fn work(&mut self, task: Task) -> f64 {
        let random = &mut self.random;
        let (Task::Prepare(place) | Task::Finish(place)) = task;
        let caller = &self.callers[self.requests[place].caller];
        let model = &self.scenario.model[caller.model];
        let picture = self.requests[place].picture;
        match task {
            Task::Prepare(_) => {
                let source = caller.source;
                let piece = picture.and(source.prepare_tile.as_ref());
                let own = piece.or(source.prepare.as_ref());
                own.unwrap_or(&model.prepare).draw(random)
            }
            // Nobody waits any more.
            Task::Finish(_) if self.requests[picture.unwrap_or(place)].over => 0.0,
            Task::Finish(_) => model.postprocess.draw(random),
        }
    }

    fn done(&mut self, job: Job) {
        match job {
            Job::Receives(place) if self.requests[place].over => {
                self.give_back_permit(place);
                self.vacant.push(place);
            }
            Job::Receives(place) => self.arrive(place),
            Job::Runs { device, run } => self.end_run(device, run),
            Job::Works {
                task,
                thread,
                since,
            } => {
                self.pool.give_back(thread);
                self.ledger.worked(since, self.now);
                let took = self.now - since;
                match task {
                    Task::Prepare(place) => self.prepared(place, took),
                    Task::Finish(place) => self.answer(place),
                }
            }
        }
    }
}

fn why(outcome: Outcome) -> Ending {
    match outcome {
        Outcome::Expired | Outcome::Abandoned | Outcome::Infeasible { .. } => Ending::Expired,
        Outcome::NoInstance | Outcome::Lost => Ending::Lost,
    }
}
