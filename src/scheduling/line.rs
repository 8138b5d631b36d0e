//! The waiting line: requests of all models that are still encoded, and whose turn it is.
//!
//! | file | job |
//! |---|---|
//! | [`group`] | those who share alike: the sources of a class, the streams of a source |
//! | [`stream`] | the requests of one stream, earliest due first |
//! | [`backlog`] | what a request costs, and what all that wait do |
//!
//! From the outside in: interactive work goes before batch work, which is given a twentieth of what both want, so that it
//! does not starve, and whatever interactive work leaves; inside a class the sources share alike, inside a source its streams do (by cost, see
//! [`super::fair`]); inside a stream the earliest due goes first. A request is eligible while its model has room
//! for it; one that is not holds up nobody.
//!
//! The line is bounded by who lets requests in (admission, before the machine), not here.

mod backlog;
mod group;
mod stream;

use std::collections::BTreeSet;
use std::time::Instant;

use super::event::{ModelKey, Priority, RequestId, Share, SourceKey, StreamKey};
use super::lane::{Job, Lane};
pub(super) use backlog::Cost;
use group::{Group, Node};
use stream::StreamLine;

/// What batch work is given at least while interactive work waits too, as a share of all.
pub(super) const BATCH_SHARE: f64 = 1.0 / 20.0;

/// Where a request stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) priority: Priority,
    pub(super) share: Share,
    pub(super) model: ModelKey,
    pub(super) job: Job,
    /// Its rank inside its stream: its deadline, or for want of one how long it may wait at most.
    pub(super) due: Instant,
}

/// One request in the line.
#[derive(Debug)]
pub(super) struct Waiting<W> {
    pub(super) payload: W,
    pub(super) place: Place,
    pub(super) arrived: Instant,
    /// What it is expected to cost, and its share is charged when it is served.
    pub(super) cost: Cost,
    /// What the pieces will cost that it is to be cut into; they will be charged for themselves.
    pub(super) to_come: Cost,
}

/// Whose turn it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Next {
    pub(super) id: RequestId,
    pub(super) place: Place,
    /// One of the other priority could have been served as well.
    passes_over: bool,
}

/// Everybody who waits.
#[derive(Debug)]
pub(super) struct Line<W> {
    interactive: Class<W>,
    batch: Class<W>,
    /// What batch work is owed for the interactive work that went before it, in seconds of cost. Negative when it
    /// had more than that. Only what could have been served instead counts: batch work that fills what nobody else can use
    /// takes nothing from other batch work. So it never is more than what one request costs, either way.
    owed: f64,
}

type Class<W> = Group<SourceKey, Group<StreamKey, StreamLine<W>>>;

// === impl Place ===

impl Place {
    pub(super) fn lane(self) -> Lane {
        Lane {
            model: self.model,
            job: self.job,
        }
    }
}

// === impl Waiting ===

impl<W> Waiting<W> {
    /// What it is expected to cost with all its pieces.
    fn costs(&self) -> Cost {
        self.cost + self.to_come
    }
}

// === impl Line ===

impl<W> Line<W> {
    pub(super) fn new() -> Self {
        Self {
            interactive: Class::new(),
            batch: Class::new(),
            owed: 0.0,
        }
    }

    pub(super) fn push(&mut self, id: RequestId, waiting: Waiting<W>) {
        self.class_mut(waiting.place.priority).push(id, waiting);
    }

    /// The request whose turn it is among those in the `open` lanes, of batch work among those in `open_to_batch`.
    pub(super) fn next(&self, open: &[Lane], open_to_batch: &[Lane]) -> Option<Next> {
        let interactive = self.interactive.next(open);
        let batch = self.batch.next(open_to_batch);
        let passes_over = interactive.is_some() && batch.is_some();
        let (id, place) = match self.owed > 0.0 {
            true => batch.or(interactive),
            false => interactive.or(batch),
        }?;
        Some(Next {
            id,
            place,
            passes_over,
        })
    }

    /// Takes out the request whose turn it is to serve it; its share is charged what it is expected to cost.
    pub(super) fn serve(&mut self, next: Next) -> Option<Waiting<W>> {
        let class = self.class_mut(next.place.priority);
        let waiting = class.take(next.id, next.place, true)?;
        if next.passes_over {
            let cost = waiting.cost.total();
            self.owed += match next.place.priority {
                Priority::Interactive => cost * BATCH_SHARE / (1.0 - BATCH_SHARE),
                Priority::Batch => -cost,
            };
        }
        Some(waiting)
    }

    /// Nothing waits, and nothing is worked on: what anybody has had, or is owed, is forgotten.
    pub(super) fn begin_anew(&mut self) {
        self.interactive.begin_anew();
        self.batch.begin_anew();
        self.owed = 0.0;
    }

    /// Takes out a request that leaves.
    pub(super) fn remove(&mut self, id: RequestId, place: Place) -> Option<Waiting<W>> {
        self.class_mut(place.priority).take(id, place, false)
    }

    /// Takes out all requests for `model`, earliest due first.
    pub(super) fn drain(&mut self, model: ModelKey) -> Vec<(RequestId, Waiting<W>)> {
        let mut places = Vec::new();
        self.interactive.list(model, &mut places);
        self.batch.list(model, &mut places);
        places.sort_by_key(|(id, place)| (place.due, *id));
        let take = |(id, place)| Some((id, self.remove(id, place)?));
        places.into_iter().filter_map(take).collect()
    }

    /// Charges the share at `place` more, or less, than was expected.
    pub(super) fn charge(&mut self, place: Place, seconds: f64) {
        self.class_mut(place.priority).charge(place, seconds);
    }

    /// Models for which somebody waits.
    pub(super) fn models(&self) -> BTreeSet<ModelKey> {
        let interactive = self.interactive.backlog().models();
        interactive.chain(self.batch.backlog().models()).collect()
    }

    /// How many wait for `model`.
    pub(super) fn requests(&self, model: ModelKey) -> usize {
        self.interactive.backlog().requests(model) + self.batch.backlog().requests(model)
    }

    /// What those who wait for `model` will cost.
    pub(super) fn cost(&self, model: ModelKey) -> Cost {
        self.interactive.backlog().cost(model) + self.batch.backlog().cost(model)
    }

    /// What of that would be served before a request that came to `place` now and cost `cost`, if nobody else came.
    pub(super) fn ahead(&self, model: ModelKey, place: Place, cost: Cost) -> Cost {
        match place.priority {
            Priority::Interactive => self.interactive.ahead(model, place, cost),
            Priority::Batch => {
                self.batch.ahead(model, place, cost) + self.interactive.backlog().cost(model)
            }
        }
    }

    /// What of that is of its own share, and so is not served before those that come meanwhile: the own source's, of batch
    /// work all that is.
    pub(super) fn own_ahead(&self, place: Place, cost: Cost) -> Cost {
        match place.priority {
            Priority::Interactive => self.interactive.own_ahead(place, cost),
            Priority::Batch => self.batch.ahead(place.model, place, cost),
        }
    }

    fn class_mut(&mut self, priority: Priority) -> &mut Class<W> {
        match priority {
            Priority::Interactive => &mut self.interactive,
            Priority::Batch => &mut self.batch,
        }
    }
}
