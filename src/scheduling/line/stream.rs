//! A leaf of the line: the requests of one stream, earliest due first.

use std::collections::BTreeMap;
use std::time::Instant;

use super::backlog::{Backlog, Cost};
use super::group::Node;
use super::{Place, Waiting};
use crate::scheduling::event::{ModelKey, RequestId};
use crate::scheduling::lane::Lane;

/// The requests of one stream.
#[derive(Debug)]
pub(super) struct StreamLine<W> {
    lanes: BTreeMap<Lane, ByDue<W>>,
    backlog: Backlog,
}

type ByDue<W> = BTreeMap<(Instant, RequestId), Waiting<W>>;

// === impl StreamLine ===

impl<W> Node<W> for StreamLine<W> {
    fn new() -> Self {
        Self {
            lanes: BTreeMap::new(),
            backlog: Backlog::default(),
        }
    }

    fn backlog(&self) -> &Backlog {
        &self.backlog
    }

    fn push(&mut self, id: RequestId, waiting: Waiting<W>) {
        let place = waiting.place;
        self.backlog.add(place.lane(), waiting.costs());
        let lane = self.lanes.entry(place.lane()).or_default();
        lane.insert((place.due, id), waiting);
    }

    fn next(&self, open: &[Lane]) -> Option<(RequestId, Place)> {
        let first = |lane: &Lane| self.lanes.get(lane)?.first_key_value();
        let ((_, id), waiting) = open
            .iter()
            .filter_map(first)
            .min_by_key(|(rank, _)| **rank)?;
        Some((*id, waiting.place))
    }

    fn take(&mut self, id: RequestId, place: Place, _served: bool) -> Option<Waiting<W>> {
        let lane = self.lanes.get_mut(&place.lane())?;
        let waiting = lane.remove(&(place.due, id))?;
        if lane.is_empty() {
            self.lanes.remove(&place.lane());
        }
        self.backlog.subtract(place.lane(), waiting.costs());
        Some(waiting)
    }

    fn charge(&mut self, _place: Place, _seconds: f64) {}

    fn ahead(&self, model: ModelKey, place: Place, _cost: Cost) -> Cost {
        let ahead = self.lanes.range(Lane::of(model)).map(|(key, lane)| {
            // As good as always: who comes later is due later.
            let last = lane.last_key_value();
            if last.is_some_and(|((due, _), _)| *due <= place.due) {
                return self.backlog.cost_in(*key);
            }
            let earlier = lane.range(..=(place.due, RequestId(u64::MAX)));
            earlier.map(|(_, waiting)| waiting.costs()).sum()
        });
        ahead.sum()
    }

    fn list(&self, model: ModelKey, into: &mut Vec<(RequestId, Place)>) {
        for (_, lane) in self.lanes.range(Lane::of(model)) {
            into.extend(lane.iter().map(|((_, id), waiting)| (*id, waiting.place)));
        }
    }
}
