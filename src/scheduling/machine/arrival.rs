//! The door: who is let into the line. What cannot be answered in time is refused, by the machine's forecast.

use std::time::{Duration, Instant};

use super::{Machine, Stage, Tracked};
use crate::scheduling::event::{Action, Arrival, Outcome};
use crate::scheduling::line::{Cost, Place, Waiting};

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
            deadline,
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
            due,
        };
        let cost = self.expected_cost(place);
        let forecast = match self.foresee(place, cost, now) {
            Ok(forecast) => forecast,
            Err(retry_after) => {
                let outcome = Outcome::Infeasible { retry_after };
                actions.push(Action::DropWaiting(payload, outcome));
                return;
            }
        };
        self.line.push(
            id,
            Waiting {
                payload,
                place,
                arrived: now,
                cost,
            },
        );
        self.track(
            id,
            Tracked {
                place,
                deadline,
                stage: Stage::Waiting,
                cost: Cost::default(),
                forecast,
                requeued: false,
            },
        );
    }

    /// When a request that comes to `place` now will have run.
    ///
    /// # Errors
    /// How long after it is due, when that is too late.
    pub(super) fn foresee(
        &self,
        place: Place,
        cost: Cost,
        now: Instant,
    ) -> Result<Option<Instant>, Duration> {
        let left = place.due.saturating_duration_since(now).as_secs_f64();
        let off = match self.forecast_error.is_known() {
            true => self.forecast_error.upper().max(0.0),
            false => 0.0,
        };
        match self.forecast_last(place, cost, now) {
            None => return Ok(None),
            Some(last) if last.finished + off <= left => return Ok(None),
            Some(_) => {}
        }
        let Some(forecast) = self.forecast_turn(place, cost, now) else {
            return Ok(None);
        };
        let finished = Duration::try_from_secs_f64(forecast.finished).unwrap_or(Duration::MAX);
        let late = forecast.finished + off - left;
        if late > 0.0 {
            let late = Duration::try_from_secs_f64(late).unwrap_or(Duration::MAX);
            return Err(late.max(SHORTEST_RETRY));
        }
        Ok(now.checked_add(finished))
    }
}
