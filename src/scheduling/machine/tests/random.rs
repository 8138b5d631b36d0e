//! Random scripts of events, played against what must always hold.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::*;

/// One step of a random script. Numbers pick among what there is.
#[derive(Debug, Clone)]
enum Step {
    Arrive {
        model: u32,
        share: Share,
        priority: Priority,
        kind: Kind,
        timeout_ms: Option<u64>,
        /// Of a picture that is to be cut: how many are expected.
        pieces: Option<usize>,
    },
    Abandon {
        nth: usize,
    },
    WorkerDone {
        nth: usize,
        fails: bool,
        took_ms: u64,
        /// Where the request is to be cut: into how many besides itself.
        pieces: usize,
    },
    BatchDone {
        nth: usize,
        took_ms: Option<u64>,
    },
    /// Of what the instance had, every picture is answered first with this chance out of four.
    InstanceDown {
        nth: usize,
        answered: usize,
    },
    InstanceUp,
    Pass {
        ms: u64,
    },
}

fn share() -> impl Strategy<Value = Share> {
    (0..3u64, 0..2u64).prop_map(|(source, stream)| Share {
        source: SourceKey(source),
        stream: StreamKey(stream),
    })
}

fn step() -> impl Strategy<Value = Step> {
    let priority = prop_oneof![3 => Just(Priority::Interactive), 1 => Just(Priority::Batch)];
    let kind = prop_oneof![2 => Just(Kind::Call), 1 => Just(Kind::Frame)];
    let timeout = prop::option::of(0..150u64);
    let pieces = prop::option::weighted(0.25, 0..6usize);
    prop_oneof![
        8 => (0..2u32, share(), priority, kind, timeout, pieces).prop_map(
            |(model, share, priority, kind, timeout_ms, pieces)| {
                Step::Arrive { model, share, priority, kind, timeout_ms, pieces }
            },
        ),
        1 => (0..64usize).prop_map(|nth| Step::Abandon { nth }),
        8 => (0..8usize, prop::bool::weighted(0.1), 0..12u64, 0..6usize)
            .prop_map(|(nth, fails, took_ms, pieces)| Step::WorkerDone { nth, fails, took_ms, pieces }),
        5 => (0..8usize, prop::option::weighted(0.9, 2..40u64)).prop_map(|(nth, took_ms)| Step::BatchDone { nth, took_ms }),
        1 => (0..8usize, 0..5usize).prop_map(|(nth, answered)| Step::InstanceDown { nth, answered }),
        1 => Just(Step::InstanceUp),
        3 => (1..30u64).prop_map(|ms| Step::Pass { ms }),
    ]
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Where {
    Waiting,
    Preparing,
    Ready,
    Running,
    Gone,
}

#[derive(Debug, Clone, Copy)]
struct Request {
    model: u32,
    share: Share,
    priority: Priority,
    kind: Kind,
    deadline_ms: Option<u64>,
    due_ms: u64,
    abandoned: bool,
    lost: bool,
    at: Where,
    job: Job,
    /// The picture of which it is a piece.
    picture: Option<u64>,
}

#[derive(Debug)]
struct Device {
    key: u32,
    model: u32,
    pipelined: bool,
    ejected: bool,
    /// Batches in its hands, and when the first began.
    flights: VecDeque<Vec<u64>>,
    since_ms: u64,
}

const WATCHDOG_MS: u64 = 400;

/// Plays both sides: sends what the world would, and checks every action against what it knows.
struct World {
    script: Script,
    workers: usize,
    requests: Vec<Request>,
    preparing: Vec<u64>,
    devices: Vec<Device>,
    next_device: u32,
    /// The request whose arrival is being handled.
    arriving: Option<u64>,
}

impl World {
    fn new(workers: usize) -> Self {
        Self {
            script: Script::new(workers),
            workers,
            requests: Vec::new(),
            preparing: Vec::new(),
            devices: Vec::new(),
            next_device: 0,
            arriving: None,
        }
    }

    fn play(&mut self, step: &Step) {
        let actions = self.send(step);
        let mut begun = Vec::new();
        for action in actions {
            if let Action::Prepare { payload, .. } = action {
                begun.push(self.requests[payload as usize].model);
            }
            self.check(action);
        }
        self.arriving = None;
        begun.into_iter().for_each(|model| self.check_shelf(model));
        self.check_state();
    }

    /// What was begun has room: no more is on its way to the devices than they take next.
    fn check_shelf(&self, model: u32) {
        let live = self.devices.iter();
        let live = live.filter(|device| device.model == model && !device.ejected);
        let model = &self.script.machine.models[&ModelKey(model)];
        let instances = live.map(|device| &model.instances[&InstanceKey(device.key)]);
        let slots: usize = instances.map(|instance| instance.buckets.preferred()).sum();
        let taken = model.shelf.taken();
        assert!(taken <= slots, "{taken} on a shelf of {slots}");
    }

    fn send(&mut self, step: &Step) -> Vec<Action<u64, u64>> {
        let now = self.script.now_ms;
        match *step {
            Step::Arrive {
                model,
                share,
                priority,
                kind,
                timeout_ms,
                pieces,
            } => {
                let deadline_ms = timeout_ms.map(|ms| now + ms);
                let id = self.requests.len() as u64;
                self.requests.push(Request {
                    model,
                    share,
                    priority,
                    kind,
                    deadline_ms,
                    due_ms: deadline_ms.unwrap_or(now + MAX_WAIT_MS),
                    abandoned: false,
                    lost: false,
                    at: Where::Waiting,
                    job: match pieces {
                        None => Job::Picture,
                        Some(_) => Job::Cut,
                    },
                    picture: None,
                });
                self.arriving = Some(id);
                let script = &mut self.script;
                script.arrive_kind(model, id, share, priority, kind, deadline_ms, pieces)
            }
            Step::Abandon { nth } => {
                if self.requests.is_empty() {
                    return Vec::new();
                }
                let id = nth % self.requests.len();
                self.requests[id].abandoned = true;
                // What it was cut into goes with it.
                let of_it = |other: &&mut Request| other.picture == Some(id as u64);
                let pieces = self.requests.iter_mut().filter(of_it);
                pieces.for_each(|piece| piece.abandoned = true);
                self.script.send(Event::Abandoned(RequestId(id as u64)))
            }
            Step::WorkerDone {
                nth,
                fails,
                took_ms,
                pieces,
            } => {
                if self.preparing.is_empty() {
                    return Vec::new();
                }
                let id = self.preparing.swap_remove(nth % self.preparing.len());
                let took = Duration::from_millis(took_ms);
                if fails {
                    self.move_to(id, Where::Gone);
                    let id = RequestId(id);
                    return self.script.send(Event::PrepareFailed { id, took });
                }
                self.move_to(id, Where::Ready);
                let request = self.requests[id as usize];
                let pieces = match request.job {
                    Job::Cut => pieces,
                    _ => 0,
                };
                let ids = self.requests.len() as u64..;
                let piece = Request {
                    at: Where::Waiting,
                    job: Job::Piece,
                    picture: Some(id),
                    lost: false,
                    // What of a frame was begun is finished.
                    deadline_ms: request.deadline_ms.filter(|_| request.kind == Kind::Call),
                    ..request
                };
                let pieces = ids.zip(vec![piece; pieces]).map(|(id, piece)| {
                    self.requests.push(piece);
                    (RequestId(id), id)
                });
                let pieces = pieces.collect();
                self.script.send(Event::Prepared {
                    id: RequestId(id),
                    payload: id,
                    pieces,
                    took,
                })
            }
            Step::BatchDone { nth, took_ms } => {
                let mut busy = self
                    .devices
                    .iter_mut()
                    .filter(|device| !device.flights.is_empty() && !device.ejected);
                let count = busy.by_ref().count();
                let Some(index) = nth.checked_rem(count) else {
                    return Vec::new();
                };
                let mut busy = self
                    .devices
                    .iter_mut()
                    .filter(|device| !device.flights.is_empty() && !device.ejected);
                let device = busy.nth(index).unwrap();
                let (key, batch) = (device.key, device.flights.pop_front().unwrap());
                device.since_ms = now;
                batch
                    .into_iter()
                    .for_each(|id| self.move_to(id, Where::Gone));
                self.script.send(Event::BatchFinished {
                    instance: InstanceKey(key),
                    took: took_ms.map(Duration::from_millis),
                })
            }
            Step::InstanceDown { nth, answered } => {
                if self.devices.is_empty() {
                    return Vec::new();
                }
                let device = self.devices.swap_remove(nth % self.devices.len());
                self.take_down(device, answered)
            }
            Step::InstanceUp => {
                let key = self.next_device;
                self.next_device += 1;
                let pipelined = key.is_multiple_of(3);
                self.devices.push(Device {
                    key,
                    model: key % 2,
                    pipelined,
                    ejected: false,
                    flights: VecDeque::new(),
                    since_ms: now,
                });
                let placement = Placement {
                    pipelined,
                    watchdog: Duration::from_millis(WATCHDOG_MS),
                    ..placement(key % 2, &[(1, 10), (2, 12), (4, 20)])
                };
                self.script
                    .send(Event::InstanceUp(InstanceKey(key), placement))
            }
            Step::Pass { ms } => {
                self.script.now_ms += ms;
                self.script.send(Event::Tick)
            }
        }
    }

    fn take_down(&mut self, device: Device, answered: usize) -> Vec<Action<u64, u64>> {
        let mut returned = Vec::new();
        for (index, id) in device.flights.into_iter().flatten().enumerate() {
            if index % 4 < answered {
                self.move_to(id, Where::Gone);
            } else {
                // On the shelf again, unless an action says otherwise.
                self.move_to(id, Where::Ready);
                returned.push(id);
            }
        }
        let lost: Vec<u64> = returned
            .iter()
            .copied()
            .filter(|id| !std::mem::replace(&mut self.requests[*id as usize].lost, true))
            .collect();
        let twice = returned.len() - lost.len();
        let actions = self.script.down(device.key, &returned);
        let told_lost = actions
            .iter()
            .filter(|action| matches!(action, Action::DropReady(_, Outcome::Lost)))
            .count();
        assert!(told_lost <= twice, "lost without having been lost before");
        actions
    }

    fn move_to(&mut self, id: u64, to: Where) {
        let request = &mut self.requests[id as usize];
        let may = match to {
            Where::Waiting => false,
            Where::Preparing => request.at == Where::Waiting,
            Where::Ready => matches!(request.at, Where::Preparing | Where::Running),
            Where::Running => request.at == Where::Ready,
            Where::Gone => request.at != Where::Gone,
        };
        assert!(may, "request {id} goes from {:?} to {to:?}", request.at);
        request.at = to;
    }

    fn left_ms(&self, id: u64) -> Option<u64> {
        let deadline = self.requests[id as usize].deadline_ms?;
        Some(deadline.saturating_sub(self.script.now_ms))
    }

    fn check(&mut self, action: Action<u64, u64>) {
        match action {
            Action::Prepare { id, payload, .. } => {
                assert_eq!(id.0, payload);
                self.check_alive(payload);
                self.check_first(payload);
                let request = self.requests[payload as usize];
                assert!(request.job != Job::Cut || self.may_open(request.priority));
                self.move_to(payload, Where::Preparing);
                self.preparing.push(payload);
                assert!(
                    self.preparing.len() <= self.workers,
                    "more in preparation than there are workers"
                );
            }
            Action::Run {
                instance,
                bucket,
                batch,
            } => {
                assert!(!batch.is_empty() && batch.len() <= bucket && bucket <= 4);
                let now = self.script.now_ms;
                let ids: Vec<u64> = batch.iter().map(|(_, id)| *id).collect();
                assert!(batch.iter().all(|(id, payload)| id.0 == *payload));
                let device = self
                    .devices
                    .iter_mut()
                    .find(|device| device.key == instance.0)
                    .expect("only a live instance runs");
                assert!(!device.ejected, "an ejected instance was given a batch");
                assert!(device.flights.len() < 1 + usize::from(device.pipelined));
                if device.flights.is_empty() {
                    device.since_ms = now;
                }
                device.flights.push_back(ids.clone());
                let model = device.model;
                for id in ids {
                    assert_eq!(
                        self.requests[id as usize].model, model,
                        "a batch mixes models"
                    );
                    self.check_alive(id);
                    self.move_to(id, Where::Running);
                }
            }
            Action::Eject(instance) => {
                let now = self.script.now_ms;
                let device = self
                    .devices
                    .iter_mut()
                    .find(|device| device.key == instance.0)
                    .expect("only a live instance is given up");
                assert!(!device.ejected, "given up twice");
                assert!(now - device.since_ms >= WATCHDOG_MS, "given up too early");
                device.ejected = true;
            }
            Action::DropWaiting(id, outcome) => {
                assert_eq!(self.requests[id as usize].at, Where::Waiting);
                self.check_outcome(id, outcome);
                self.move_to(id, Where::Gone);
            }
            Action::DropReady(id, outcome) => {
                assert_eq!(self.requests[id as usize].at, Where::Ready);
                self.check_outcome(id, outcome);
                self.move_to(id, Where::Gone);
            }
        }
    }

    /// Nothing is spent on what nobody will read.
    fn check_alive(&self, id: u64) {
        let request = &self.requests[id as usize];
        if request.kind == Kind::Call || request.at == Where::Waiting {
            assert_ne!(self.left_ms(id), Some(0), "an expired request is worked on");
        }
        assert!(!request.abandoned, "an abandoned request is worked on");
    }

    /// Whether another picture may be decoded and kept for its pieces.
    fn may_open(&self, priority: Priority) -> bool {
        let most = self.workers.max(2);
        let mut open: BTreeMap<u64, Priority> = BTreeMap::new();
        for (id, request) in (0u64..).zip(&self.requests) {
            match (request.job, request.at) {
                (Job::Cut, Where::Preparing) => open.insert(id, request.priority),
                (Job::Piece, Where::Waiting | Where::Preparing) => {
                    open.insert(request.picture.unwrap(), request.priority)
                }
                _ => None,
            };
        }
        assert!(open.len() <= most, "more pictures are open than may be");
        let of_batch = open.values().filter(|of| **of == Priority::Batch).count();
        open.len() < most && (priority == Priority::Interactive || of_batch < most / 2)
    }

    /// Inside a stream nobody is overtaken by one that is due later, unless no more pictures may be cut.
    fn check_first(&self, id: u64) {
        let request = self.requests[id as usize];
        let rank = (request.due_ms, id);
        let mut waiting = (0u64..).zip(&self.requests).filter(|(_, other)| {
            other.at == Where::Waiting
                && (other.job != Job::Cut || self.may_open(other.priority))
                && (other.share, other.priority, other.model)
                    == (request.share, request.priority, request.model)
        });
        assert!(
            waiting.all(|(other, of)| (of.due_ms, other) >= rank),
            "a stream's order was changed"
        );
    }

    fn check_outcome(&self, id: u64, outcome: Outcome) {
        let request = self.requests[id as usize];
        let has_instance = self
            .devices
            .iter()
            .any(|device| device.model == request.model);
        match outcome {
            // Or it would have, by all that is known: then before a worker was spent on it. `policies` has the numbers.
            Outcome::Expired => assert!(match self.left_ms(id) {
                // What of a frame was begun is finished.
                Some(0) =>
                    request.kind == Kind::Call || request.at == Where::Waiting || request.abandoned,
                Some(_) => request.at == Where::Waiting,
                // A piece leaves with its picture, whose caller left when it was too old.
                None => request.kind == Kind::Frame && request.abandoned,
            }),
            Outcome::Abandoned => assert!(request.abandoned),
            Outcome::NoInstance => assert!(!has_instance),
            Outcome::Infeasible { retry_after } => {
                assert_eq!(self.arriving, Some(id), "refused after it was let in");
                assert_ne!(retry_after, Some(Duration::ZERO));
                let patient = request.kind == Kind::Frame && request.deadline_ms.is_none();
                assert!(!patient, "a frame that may wait for ever is refused");
            }
            Outcome::Lost => assert!(request.lost),
        }
    }

    /// Whether the next picture of a model would be late on whichever device is idle, and in time on one that is not.
    fn waits_for_another(&self, model: ModelKey) -> bool {
        let now = self.script.start + Duration::from_millis(self.script.now_ms);
        let model = &self.script.machine.models[&model];
        let next = model.shelf.deadlines(1).next();
        let Some(deadline) = next.and_then(Deadline::instant) else {
            return false;
        };
        let left = deadline.saturating_duration_since(now).as_secs_f64();
        let in_time = |instance: &Instance| {
            !instance.is_ejected() && instance.busy_for(now) + instance.buckets.expected(1) <= left
        };
        let (idle, busy): (Vec<_>, Vec<_>) = model
            .instances
            .values()
            .partition(|instance| instance.is_free());
        busy.into_iter().any(in_time) && !idle.into_iter().any(in_time)
    }

    /// Whatever could be done is being done.
    fn check_state(&self) {
        let machine = &self.script.machine;
        for (key, model) in &machine.models {
            let idle = self.devices.iter().any(|device| {
                device.model == key.0 && device.flights.is_empty() && !device.ejected
            });
            assert!(
                !(idle && model.shelf.len() > 0 && !self.waits_for_another(*key)),
                "a device idles beside a ready picture"
            );
            let waiting = self.requests.iter().any(|request| {
                request.model == key.0
                    && request.at == Where::Waiting
                    && (request.job != Job::Cut || self.may_open(request.priority))
            });
            assert!(
                !(waiting && machine.idle_workers > 0 && has_room(model)),
                "a worker idles beside an eligible request"
            );
        }
        let here = self
            .requests
            .iter()
            .filter(|request| request.at != Where::Gone);
        assert_eq!(machine.pending(), here.count());
    }

    /// Lets everything finish and checks that nothing is left.
    fn settle(&mut self) {
        let mut rounds = 0;
        while self
            .requests
            .iter()
            .any(|request| request.at != Where::Gone)
        {
            while let Some(index) = self.devices.iter().position(|device| device.ejected) {
                let device = self.devices.swap_remove(index);
                let actions = self.take_down(device, 0);
                actions.into_iter().for_each(|action| self.check(action));
            }
            for model in 0..2 {
                while !self.devices.iter().any(|device| device.model == model) {
                    self.play(&Step::InstanceUp);
                }
            }
            let done = Step::WorkerDone {
                nth: 0,
                fails: false,
                took_ms: 3,
                pieces: 2,
            };
            self.play(&done);
            let finished = Step::BatchDone {
                nth: 0,
                took_ms: Some(15),
            };
            self.play(&finished);
            rounds += 1;
            assert!(rounds < 10_000, "requests are stuck");
        }
        let machine = &self.script.machine;
        assert_eq!(machine.idle_workers, self.workers);
        assert!(machine.deadlines.is_empty());
        let taken: BTreeMap<ModelKey, usize> = machine
            .models
            .iter()
            .map(|(key, model)| (*key, model.shelf.taken()))
            .collect();
        assert!(taken.values().all(|taken| *taken == 0), "{taken:?}");
        assert!(machine.line.models().is_empty());
        assert_eq!(machine.cut.counts(), (0, 0));
    }
}

proptest! {
    // Enough to find what is wrong within some seconds of an unoptimised build; PROPTEST_CASES asks for more.
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn no_request_is_lost_doubled_starved_or_run_for_nobody(
        workers in 1..5usize,
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let mut world = World::new(workers);
        for step in &steps {
            world.play(step);
        }
        world.settle();
    }
}

fn cases() -> u32 {
    let asked = std::env::var("PROPTEST_CASES").ok();
    asked.and_then(|cases| cases.parse().ok()).unwrap_or(2_000)
}
