//! Requests, from the caller's sending to how they end.

use super::{AFTER_REFUSAL, Happening, Job, World};
use crate::scheduling::{
    Arrival, Deadline, Event, Kind, ModelKey, RequestId, Share, SourceKey, StreamKey,
};
use crate::simulation::agenda::Nanoseconds;
use crate::simulation::caller::Caller;
use crate::simulation::counts::{Ending, Refusal};
use crate::simulation::work::MOST_REQUESTS;

/// A request from the caller's sending until the server has let go of it; or a piece of one, which has a name, a
/// caller and marks of its own.
#[derive(Debug, Clone)]
pub(in crate::simulation) struct Request {
    pub(in crate::simulation) id: RequestId,
    pub(in crate::simulation) caller: usize,
    pub(in crate::simulation) group: usize,
    pub(in crate::simulation) sent: Nanoseconds,
    pub(in crate::simulation) deadline: Option<Nanoseconds>,
    pub(in crate::simulation) arrived: Nanoseconds,
    pub(in crate::simulation) taken_up: Nanoseconds,
    pub(in crate::simulation) ready: Nanoseconds,
    pub(in crate::simulation) ran_from: Nanoseconds,
    pub(in crate::simulation) ran_to: Nanoseconds,
    /// Seconds of a worker and of a device that it took.
    pub(in crate::simulation) cost: f64,
    pub(super) admitted: bool,
    pub(super) permit: bool,
    /// The caller has its answer, or has gone.
    pub(super) over: bool,
    /// Of a piece: the place of its picture.
    pub(super) picture: Option<usize>,
    /// What of it the server still has: itself and its pieces.
    pub(super) parts: usize,
    /// What of that is still to be prepared.
    pub(super) unprepared: usize,
}

// === impl World ===

impl World<'_> {
    pub(super) fn send_later(&mut self, caller: usize) {
        if let Some(at) = self.callers[caller].next() {
            self.agenda.put(at, Happening::Sends(caller));
        }
    }

    pub(super) fn ask_later(&mut self, caller: usize, pause: Nanoseconds) {
        if let Some(at) = self.callers[caller].again(self.now + pause) {
            self.agenda.put(at, Happening::Asks(caller));
        }
    }

    pub(super) fn send(&mut self, caller: usize) {
        let Caller {
            group,
            source,
            model,
            ..
        } = self.callers[caller];
        let id = self.next_id();
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
            picture: None,
            parts: 1,
            unprepared: 1,
        };
        let place = self.keep(request);
        self.ledger.offered(group, self.now);
        let bounds = &self.scenario.admission;
        let full = self.permits >= bounds.max_requests.unwrap_or(MOST_REQUESTS)
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

    pub(super) fn next_id(&mut self) -> RequestId {
        let id = RequestId(self.next_id);
        self.next_id += 1;
        id
    }

    /// Puts a request where there is a place.
    pub(super) fn keep(&mut self, request: Request) -> usize {
        match self.vacant.pop() {
            Some(place) => {
                self.requests[place] = request;
                place
            }
            None => {
                self.requests.push(request);
                self.requests.len() - 1
            }
        }
    }

    pub(super) fn arrive(&mut self, place: usize) {
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
            pieces: (caller.source.tiles > 1).then(|| caller.source.tiles - 1),
            payload: place,
        }));
    }

    /// A request, or a piece of one, is done: with the last piece its caller has the answer.
    pub(super) fn answer(&mut self, place: usize) {
        let picture = self.picture(place);
        let Request {
            ready,
            ran_from,
            ran_to,
            ..
        } = self.requests[place];
        let request = &mut self.requests[picture];
        if request.parts == 1 && !request.over {
            // Its times are those of the piece that it waited for.
            (request.ready, request.ran_from, request.ran_to) = (ready, ran_from, ran_to);
            // The very instant of the deadline is in time.
            let in_time = request.deadline.is_none_or(|at| self.now <= at);
            self.over(picture, Ending::Answered { in_time });
        }
        self.part_gone(place);
    }

    pub(super) fn give_up(&mut self, place: usize, id: RequestId) {
        let request = &self.requests[place];
        if request.id != id || request.over {
            return;
        }
        self.over(place, Ending::Expired);
        self.inbox.push_back(Event::Abandoned(id));
    }

    pub(super) fn give_back_permit(&mut self, place: usize) {
        let request = &mut self.requests[place];
        if std::mem::take(&mut request.permit) {
            self.permits -= 1;
            self.permits_of[request.caller] -= 1;
        }
    }

    /// The server does no more for a request, or for a piece of one, whose picture is of no use to anybody then.
    pub(super) fn let_go(&mut self, place: usize, ending: Ending) {
        let picture = self.picture(place);
        if !self.requests[picture].over {
            self.over(picture, ending);
            if self.requests[picture].parts > 1 {
                let id = self.requests[picture].id;
                self.inbox.push_back(Event::Abandoned(id));
            }
        }
        self.part_gone(place);
    }

    /// Its caller knows how a request ended.
    pub(super) fn over(&mut self, place: usize, ending: Ending) {
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
