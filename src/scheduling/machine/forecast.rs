//! When a request that comes now would be answered: what the door decides by.
//!
//! The forecast plays the line forward with what is known: who is served before the request under fair shares,
//! what their like have taken on a CPU worker and on the devices, what is on the shelf and in flight. Nobody
//! else is assumed to come, but for what others have been asking for ([`super::demand`]), and for what the
//! forecasts of the model have turned out to leave out ([`super::margin`]).

use std::time::Instant;

use super::{Machine, Model};
use crate::scheduling::event::ModelKey;
use crate::scheduling::line::{Cost, Place};

/// Seconds from now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Forecast {
    /// Until the batch has run.
    pub(super) finished: f64,
}

impl<W, R> Machine<W, R> {
    /// What a request of this place is expected to cost. Zero where nothing is known.
    pub(super) fn expected_cost(&self, place: Place) -> Cost {
        let model = self.models.get(&place.model);
        let of_source = self.prepare_costs.get(&place.share.source);
        let of_model = model.map(|model| &model.prepare_cost);
        let cpu = of_source.filter(|cost| cost.is_known()).or(of_model);
        Cost {
            cpu: cpu.map_or(0.0, |cost| cost.mean()),
            device: model.map_or(0.0, |model| self.device_seconds(model)),
        }
    }

    /// Seconds a picture of `model`, when all its instances run full batches.
    fn device_seconds(&self, model: &Model<R>) -> f64 {
        let live = model
            .instances
            .iter()
            .filter_map(|key| self.instances.get(key));
        let rate: f64 = live.map(|instance| 1.0 / instance.buckets.each()).sum();
        if rate > 0.0 { 1.0 / rate } else { 0.0 }
    }

    /// Seconds until the batch begins to run of a picture that has so many ahead of it.
    ///
    /// Batches run whole: who is in the same one does not have to be waited for. They are full, and the next goes to
    /// the instance that is free first; instances of a model are taken for alike.
    pub(super) fn device_start(&self, model: &Model<R>, ahead: f64, now: Instant) -> f64 {
        let live = model.instances.iter();
        let live: Vec<_> = live.filter_map(|key| self.instances.get(key)).collect();
        let Some(first) = live.first() else {
            return 0.0;
        };
        let mut free: Vec<f64> = live.iter().map(|instance| instance.busy_for(now)).collect();
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
        cost: Cost,
        stretch: f64,
        now: Instant,
    ) -> Option<Forecast> {
        self.forecast(place, cost, stretch, now, |model| self.line.cost(model))
    }

    /// When a request that comes to `place` now would have run, by its share's turn. Looks at every share.
    pub(super) fn forecast_turn(
        &self,
        place: Place,
        cost: Cost,
        stretch: f64,
        now: Instant,
    ) -> Option<Forecast> {
        self.forecast(place, cost, stretch, now, |model| {
            self.line.ahead(model, place, cost)
        })
    }

    /// `None` while what is known is no more than a guess.
    fn forecast(
        &self,
        place: Place,
        cost: Cost,
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
        let part = self.demands.part(place.model, place.share.source, now);
        let own_device = own
            .device
            .max(self.line.own_ahead(place, cost).device / part);
        let live = || {
            model
                .instances
                .iter()
                .filter_map(|key| self.instances.get(key))
        };
        let each = self.device_seconds(model);
        let in_line = stretch * own_device / each.max(f64::MIN_POSITIVE);
        let ahead_of_it = model.shelf.taken() as f64 + in_line;
        let device = self.device_start(model, ahead_of_it, now);
        let cpu = stretch * self.cpu_wait(place.model, own.cpu, &ahead) + cost.cpu;
        let waiting = model.shelf.taken() + self.line.requests(place.model) + 1;
        let run = live()
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
        for other in self.line.models().filter(|other| *other != model) {
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
