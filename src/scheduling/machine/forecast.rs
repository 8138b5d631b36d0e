//! When a request that comes now would be answered: what the door decides by.
//!
//! The forecast plays the line forward with what is known: who is served before the request under fair shares,
//! what their like have taken on a CPU worker and on the devices, what is on the shelf and in flight. Nobody
//! else is assumed to come, but for what others have been asking for ([`super::demand`]), and for what the
//! forecasts of the model have turned out to leave out ([`super::margin`]).

use std::cmp::Ordering;
use std::time::Instant;

use super::{Machine, Model};
use crate::scheduling::estimate::Estimate;
use crate::scheduling::event::{ModelKey, Priority};
use crate::scheduling::lane::Job;
use crate::scheduling::line::{BATCH_SHARE, Cost, Place};

/// Seconds from now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Forecast {
    /// Until the batch has run, of its last piece.
    pub(super) finished: f64,
}

/// What a request is expected to take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected {
    pub(super) cost: Cost,
    /// Pieces that it will be cut into, besides the one that it becomes itself.
    pub(super) pieces: usize,
    /// What these will cost.
    pub(super) to_come: Cost,
}

// === impl Expected ===

impl Expected {
    pub(super) fn total(&self) -> Cost {
        self.cost + self.to_come
    }
}

// === impl Machine ===

impl<W, R> Machine<W, R> {
    /// What a request of this place is expected to cost that is cut into so many pieces besides itself.
    pub(super) fn expected(&self, place: Place, pieces: usize) -> Expected {
        let mut to_come = Cost::default();
        if pieces > 0 {
            let job = Job::Piece;
            let each = self.expected_cost(Place { job, ..place });
            to_come.cpu = each.cpu * pieces as f64;
            to_come.device = each.device * pieces as f64;
        }
        Expected {
            cost: self.expected_cost(place),
            pieces,
            to_come,
        }
    }

    /// What a request of this place is expected to cost, without its pieces. Zero where nothing is known.
    pub(super) fn expected_cost(&self, place: Place) -> Cost {
        let model = self.models.get(&place.model);
        let known = |cost: &&Estimate| cost.is_known();
        let of_source = self.prepare_costs.peek(&(place.share.source, place.job));
        let of_job = model.and_then(|model| model.job_costs.get(&place.job));
        // Little of a picture's cost is that of a piece.
        let of_model = model.filter(|_| place.job != Job::Piece);
        let of_model = of_model.map(|model| &model.prepare_cost);
        let cpu = of_source.filter(known).or(of_job.filter(known));
        Cost {
            cpu: cpu.or(of_model).map_or(0.0, |cost| cost.mean()),
            device: model.map_or(0.0, |model| self.device_seconds(model)),
        }
    }

    /// Seconds a picture of `model`, when all its instances run full batches.
    fn device_seconds(&self, model: &Model<R>) -> f64 {
        let live = model.instances.values();
        let rate: f64 = live.map(|instance| 1.0 / instance.buckets.each()).sum();
        if rate > 0.0 { 1.0 / rate } else { 0.0 }
    }

    /// Seconds until the batch begins to run of a picture that has so many ahead of it.
    ///
    /// Batches run whole: who is in the same one does not have to be waited for. They are full, and the next goes to
    /// the instance that is free first; instances of a model are taken for alike.
    pub(super) fn device_start(&self, model: &Model<R>, ahead: f64, now: Instant) -> f64 {
        let Some((_, first)) = model.instances.first_key_value() else {
            return 0.0;
        };
        let live = model.instances.values();
        let mut free: Vec<f64> = live.map(|instance| instance.busy_for(now)).collect();
        let size = first.buckets.preferred();
        let batches = (ahead / size as f64) as usize;
        let (rounds, nth) = (batches / free.len(), batches % free.len());
        let (_, nth_free, _) = free.select_nth_unstable_by(nth, f64::total_cmp);
        *nth_free + rounds as f64 * first.buckets.expected(size)
    }

    /// When a request that comes to `place` now would have run, if all who wait went before it. Cheap.
    ///
    /// The line is taken for `stretch` times as long as it is known to be.
    pub(super) fn forecast_last(
        &self,
        place: Place,
        expected: Expected,
        stretch: f64,
        now: Instant,
    ) -> Option<Forecast> {
        self.forecast(place, expected, stretch, now, |model| {
            self.line.cost(model) + self.coming(model, |_| f64::INFINITY)
        })
    }

    /// When a request that comes to `place` now would have run, by its share's turn. Looks at every share.
    pub(super) fn forecast_turn(
        &self,
        place: Place,
        expected: Expected,
        stretch: f64,
        now: Instant,
    ) -> Option<Forecast> {
        self.forecast(place, expected, stretch, now, |model| {
            let ahead = self.line.ahead(model, place, expected.total());
            // As much of others' as the own share will have had by then, as in the line.
            let had = ahead.total() + expected.total().total();
            let coming = self.coming(model, |other| match other.priority.cmp(&place.priority) {
                Ordering::Less => f64::INFINITY,
                Ordering::Greater => 0.0,
                Ordering::Equal if other.share.source == place.share.source => f64::INFINITY,
                Ordering::Equal => had,
            });
            ahead + coming
        })
    }

    /// When a request would have run if nobody else were here.
    pub(super) fn forecast_alone(&self, place: Place, expected: Expected) -> Option<Forecast> {
        let model = self.models.get(&place.model)?;
        let pictures = 1 + expected.pieces;
        let live = &model.instances;
        let first = &live.first_key_value()?.1.buckets;
        let batches = expected.pieces / first.preferred();
        let rounds = batches / live.len();
        let device = rounds as f64 * first.expected(first.preferred());
        let cpu = expected.cost.cpu + expected.to_come.cpu / self.workers.max(1) as f64;
        let runs = live.values().map(|instance| {
            let buckets = &instance.buckets;
            buckets.at_most(buckets.cheapest(pictures))
        });
        Some(Forecast {
            finished: device.max(cpu) + runs.min_by(f64::total_cmp)?,
        })
    }

    /// What the pieces will cost of the pictures for `model` that are being decoded: of each no more than `most` seconds.
    fn coming(&self, model: ModelKey, most: impl Fn(Place) -> f64) -> Cost {
        let of_model = self.cut.coming().filter(|of| of.place.model == model);
        let costs = of_model.map(|of| {
            let pieces = self.expected(of.place, of.pieces).to_come;
            pieces.at_most(most(of.place))
        });
        costs.sum()
    }

    /// `None` while what is known is no more than a guess.
    fn forecast(
        &self,
        place: Place,
        expected: Expected,
        stretch: f64,
        now: Instant,
        ahead: impl Fn(ModelKey) -> Cost,
    ) -> Option<Forecast> {
        let model = self.models.get(&place.model)?;
        if !model.prepare_cost.is_known() {
            return None;
        }
        let own = ahead(place.model);
        // Or what its share has waiting at the part of the devices that it can count on, whoever else comes.
        let part = match place.priority {
            Priority::Interactive => self.demands.part(place.model, place.share.source, now),
            Priority::Batch => self.demands.left(place.model, now).max(BATCH_SHARE),
        };
        let own_device = own
            .device
            .max(self.line.own_ahead(place, expected.total()).device / part);
        let each = self.device_seconds(model);
        let in_line = stretch * own_device / each.max(f64::MIN_POSITIVE);
        // Before the last of its pieces run the others.
        let ahead_of_it = (model.shelf.taken() + expected.pieces) as f64 + in_line;
        let device = self.device_start(model, ahead_of_it, now);
        let cpu = stretch * self.cpu_wait(place.model, own.cpu, &ahead)
            + expected.cost.cpu
            + expected.to_come.cpu / self.workers.max(1) as f64;
        let waiting = model.shelf.taken() + self.line.requests(place.model) + 1 + expected.pieces;
        let live = model.instances.values();
        let run = live
            .map(|instance| {
                let buckets = &instance.buckets;
                buckets.at_most(buckets.cheapest(waiting))
            })
            .min_by(f64::total_cmp)?;
        Some(Forecast {
            finished: device.max(cpu) + run,
        })
    }

    /// Seconds until a worker takes up a request with `own` CPU seconds of its model ahead of it.
    ///
    /// Other models' requests ahead of it take workers too, but no faster than their devices make room for them.
    fn cpu_wait(&self, model: ModelKey, own: f64, ahead: impl Fn(ModelKey) -> Cost) -> f64 {
        let workers = self.workers.max(1) as f64;
        // A worker is half way through a picture, on average.
        let busy = match self.idle_workers {
            0 => {
                self.models
                    .get(&model)
                    .map_or(0.0, |model| model.prepare_cost.mean())
                    / 2.0
                    / workers
            }
            _ => 0.0,
        };
        let mut others: Vec<(f64, f64)> = Vec::new();
        for other in self.line.models() {
            if other == model {
                continue;
            }
            let cost = ahead(other);
            if cost.device > 0.0 {
                others.push((cost.cpu, cost.cpu / cost.device));
            }
        }
        let alone = busy + own / workers;
        // The longer the wait, the more of them it lets in; a few rounds settle it.
        const ROUNDS: usize = 4;
        let mut wait = alone;
        for _ in 0..ROUNDS {
            let let_in = others.iter().map(|(cpu, rate)| cpu.min(wait * rate));
            wait = alone + let_in.sum::<f64>() / workers;
        }
        wait
    }
}
