//! When a request that comes now would be answered: what the door decides by.
//!
//! The forecast plays the line forward with what is known: who is served before the request under fair shares,
//! what their like have taken on a CPU worker and on the devices, what is on the shelf and in flight. Nobody
//! else is assumed to come, but for what others have been asking for ([`super::demand`]), and for what the
//! forecasts of the model have turned out to leave out ([`super::margin`]).

use std::cmp::Ordering;
use std::time::Instant;

use super::instance::Instance;
use super::learned::Learned;
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
        let of_source = self.prepare_costs.peek(&(place.share.source, place.job));
        let of_job = model.and_then(|model| model.job_costs.get(&place.job));
        // Little of a picture's cost is that of a piece.
        let of_model = model.filter(|_| place.job != Job::Piece);
        let of_model = of_model.map(|model| &model.prepare_cost);
        let cpu = of_source.and_then(Learned::mean);
        let cpu = cpu.or_else(|| of_job.and_then(Learned::mean));
        let cpu = cpu.or_else(|| of_model.map(Estimate::mean));
        Cost {
            cpu: cpu.unwrap_or_default(),
            device: model.map_or(0.0, |model| self.device_seconds(model)),
        }
    }

    /// What preparing a request of this place takes at least. Zero where nothing is known, or has been seen lately.
    pub(super) fn prepare_at_least(&self, place: Place, now: Instant) -> f64 {
        let of_source = self.prepare_costs.peek(&(place.share.source, place.job));
        let at_least = of_source.and_then(|cost| cost.at_least(now));
        let of_job = || {
            let model = self.models.get(&place.model)?;
            model.job_costs.get(&place.job)?.at_least(now)
        };
        at_least.or_else(of_job).unwrap_or_default()
    }

    /// The same with what it is to be cut into, which several workers can be busy with.
    fn whole_prepare_at_least(&self, place: Place, pieces: usize, now: Instant) -> f64 {
        let job = Job::Piece;
        let each = match pieces {
            0 => 0.0,
            _ => self.prepare_at_least(Place { job, ..place }, now),
        };
        self.prepare_at_least(place, now) + each * pieces as f64 / self.workers.max(1) as f64
    }

    /// Seconds a picture of `model`, when all its instances run full batches.
    fn device_seconds(&self, model: &Model<R>) -> f64 {
        let live = model.instances.values();
        let rate: f64 = live.map(|instance| 1.0 / instance.buckets.each()).sum();
        if rate > 0.0 { 1.0 / rate } else { 0.0 }
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
    pub(super) fn forecast_alone(
        &self,
        place: Place,
        expected: Expected,
        now: Instant,
    ) -> Option<Forecast> {
        let model = self.models.get(&place.model)?;
        let pictures = 1 + expected.pieces;
        let live = model.instances.values();
        let trains: Vec<Train<'_>> = live.map(Train::idle).collect();
        let device = last_of(&trains, expected.pieces as f64).begins;
        let cpu = self.whole_prepare_at_least(place, expected.pieces, now);
        Some(Forecast {
            finished: device.max(cpu) + shortest_run(model, pictures)?,
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
        let left = place.due.saturating_duration_since(now).as_secs_f64();
        let device = device_start(model, ahead_of_it, left, now);
        let cpu = stretch * self.cpu_wait(place.model, own.cpu, &ahead)
            + self.whole_prepare_at_least(place, expected.pieces, now);
        let waiting = model.shelf.taken() + self.line.requests(place.model) + 1 + expected.pieces;
        // Whoever is prepared after a device is free for it is run by whichever is best then.
        let run = match device.instance.filter(|_| device.begins >= cpu) {
            Some(instance) => instance.at_most(waiting),
            None => shortest_run(model, waiting)?,
        };
        Some(Forecast {
            finished: device.begins.max(cpu) + run,
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

/// Where a picture of a model runs, and when, that has so many ahead of it.
///
/// Batches run whole: who is in the same one does not have to be waited for. They are full, and the next goes to
/// the instance that is free first. Of instances of several kinds those count that run a picture within `left`
/// seconds, if there are any: the others are given none that would be late there (see [`super::dispatch`]).
pub(super) fn device_start<R>(model: &Model<R>, ahead: f64, left: f64, now: Instant) -> Seat<'_> {
    let in_time = |instance: &&Instance| instance.buckets.expected(1) <= left;
    let any = model.instances.values().any(|instance| in_time(&instance));
    let live = model.instances.values();
    let mut trains: Vec<Train<'_>> = live
        .filter(|instance| !any || in_time(instance))
        .map(|instance| Train::new(instance, now))
        .collect();
    trains.sort_by(|a, b| a.leaves.total_cmp(&b.leaves));
    last_of(&trains, ahead)
}

/// The batches of an instance, one behind another: full, and as long as such a batch usually takes.
#[derive(Debug, Clone, Copy)]
struct Train<'a> {
    instance: &'a Instance,
    /// Seconds until the first of them begins.
    leaves: f64,
    /// Seconds from one to the next.
    every: f64,
    pictures: f64,
}

// === impl Train ===

impl<'a> Train<'a> {
    fn new(instance: &'a Instance, now: Instant) -> Self {
        Self {
            leaves: instance.busy_for(now),
            ..Self::idle(instance)
        }
    }

    /// As if it had nothing to do.
    fn idle(instance: &'a Instance) -> Self {
        let size = instance.buckets.preferred();
        Self {
            instance,
            leaves: 0.0,
            every: instance.buckets.expected(size).max(f64::MIN_POSITIVE),
            pictures: size as f64,
        }
    }

    /// How many pictures have begun to run by then.
    fn begun(&self, by: f64) -> f64 {
        match by < self.leaves {
            true => 0.0,
            false => (((by - self.leaves) / self.every).floor() + 1.0) * self.pictures,
        }
    }

    /// When the picture begins that has so many ahead of it, if all take this train.
    fn begins(&self, ahead: f64) -> f64 {
        self.leaves + (ahead / self.pictures).floor() * self.every
    }
}

/// Where a picture will run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seat<'a> {
    /// Seconds until then.
    pub(super) begins: f64,
    instance: Option<&'a Instance>,
}

/// Where a picture runs that has so many ahead of it, each of which takes the train that leaves first, and of those that leave
/// together the fastest. At once, without any train.
fn last_of<'a>(trains: &[Train<'a>], ahead: f64) -> Seat<'a> {
    let begun = |by: f64| trains.iter().map(|train| train.begun(by)).sum::<f64>();
    let firsts = trains.iter().map(|train| train.leaves);
    let first = firsts.fold(f64::INFINITY, f64::min);
    let alone = trains.iter().map(|train| train.begins(ahead));
    let mut late = alone.fold(f64::INFINITY, f64::min);
    let mut early = first;
    if !late.is_finite() {
        return Seat {
            begins: 0.0,
            instance: None,
        };
    }
    // Halved until it is known to a thousandth of a batch or less: forecasts are no finer.
    const HALVINGS: usize = 24;
    if begun(first) > ahead {
        (early, late) = (-1.0, first);
    } else {
        for _ in 0..HALVINGS {
            let middle = (early + late) / 2.0;
            match begun(middle) > ahead {
                true => late = middle,
                false => early = middle,
            }
        }
    }
    let leave = |train: &&Train<'a>| train.begun(late) > train.begun(early);
    let mut leaving: Vec<&Train<'a>> = trains.iter().filter(leave).collect();
    leaving.sort_by(|a, b| a.every.total_cmp(&b.every));
    let mut places = begun(early);
    let takes = |train: &&Train<'a>| {
        places += train.begun(late) - train.begun(early);
        places > ahead
    };
    let last = leaving.last().copied();
    let train = leaving.into_iter().find(takes).or(last);
    Seat {
        begins: late,
        instance: train.map(|train| train.instance),
    }
}

/// The shortest that a run of a batch takes of which so many wait, on any instance; at most, but for one time in a hundred.
fn shortest_run<R>(model: &Model<R>, waiting: usize) -> Option<f64> {
    let live = model.instances.values();
    let runs = live.map(|instance| instance.at_most(waiting));
    runs.min_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduling::bucket::BatchBucket;
    use crate::scheduling::event::Placement;
    use std::time::Duration;

    fn instance(buckets: &[(usize, u64)]) -> Instance {
        let bucket = |&(size, ms)| BatchBucket {
            size,
            cost: Duration::from_millis(ms),
        };
        Instance::new(Placement {
            model: ModelKey(0),
            buckets: buckets.iter().map(bucket).collect(),
            max_queue_delay: Duration::ZERO,
            pipelined: false,
            watchdog: Duration::from_secs(1),
        })
        .unwrap()
    }

    /// Each picture takes the train that leaves first, one after another.
    fn one_by_one(trains: &[Train<'_>], ahead: usize) -> f64 {
        let mut trains: Vec<(Train<'_>, f64)> = trains.iter().map(|train| (*train, 0.0)).collect();
        for _ in 0..ahead {
            let next = trains
                .iter_mut()
                .min_by(|(a, _), (b, _)| a.leaves.total_cmp(&b.leaves));
            let (train, aboard) = next.unwrap();
            *aboard += 1.0;
            if *aboard == train.pictures {
                train.leaves += train.every;
                *aboard = 0.0;
            }
        }
        let leaves = trains.iter().map(|(train, _)| train.leaves);
        leaves.fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn pictures_take_whichever_of_unlike_instances_is_free_first() {
        let (slow, fast) = (instance(&[(1, 100)]), instance(&[(1, 6), (32, 40)]));
        let train = |instance, leaves| Train {
            leaves,
            ..Train::idle(instance)
        };
        let (slow_train, fast_train) = (train(&slow, 0.02), train(&fast, 0.05));
        for trains in [
            &[slow_train, fast_train][..],
            &[fast_train, slow_train],
            &[fast_train],
            &[slow_train, slow_train, fast_train],
        ] {
            for ahead in [0, 1, 2, 31, 32, 33, 34, 100, 1_000] {
                let is = last_of(trains, ahead as f64).begins;
                let should = one_by_one(trains, ahead);
                assert!(
                    (is - should).abs() < 1e-4,
                    "{ahead} ahead: {is}, not {should}"
                );
            }
        }
        assert_eq!(last_of(&[], 5.0).begins, 0.0);
        // The one that leaves first is the slow one's, and then the fast one's.
        let lands = |ahead| {
            let seat = last_of(&[fast_train, slow_train], ahead);
            std::ptr::eq(seat.instance.unwrap(), &raw const slow)
        };
        assert!(lands(0.0) && !lands(1.0) && !lands(32.0));
        // Of two that are idle the fast one is filled first.
        let idle = [train(&slow, 0.0), train(&fast, 0.0)];
        let lands = |ahead| std::ptr::eq(last_of(&idle, ahead).instance.unwrap(), &raw const slow);
        assert!(!lands(0.0) && !lands(31.0) && lands(32.0));
    }
}
