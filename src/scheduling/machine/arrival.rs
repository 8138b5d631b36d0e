//! The door: who is let into the line. What cannot be answered in time is refused, by the machine's forecast.

use std::time::{Duration, Instant};

use super::forecast::Expected;
use super::instance::Instance;
use super::learned::FRESH;
use super::margin::Margin;
use super::{Machine, Stage, Tracked};
use crate::scheduling::deadline::Deadline;
use crate::scheduling::event::{Action, Arrival, Kind, ModelKey, Outcome, Priority};
use crate::scheduling::lane::Job;
use crate::scheduling::line::{Cost, Place, Waiting};

/// What takes longer than anybody has is tried no more often than this: some twenty tries make a new estimate.
const PROBE_EVERY: Duration = Duration::from_millis(100);

/// Nobody need come back sooner: forecasts are no finer than this.
const SHORTEST_RETRY: Duration = Duration::from_millis(1);

impl<W, R> Machine<W, R> {
    pub(super) fn arrive(
        &mut self,
        arrival: Arrival<W>,
        now: Instant,
        actions: &mut Vec<Action<W, R>>,
    ) {
        let Arrival {
            id,
            model,
            share,
            priority,
            kind,
            deadline,
            pieces,
            payload,
        } = arrival;
        if !self.is_live(model) {
            actions.push(Action::DropWaiting(payload, Outcome::NoInstance));
            return;
        }
        if deadline.has_passed(now) {
            actions.push(Action::DropWaiting(payload, Outcome::Expired));
            return;
        }
        let due = deadline.instant().unwrap_or(now + self.max_wait);
        let place = Place {
            priority,
            share,
            model,
            job: match pieces {
                None => Job::Picture,
                Some(_) => Job::Cut,
            },
            due,
        };
        let pieces = pieces.unwrap_or(0);
        let expected = self.expected(place, pieces);
        let device = expected.total().device;
        if priority == Priority::Interactive {
            self.demands.offered(model, share.source, device, now);
        }
        // What has no deadline was promised nothing that the margin would have to keep, and waits for as long as its own
        // picture takes.
        let (stretch, own) = match deadline == Deadline::NEVER {
            true => (1.0, self.expected(place, 0)),
            false => (self.stretch(place, now), expected),
        };
        let waits_for_ever = kind == Kind::Frame && deadline == Deadline::NEVER;
        let foreseen = match waits_for_ever {
            true => Ok(()),
            false => self.foresee(place, own, stretch, now),
        };
        let probe = foreseen.is_err() && self.may_probe(model, now);
        if let Err(retry_after) = foreseen
            && !probe
        {
            if retry_after.is_none() && priority == Priority::Interactive {
                // What cannot be served at all takes nothing from anybody.
                self.demands.offered(model, share.source, -device, now);
            }
            let outcome = Outcome::Infeasible { retry_after };
            actions.push(Action::DropWaiting(payload, outcome));
            return;
        }
        if !probe && let Some(model) = self.models.get_mut(&model) {
            model.let_in = Some(now);
        }
        self.line.push(
            id,
            Waiting {
                payload,
                place,
                arrived: now,
                cost: expected.cost,
                to_come: expected.to_come,
            },
        );
        self.track(
            id,
            Tracked {
                place,
                kind,
                deadline,
                stage: Stage::Waiting,
                cost: Cost::default(),
                requeued: false,
                probe,
                pieces,
                picture: None,
            },
        );
    }

    /// Whether a request that is too late by all that is known is let in all the same, to see what it takes.
    ///
    /// What is known of devices is only learned from what runs. So when the model has nothing to do at all, and has let nobody
    /// in for a second, one is, every now and then: a device that was slow for a while would otherwise refuse everybody for
    /// ever.
    fn may_probe(&mut self, key: ModelKey, now: Instant) -> bool {
        let waiting = self.line.requests(key);
        let Some(model) = self.models.get_mut(&key) else {
            return false;
        };
        let idle = waiting == 0
            && model.shelf.taken() == 0
            && model.instances.values().all(Instance::is_free);
        let since = |then: Option<Instant>, least: Duration| {
            then.is_none_or(|then| now.saturating_duration_since(then) >= least)
        };
        let probes = idle && since(model.let_in, FRESH) && since(model.probed, PROBE_EVERY);
        if probes {
            model.probed = Some(now);
        }
        probes
    }

    /// By how much forecasts of the line before a place are stretched, so that what is let in is in time.
    fn stretch(&self, place: Place, now: Instant) -> f64 {
        let model = self.models.get(&place.model);
        let margin = model.and_then(|model| model.margins.get(&place.priority));
        margin.map_or(1.0, |margin| margin.stretch(now))
    }

    /// Whether a request that comes to `place` now will have run when it is due, with a line that is `stretch` times as long.
    ///
    /// # Errors
    /// How long after it is due, when that is too late; nothing when it would be, were it the only one.
    fn foresee(
        &self,
        place: Place,
        expected: Expected,
        stretch: f64,
        now: Instant,
    ) -> Result<(), Option<Duration>> {
        let left = place.due.saturating_duration_since(now).as_secs_f64();
        match self.forecast_last(place, expected, stretch, now) {
            None => return Ok(()),
            Some(last) if last.finished <= left => return Ok(()),
            Some(_) => {}
        }
        let Some(forecast) = self.forecast_turn(place, expected, stretch, now) else {
            return Ok(());
        };
        let late = forecast.finished - left;
        if late <= 0.0 {
            return Ok(());
        }
        let alone = self.forecast_alone(place, expected, now);
        if alone.is_some_and(|alone| alone.finished > left) {
            return Err(None);
        }
        let late = Duration::try_from_secs_f64(late).unwrap_or(Duration::MAX);
        Err(Some(late.max(SHORTEST_RETRY)))
    }

    /// Takes in whether a request that was let in with a deadline was answered before it.
    pub(super) fn learn_margin(&mut self, tracked: &Tracked, in_time: bool, now: Instant) {
        if tracked.deadline == Deadline::NEVER || tracked.probe || !self.cut.tells(tracked, in_time)
        {
            return;
        }
        if let Some(model) = self.models.get_mut(&tracked.place.model) {
            let margin = model.margins.entry(tracked.place.priority);
            margin.or_insert(Margin::new(now)).observe(in_time, now);
        }
    }
}
