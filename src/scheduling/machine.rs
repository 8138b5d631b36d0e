//! The state machine: `(state, event, now) -> (state, actions)`.
//!
//! It owns who waits, who is being prepared, who is ready and what each instance has in hand, and decides on every
//! event who is let in, what leaves, what is prepared next and what runs where. It reads no clock and starts
//! nothing; whoever drives it passes the time in and carries the actions out (see [`super::batcher`]).
//!
//! | policy | where |
//! |---|---|
//! | whose turn it is: priorities, fair shares, earliest due | [`super::line`], [`super::fair`] |
//! | who is let in: those who can be answered in time | [`arrival`], [`forecast`] |
//! | late decisions: a request stays encoded until a CPU worker is free **and** its model's shelf has room | [`workers`] |
//! | which pictures run together, where | [`dispatch`], [`super::bucket`] |
//! | how many pictures are being cut, and what becomes of the pieces | [`cut`] |
//! | which instance hangs; what is lost with one is tried once more | [`instance`], [`instances`] |
//! | nothing for nobody: what cannot be answered in time any more, or has lost its caller, goes before it is prepared, and again before it runs | here, [`workers`] |
//!
//! Invariants, kept under random scripts by the tests: each payload that comes in goes out in exactly one action,
//! or again if its instance was lost; slots and workers taken are given back; no bucket holds more than its
//! size; a free instance with something eligible is never left idle.

mod arrival;
mod cut;
mod demand;
mod dispatch;
mod forecast;
mod instance;
mod instances;
mod learned;
mod margin;
mod workers;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use lru::LruCache;

use super::deadline::Deadline;
use super::estimate::Estimate;
use super::event::{
    Action, Event, InstanceKey, Kind, ModelKey, Outcome, Priority, RequestId, SourceKey,
};
use super::lane::Job;
use super::line::{Cost, Line, Place};
use super::shelf::{Shelf, Turn};
use cut::CutPictures;
use demand::Demands;
use instance::Instance;
use learned::Learned;
use margin::Margin;

/// What the machine goes by.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// CPU workers that prepare requests.
    pub workers: usize,
    /// How long a request without a deadline may have to wait; one that would have to wait longer is refused.
    pub max_wait: Duration,
}

/// Sources, and things of theirs, that are remembered apart for what they ask and what that takes: more than come in a
/// second. They are learned again within some pictures.
const MAX_SOURCES: NonZeroUsize = NonZeroUsize::new(2_048).unwrap();

/// The state.
#[derive(Debug)]
pub struct Machine<W, R> {
    workers: usize,
    max_wait: Duration,
    idle_workers: usize,
    line: Line<W>,
    models: BTreeMap<ModelKey, Model<R>>,
    /// Which model each instance runs.
    runs: BTreeMap<InstanceKey, ModelKey>,
    /// Every request that waits, is prepared, is ready or runs.
    tracked: HashMap<RequestId, Tracked>,
    /// The deadlines of those that wait or are ready.
    deadlines: BTreeSet<(Instant, RequestId)>,
    /// What a CPU worker takes for a job of a source, in seconds, of those who last sent something. The rest are taken
    /// for average.
    prepare_costs: LruCache<(SourceKey, Job), Learned>,
    cut: CutPictures,
    demands: Demands,
    next_turn: u64,
}

#[derive(Debug)]
struct Model<R> {
    shelf: Shelf<R>,
    instances: BTreeMap<InstanceKey, Instance>,
    /// What a CPU worker takes to prepare anything, in seconds.
    prepare_cost: Estimate,
    /// What it takes for each job.
    job_costs: HashMap<Job, Learned>,
    /// By how much forecasts stretch the line, for each priority: what is too late for one is not what is too late for the
    /// other. None before anybody was let in with a deadline.
    margins: HashMap<Priority, Margin>,
    /// When a request was last let in that was foreseen to be in time.
    let_in: Option<Instant>,
    /// When one was last let in only to see what it takes.
    probed: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Tracked {
    place: Place,
    kind: Kind,
    deadline: Deadline,
    stage: Stage,
    /// What its share was charged for it.
    cost: Cost,
    /// An instance was lost with it.
    requeued: bool,
    /// It was let in to see what it takes, and may well be late.
    probe: bool,
    /// Pieces that it is expected to be cut into, besides the one that it becomes itself.
    pieces: usize,
    /// The picture of which it is a piece, by that one's first.
    picture: Option<RequestId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting,
    /// With a CPU worker. A caller who leaves now is remembered: the worker still has to come back.
    Preparing {
        turn: Turn,
        abandoned: bool,
    },
    Ready {
        turn: Turn,
    },
    /// With an instance, until that reports.
    Running {
        turn: Turn,
        abandoned: bool,
    },
}

// === impl Policy ===

impl Policy {
    /// The most pictures that are decoded and kept for their pieces at a time, those that are being decoded included.
    /// Two at least, so that one is decoded while the other's pieces are worked on.
    pub fn open_pictures(&self) -> usize {
        self.workers.max(2)
    }
}

// === impl Machine ===

impl<W, R> Machine<W, R> {
    /// A machine with idle CPU workers and no instance.
    pub fn new(policy: Policy) -> Self {
        Self {
            workers: policy.workers,
            max_wait: policy.max_wait,
            idle_workers: policy.workers,
            line: Line::new(),
            models: BTreeMap::new(),
            runs: BTreeMap::new(),
            tracked: HashMap::new(),
            deadlines: BTreeSet::new(),
            prepare_costs: LruCache::new(MAX_SOURCES),
            cut: CutPictures::new(policy.open_pictures()),
            demands: Demands::new(),
            next_turn: 0,
        }
    }

    /// Takes in one event at `now` and appends what is to be done to `actions`, in order.
    ///
    /// `now` must not go backwards from call to call.
    pub fn handle(&mut self, event: Event<W, R>, now: Instant, actions: &mut Vec<Action<W, R>>) {
        match event {
            Event::Arrived(arrival) => self.arrive(arrival, now, actions),
            Event::Abandoned(id) => self.abandon(id, now, actions),
            Event::Prepared {
                id,
                payload,
                pieces,
                took,
            } => self.prepared(id, payload, pieces, took, now, actions),
            Event::PrepareFailed { id, took } => {
                // It paid for what it cost, and what failed says nothing about what works.
                if let Some((tracked, _)) = self.leave_worker(id) {
                    self.close_uncut(&tracked);
                    self.settle(&tracked, took.as_secs_f64());
                    self.cut.forget(id, &tracked);
                }
            }
            Event::InstanceUp(key, placement) => self.instance_up(key, placement),
            Event::BatchFinished { instance, took } => self.batch_finished(instance, took, now),
            Event::InstanceDown { instance, returned } => {
                self.instance_down(instance, returned, now, actions);
            }
            Event::Tick => {}
        }
        self.expire(now, actions);
        self.eject(now, actions);
        // Finishing comes before starting, and makes the room in which to start.
        self.dispatch(now, actions);
        self.prepare(now, actions);
        if self.tracked.is_empty() {
            self.line.begin_anew();
        }
    }

    /// The next instant at which time alone changes something, if there is one: send a [`Event::Tick`] then.
    pub fn next_tick(&self) -> Option<Instant> {
        let deadline = self.deadlines.first().map(|(instant, _)| *instant);
        let delayed = self.models.values().filter_map(|model| {
            let oldest = model.shelf.oldest_ready_at()?;
            let live = model.instances.values();
            let delay = live
                .filter(|instance| instance.is_free())
                .map(|instance| instance.max_queue_delay)
                .min()?;
            Some(oldest + delay)
        });
        let live = self
            .models
            .values()
            .flat_map(|model| model.instances.values());
        let hangs = live.filter_map(Instance::hangs_at);
        deadline.into_iter().chain(delayed).chain(hangs).min()
    }

    /// Requests that have come in and not gone out: waiting, being prepared, ready or running.
    pub fn pending(&self) -> usize {
        self.tracked.len()
    }

    fn abandon(&mut self, id: RequestId, now: Instant, actions: &mut Vec<Action<W, R>>) {
        match self.cut.pieces(id).cloned() {
            None => self.abandon_one(id, now, actions),
            Some(pieces) => {
                let pieces = pieces.into_iter();
                pieces.for_each(|piece| self.abandon_one(piece, now, actions));
            }
        }
    }

    fn abandon_one(&mut self, id: RequestId, now: Instant, actions: &mut Vec<Action<W, R>>) {
        match self.tracked.get_mut(&id) {
            None => {} // answered
            Some(Tracked {
                stage: Stage::Preparing { abandoned, .. } | Stage::Running { abandoned, .. },
                ..
            }) => *abandoned = true,
            Some(tracked) => {
                let outcome = why_abandoned(tracked.deadline, now);
                self.drop_queued(id, outcome, now, actions);
            }
        }
    }

    /// The request is done with: its share pays what it cost in the end, which is `seconds`, and no more.
    fn settle(&mut self, tracked: &Tracked, seconds: f64) {
        self.line
            .charge(tracked.place, seconds - tracked.cost.total());
    }

    fn is_live(&self, model: ModelKey) -> bool {
        let model = self.models.get(&model);
        model.is_some_and(|model| !model.instances.is_empty())
    }

    fn expire(&mut self, now: Instant, actions: &mut Vec<Action<W, R>>) {
        while let Some(&(deadline, id)) = self.deadlines.first() {
            if deadline > now {
                return;
            }
            self.drop_queued(id, Outcome::Expired, now, actions);
        }
    }

    /// Lets go of a request that waits or is ready.
    fn drop_queued(
        &mut self,
        id: RequestId,
        outcome: Outcome,
        now: Instant,
        actions: &mut Vec<Action<W, R>>,
    ) {
        let Some(tracked) = self.untrack(id) else {
            return;
        };
        if outcome == Outcome::Expired {
            self.learn_margin(&tracked, false, now);
        }
        match tracked.stage {
            Stage::Waiting => {
                self.cut.piece_prepared(&tracked);
                if let Some(waiting) = self.line.remove(id, tracked.place) {
                    actions.push(Action::DropWaiting(waiting.payload, outcome));
                }
            }
            Stage::Ready { turn } => {
                self.settle(&tracked, tracked.cost.cpu);
                let model = self.models.get_mut(&tracked.place.model);
                if let Some(ready) = model.and_then(|model| model.shelf.remove(turn)) {
                    actions.push(Action::DropReady(ready.payload, outcome));
                }
            }
            Stage::Preparing { .. } | Stage::Running { .. } => {
                debug_assert!(false, "what a worker or an instance has cannot be dropped");
                self.tracked.insert(id, tracked);
                return;
            }
        }
        self.cut.forget(id, &tracked);
    }

    fn track(&mut self, id: RequestId, tracked: Tracked) {
        if let Some(instant) = tracked.expires() {
            self.deadlines.insert((instant, id));
        }
        self.tracked.insert(id, tracked);
    }

    fn untrack(&mut self, id: RequestId) -> Option<Tracked> {
        let tracked = self.tracked.remove(&id)?;
        if let Some(instant) = tracked.expires() {
            self.deadlines.remove(&(instant, id));
        }
        Some(tracked)
    }
}

// === impl Tracked ===

impl Tracked {
    /// When it is let go where it is, if ever.
    fn expires(&self) -> Option<Instant> {
        match (self.kind, self.stage) {
            (Kind::Call, _) | (Kind::Frame, Stage::Waiting) => self.deadline.instant(),
            (Kind::Frame, _) => None,
        }
    }
}

/// A caller who leaves when the deadline has passed leaves because of it.
fn why_abandoned(deadline: Deadline, now: Instant) -> Outcome {
    if deadline.has_passed(now) {
        Outcome::Expired
    } else {
        Outcome::Abandoned
    }
}

#[cfg(test)]
mod tests;
