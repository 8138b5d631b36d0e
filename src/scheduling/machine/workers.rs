//! The CPU workers' side: who is prepared next, and what becomes of one that was.

use std::time::{Duration, Instant};

use super::dispatch::has_room;
use super::forecast::device_start;
use super::learned::Learned;
use super::{Machine, Stage, Tracked, why_abandoned};
use crate::scheduling::event::{Action, Outcome, Priority, RequestId};
use crate::scheduling::lane::{Job, Lane};
use crate::scheduling::line::{Next, Place};
use crate::scheduling::shelf::{Ready, Turn};

impl<W, R> Machine<W, R> {
    /// Gives waiting requests to idle workers, as long as their shelves have room.
    pub(super) fn prepare(&mut self, now: Instant, actions: &mut Vec<Action<W, R>>) {
        while self.idle_workers > 0 {
            let Some(next) = self.next_in_line() else {
                return;
            };
            let (id, place) = (next.id, next.place);
            if self.is_hopeless(id, place, now) {
                self.drop_queued(id, Outcome::Expired, now, actions);
                continue;
            }
            let Some(waiting) = self.line.serve(next) else {
                return;
            };
            let tracked = self.untrack(id);
            if let Some(model) = self.models.get_mut(&place.model) {
                model.shelf.reserve();
            }
            if place.job == Job::Cut {
                let pieces = tracked.map_or(0, |tracked| tracked.pieces);
                self.cut.open(id, place, pieces);
            }
            self.idle_workers -= 1;
            let turn = Turn(self.next_turn);
            self.next_turn += 1;
            if let Some(tracked) = tracked {
                let tracked = Tracked {
                    stage: Stage::Preparing {
                        turn,
                        abandoned: false,
                    },
                    cost: waiting.cost,
                    ..tracked
                };
                self.tracked.insert(id, tracked);
            }
            actions.push(Action::Prepare {
                id,
                payload: waiting.payload,
                waited: now.saturating_duration_since(waiting.arrived),
            });
        }
    }

    /// Whose turn it is among those whose model's shelf has room; a picture that is to be cut must be one that may be
    /// opened besides.
    fn next_in_line(&self) -> Option<Next> {
        let with_room = self.models.iter().filter(|(_, model)| has_room(model));
        let lanes = with_room.flat_map(|(model, _)| {
            let jobs = [Job::Picture, Job::Piece, Job::Cut];
            jobs.map(|job| Lane { model: *model, job })
        });
        let mut open: Vec<Lane> = lanes.collect();
        let uncut = || open.iter().filter(|lane| lane.job != Job::Cut).copied();
        match [Priority::Interactive, Priority::Batch].map(|of| self.cut.may_open(of)) {
            [true, true] => self.line.next(&open, &open),
            [true, false] => self.line.next(&open, &uncut().collect::<Vec<Lane>>()),
            _ => {
                open.retain(|lane| lane.job != Job::Cut);
                self.line.next(&open, &open)
            }
        }
    }

    /// Whether it would be ready to run too late to be answered, with all that is on the shelf and in flight before it.
    ///
    /// What is prepared for nothing costs a worker, and what runs for nothing costs a device that is short of time as
    /// it is. The last run is taken to be a long one for its kind.
    pub(super) fn is_hopeless(&self, id: RequestId, place: Place, now: Instant) -> bool {
        let Some(tracked) = self.tracked.get(&id) else {
            return false;
        };
        let deadline = tracked.deadline.instant();
        let (Some(deadline), Some(model)) = (deadline, self.models.get(&place.model)) else {
            return false;
        };
        let taken = model.shelf.taken();
        let together = taken + self.line.requests(place.model);
        let live = model.instances.values();
        let run = live
            .map(|instance| {
                let size = instance.buckets.cheapest(together);
                instance.buckets.at_most(size)
            })
            .min_by(f64::total_cmp)
            .unwrap_or_default();
        if tracked.probe {
            return false;
        }
        let prepare = self.prepare_at_least(place, now);
        // The last of what it is cut into has to run in time.
        let left = deadline.saturating_duration_since(now).as_secs_f64();
        let device = device_start(model, (taken + tracked.pieces) as f64, left, now).begins;
        deadline.saturating_duration_since(now).as_secs_f64() < prepare.max(device) + run
    }

    /// The worker that prepared `id` is free again, and the slot of `id` is free. Returns its turn, or `None` when its
    /// caller left meanwhile.
    pub(super) fn leave_worker(&mut self, id: RequestId) -> Option<(Tracked, Option<Turn>)> {
        let tracked = self.tracked.remove(&id)?;
        let Stage::Preparing { turn, abandoned } = tracked.stage else {
            debug_assert!(false, "only a request in preparation comes back");
            self.tracked.insert(id, tracked);
            return None;
        };
        self.idle_workers += 1;
        if let Some(model) = self.models.get_mut(&tracked.place.model) {
            model.shelf.release();
        }
        self.cut.came_back(id);
        self.cut.piece_prepared(&tracked);
        Some((tracked, (!abandoned).then_some(turn)))
    }

    pub(super) fn prepared(
        &mut self,
        id: RequestId,
        payload: R,
        pieces: Vec<(RequestId, W)>,
        took: Duration,
        now: Instant,
        actions: &mut Vec<Action<W, R>>,
    ) {
        let Some((mut tracked, turn)) = self.leave_worker(id) else {
            debug_assert!(false, "a request is prepared once, after it was asked for");
            return;
        };
        let took = took.as_secs_f64();
        self.learn_prepare_cost(tracked.place, took, now);
        let outcome = match turn {
            None => {
                let outcome = why_abandoned(tracked.deadline, now);
                if outcome == Outcome::Expired {
                    self.learn_margin(&tracked, false, now);
                }
                outcome
            }
            Some(_) if !self.is_live(tracked.place.model) => Outcome::NoInstance,
            Some(turn) => {
                self.line.charge(tracked.place, took - tracked.cost.cpu);
                tracked.cost.cpu = took;
                tracked.stage = Stage::Ready { turn };
                self.line_up(id, &mut tracked, pieces, now);
                self.put_on_shelf(id, turn, payload, tracked, now);
                return;
            }
        };
        self.close_uncut(&tracked);
        self.settle(&tracked, took);
        self.cut.forget(id, &tracked);
        actions.push(Action::DropReady(payload, outcome));
        let pieces = pieces.into_iter();
        actions.extend(pieces.map(|(_, piece)| Action::DropWaiting(piece, outcome)));
    }

    /// An expired one is taken out again at once, by `expire`.
    pub(super) fn put_on_shelf(
        &mut self,
        id: RequestId,
        turn: Turn,
        payload: R,
        tracked: Tracked,
        now: Instant,
    ) {
        let Some(model) = self.models.get_mut(&tracked.place.model) else {
            return;
        };
        model.shelf.put(
            turn,
            Ready {
                id,
                payload,
                deadline: tracked.deadline,
                ready_at: now,
            },
        );
        self.track(id, tracked);
    }

    pub(super) fn learn_prepare_cost(&mut self, place: Place, took: f64, now: Instant) {
        if let Some(model) = self.models.get_mut(&place.model) {
            model.prepare_cost.observe(took);
            let of_job = model.job_costs.entry(place.job);
            of_job.or_insert(Learned::NOTHING).observe(took, now);
        }
        let source = (place.share.source, place.job);
        self.prepare_costs
            .get_or_insert_mut(source, || Learned::NOTHING)
            .observe(took, now);
    }
}
