//! [`World`]: the loop. What happens is told to the machine, and what the machine decides is done to the world.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::agenda::{Agenda, Nanoseconds, seconds};
use super::caller::Caller;
use super::cores::Cores;
use super::device::{Change, Device, Flight};
use super::ledger::{Ending, Ledger, Refusal};
use super::pool::{Pool, Task, Thread};
use super::random::Random;
use super::report::Report;
use super::scenario::{Distribution, Scenario};
use crate::scheduling::{
    Action, Arrival, Deadline, Event, InstanceKey, Kind, Machine, ModelKey, Outcome, Policy,
    RequestId, Share, SourceKey, StreamKey,
};

/// How long to wait before a machine that asks to be woken in the past is woken again: such a machine has a fault,
/// which shows in the number of events and not as a simulation that never ends.
const PATIENCE: Nanoseconds = 100_000;

/// How long a caller that was refused waits, besides what it thinks, before it asks again: nobody who is told that
/// there is no room asks again in the same instant.
const AFTER_REFUSAL: Nanoseconds = 10_000_000;

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
    cores_at: Option<Nanoseconds>,
    tick_at: Option<Nanoseconds>,
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

/// A request from the caller's sending until the server has let go of it.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) id: RequestId,
    pub(super) caller: usize,
    pub(super) group: usize,
    pub(super) sent: Nanoseconds,
    pub(super) deadline: Option<Nanoseconds>,
    pub(super) arrived: Nanoseconds,
    pub(super) taken_up: Nanoseconds,
    pub(super) ready: Nanoseconds,
    pub(super) ran_from: Nanoseconds,
    pub(super) ran_to: Nanoseconds,
    /// Seconds of a worker and of a device that it took.
    pub(super) cost: f64,
    admitted: bool,
    permit: bool,
    /// The caller has its answer, or has gone.
    over: bool,
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
            cores_at: None,
            tick_at: None,
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
        while let Some((at, happening)) = self.agenda.next() {
            events += 1;
            self.ledger.roll(at, self.cores.busy(at));
            self.now = at;
            self.happen(happening);
            self.settle();
        }
        debug_assert_eq!(self.machine.pending(), 0, "nothing is left over");
        self.ledger.report(events)
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Sends(caller) => {
                self.send(caller);
                self.send_later(caller);
            }
            Happening::Asks(caller) => self.send(caller),
            Happening::Cores => {
                if self.cores_at == Some(self.now) {
                    self.cores_at = None;
                }
                while let Some(job) = self.cores.finished(self.now) {
                    self.done(job);
                }
            }
            Happening::Ends { device, run } => self.end_run(device, run),
            Happening::GivesUp { request, id } => self.give_up(request, id),
            Happening::Changes { device, change } => self.change(device, change),
            Happening::Tick => {
                if self.tick_at == Some(self.now) {
                    self.tick_at = None;
                    self.inbox.push_back(Event::Tick);
                }
            }
        }
    }

    /// Lets everything follow that follows at once.
    fn settle(&mut self) {
        let mut told = false;
        while let Some(event) = self.inbox.pop_front() {
            told = true;
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
        if let Some(at) = self.cores.next()
            && self.cores_at != Some(at)
        {
            self.cores_at = Some(at);
            self.agenda.put(at, Happening::Cores);
        }
        if told && let Some(tick) = self.machine.next_tick() {
            let at = tick.saturating_duration_since(self.epoch).as_nanos() as Nanoseconds;
            let at = if at > self.now {
                at
            } else {
                self.now + PATIENCE
            };
            if self.tick_at.is_none_or(|waited| at < waited) {
                self.tick_at = Some(at);
                self.agenda.put(at, Happening::Tick);
            }
        }
    }

    fn instant(&self, at: Nanoseconds) -> Instant {
        self.epoch + Duration::from_nanos(at)
    }

    fn send_later(&mut self, caller: usize) {
        if let Some(at) = self.callers[caller].next() {
            self.agenda.put(at, Happening::Sends(caller));
        }
    }

    fn ask_later(&mut self, caller: usize, pause: Nanoseconds) {
        if let Some(at) = self.callers[caller].again(self.now + pause) {
            self.agenda.put(at, Happening::Asks(caller));
        }
    }

    fn send(&mut self, caller: usize) {
        let Caller {
            group,
            source,
            model,
            ..
        } = self.callers[caller];
        let id = RequestId(self.next_id);
        self.next_id += 1;
        let deadline = source
            .deadline
            .map(|deadline| self.now + deadline.0.as_nanos() as Nanoseconds);
        let request = Request {
            id,
            caller,
            group,
            sent: self.now,
            deadline,
            arrived: self.now,
            taken_up: self.now,
            ready: self.now,
            ran_from: self.now,
            ran_to: self.now,
            cost: 0.0,
            admitted: false,
            permit: false,
            over: false,
        };
        let place = match self.vacant.pop() {
            Some(place) => {
                self.requests[place] = request;
                place
            }
            None => {
                self.requests.push(request);
                self.requests.len() - 1
            }
        };
        self.ledger.offered(group, self.now);
        let bounds = &self.scenario.admission;
        let full = bounds.max_requests.is_some_and(|most| self.permits >= most)
            || bounds
                .max_requests_per_source
                .is_some_and(|most| self.permits_of[caller] >= most);
        if full {
            self.over(place, Ending::Refused(Refusal::Overloaded));
            self.vacant.push(place);
            return;
        }
        self.requests[place].permit = true;
        self.permits += 1;
        self.permits_of[caller] += 1;
        if let Some(deadline) = deadline {
            self.agenda
                .put(deadline, Happening::GivesUp { request: place, id });
        }
        let transport = self.scenario.model[model].transport.draw(&mut self.random);
        match transport > 0.0 {
            true => self.cores.start(transport, Job::Receives(place), self.now),
            false => self.arrive(place),
        }
    }

    fn arrive(&mut self, place: usize) {
        let now = self.now;
        let deadline = self.requests[place].deadline;
        let deadline = deadline.map_or(Deadline::NEVER, |at| Deadline::at(self.instant(at)));
        let request = &mut self.requests[place];
        request.arrived = now;
        let caller = &self.callers[request.caller];
        let stream = match caller.source.streams {
            1 => StreamKey::CALLS,
            streams => StreamKey(1 + request.id.0 % streams as u64),
        };
        self.ledger.line(1, now);
        self.inbox.push_back(Event::Arrived(Arrival {
            id: request.id,
            model: ModelKey(caller.model as u32),
            share: Share {
                source: SourceKey(request.caller as u64),
                stream,
            },
            priority: caller.source.priority.into(),
            kind: Kind::Call,
            deadline,
            pieces: None,
            payload: place,
        }));
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

    fn begin_run(&mut self, device: usize) {
        let Some((run, takes)) = self.devices[device].begin(self.now) else {
            return;
        };
        for place in self.devices[device].running() {
            self.requests[*place].ran_from = self.now;
        }
        match self.devices[device].spec.shares_cores {
            true => self.cores.start(takes, Job::Runs { device, run }, self.now),
            false => {
                let at = self.now + super::agenda::nanoseconds(takes);
                self.agenda.put(at, Happening::Ends { device, run });
            }
        }
    }

    fn end_run(&mut self, device: usize, run: u64) {
        let Some(ran) = self.devices[device].end(run) else {
            return;
        };
        self.ledger.ran(device, &ran, self.now);
        if let Some(instance) = self.devices[device].key {
            let took = Some(Duration::from_nanos(self.now - ran.started));
            self.inbox
                .push_back(Event::BatchFinished { instance, took });
        }
        self.begin_run(device);
        let each = seconds(self.now - ran.started) / ran.flight.requests.len() as f64;
        let model = &self.scenario.model[self.devices[device].model];
        let nothing_to_finish = model.postprocess == Distribution::NOTHING;
        for place in ran.flight.requests {
            self.requests[place].ran_to = self.now;
            self.requests[place].cost += each;
            match nothing_to_finish {
                true => self.answer(place),
                false => self.pool.put(Task::Finish(place)),
            }
        }
    }

    fn change(&mut self, device: usize, change: Change) {
        match change {
            Change::Hangs => self.devices[device].hangs = true,
            Change::Goes => {
                if let Some(instance) = self.devices[device].key {
                    let places = self.devices[device].go();
                    let named = |place: usize| (self.requests[place].id, place);
                    let returned = places.into_iter().map(named).collect();
                    self.inbox
                        .push_back(Event::InstanceDown { instance, returned });
                }
            }
            Change::ComesBack => {
                self.change(device, Change::Goes);
                let key = InstanceKey(self.instances.len() as u32);
                self.instances.push(device);
                let placement = self.devices[device].come_up(key, self.scenario);
                self.inbox.push_back(Event::InstanceUp(key, placement));
            }
        }
    }

    /// Core seconds of a task.
    fn work(&mut self, task: Task) -> f64 {
        let random = &mut self.random;
        let (Task::Prepare(place) | Task::Finish(place)) = task;
        let caller = &self.callers[self.requests[place].caller];
        let model = &self.scenario.model[caller.model];
        match task {
            Task::Prepare(_) => {
                let own = caller.source.prepare.as_ref();
                own.unwrap_or(&model.prepare).draw(random)
            }
            // Nobody waits any more.
            Task::Finish(place) if self.requests[place].over => 0.0,
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
                    Task::Prepare(place) => {
                        self.give_back_permit(place);
                        let request = &mut self.requests[place];
                        request.ready = self.now;
                        request.cost += seconds(took);
                        self.inbox.push_back(Event::Prepared {
                            id: request.id,
                            payload: place,
                            pieces: Vec::new(),
                            took: Duration::from_nanos(took),
                        });
                    }
                    Task::Finish(place) => self.answer(place),
                }
            }
        }
    }

    fn answer(&mut self, place: usize) {
        // A caller who has given up is over already; the very instant of the deadline is in time for him.
        let late = |at| at < self.now;
        let in_time = !self.requests[place].deadline.is_some_and(late);
        self.let_go(place, Ending::Answered { in_time });
    }

    fn give_up(&mut self, place: usize, id: RequestId) {
        let request = &self.requests[place];
        if request.id != id || request.over {
            return;
        }
        self.over(place, Ending::Expired);
        self.inbox.push_back(Event::Abandoned(id));
    }

    fn give_back_permit(&mut self, place: usize) {
        let request = &mut self.requests[place];
        if std::mem::take(&mut request.permit) {
            self.permits -= 1;
            self.permits_of[request.caller] -= 1;
        }
    }

    /// The server has done with a request.
    fn let_go(&mut self, place: usize, ending: Ending) {
        self.give_back_permit(place);
        if !self.requests[place].over {
            self.over(place, ending);
        }
        self.vacant.push(place);
    }

    /// Its caller knows how a request ended.
    fn over(&mut self, place: usize, ending: Ending) {
        let request = &mut self.requests[place];
        request.over = true;
        let caller = request.caller;
        self.ledger.ended(&self.requests[place], ending, self.now);
        if self.callers[caller].waiting_callers().is_some() {
            let refused = !matches!(ending, Ending::Answered { .. });
            self.ask_later(caller, if refused { AFTER_REFUSAL } else { 0 });
        }
    }
}

fn why(outcome: Outcome) -> Ending {
    match outcome {
        Outcome::Expired | Outcome::Abandoned | Outcome::Infeasible { .. } => Ending::Expired,
        Outcome::NoInstance | Outcome::Lost => Ending::Lost,
    }
}
