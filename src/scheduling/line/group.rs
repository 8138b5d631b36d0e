//! An inner node of the line: those who share alike, each with a line of its own.

use std::collections::BTreeMap;
use std::hash::Hash;

use super::backlog::{Backlog, Cost};
use super::{Place, Waiting};
use crate::scheduling::event::{ModelKey, RequestId, Share, SourceKey, StreamKey};
use crate::scheduling::fair::Fair;
use crate::scheduling::lane::Lane;

/// A part of the line. A request is found again by its place.
pub(super) trait Node<W> {
    fn new() -> Self;

    /// What waits here.
    fn backlog(&self) -> &Backlog;

    fn push(&mut self, id: RequestId, waiting: Waiting<W>);

    /// Whose turn it is among those in the `open` lanes, which are in order.
    fn next(&self, open: &[Lane]) -> Option<(RequestId, Place)>;

    /// Takes out a request, because it is `served` or because it leaves.
    fn take(&mut self, id: RequestId, place: Place, served: bool) -> Option<Waiting<W>>;

    /// Charges the share at `place` so many seconds; negative ones are given back.
    fn charge(&mut self, place: Place, seconds: f64);

    /// What of the backlog of `model` would be served before a request that came to `place` now and cost `cost`,
    /// if nobody else came.
    fn ahead(&self, model: ModelKey, place: Place, cost: Cost) -> Cost;

    /// All who wait for `model`.
    fn list(&self, model: ModelKey, into: &mut Vec<(RequestId, Place)>);
}

/// Names a member of a group.
pub(super) trait Member: Copy + Ord + Hash {
    /// Members without anything waiting that are remembered for what they have had, some hundred bytes each.
    const MAX_IDLE: usize;

    fn of(share: Share) -> Self;
}

impl Member for SourceKey {
    /// More than come one after another in a second, and are away for as long as it takes to answer them.
    const MAX_IDLE: usize = 1_024;

    fn of(share: Share) -> Self {
        share.source
    }
}

impl Member for StreamKey {
    /// A source has no more streams open at a time, but for a few; each of those remembered may have so many.
    const MAX_IDLE: usize = 64;

    fn of(share: Share) -> Self {
        share.stream
    }
}

/// Members that share alike. One without anything waiting is kept while its turns are remembered.
#[derive(Debug)]
pub(super) struct Group<K, N> {
    turns: Fair<K>,
    /// In order, so that sums over them come out the same each time.
    members: BTreeMap<K, N>,
    backlog: Backlog,
}

// === impl Group ===

impl<K: Member, N> Group<K, N> {
    /// Nothing waits, and nothing is worked on: what anybody has had is forgotten.
    pub(super) fn begin_anew(&mut self) {
        self.turns.begin_anew();
        self.members.clear();
    }

    /// What of a member's own backlog would be served before a request of its that came to `place` now.
    pub(super) fn own_ahead<W>(&self, place: Place, cost: Cost) -> Cost
    where
        N: Node<W>,
    {
        let member = self.members.get(&K::of(place.share));
        member.map_or(Cost::default(), |member| {
            member.ahead(place.model, place, cost)
        })
    }
}

impl<W, K: Member, N: Node<W>> Node<W> for Group<K, N> {
    fn new() -> Self {
        Self {
            turns: Fair::new(K::MAX_IDLE),
            members: BTreeMap::new(),
            backlog: Backlog::default(),
        }
    }

    fn backlog(&self) -> &Backlog {
        &self.backlog
    }

    fn push(&mut self, id: RequestId, waiting: Waiting<W>) {
        let (lane, key) = (waiting.place.lane(), K::of(waiting.place.share));
        self.backlog.add(lane, waiting.costs());
        self.turns.join(key, lane);
        let member = self.members.entry(key).or_insert_with(N::new);
        member.push(id, waiting);
    }

    fn next(&self, open: &[Lane]) -> Option<(RequestId, Place)> {
        let (key, open) = self.turns.next(open)?;
        self.members.get(&key)?.next(&open)
    }

    fn take(&mut self, id: RequestId, place: Place, served: bool) -> Option<Waiting<W>> {
        let key = K::of(place.share);
        let member = self.members.get_mut(&key)?;
        let waiting = member.take(id, place, served)?;
        self.backlog.subtract(place.lane(), waiting.costs());
        if served {
            self.turns.serve(key, place.model);
            self.turns.charge(key, place.model, waiting.cost.total());
        }
        if !member.backlog().has(place.lane()) {
            self.turns.leave(key, place.lane());
        }
        if self.turns.len() < self.members.len() {
            self.members.retain(|key, _| self.turns.knows(*key));
        }
        Some(waiting)
    }

    fn charge(&mut self, place: Place, seconds: f64) {
        let key = K::of(place.share);
        self.turns.charge(key, place.model, seconds);
        if let Some(member) = self.members.get_mut(&key) {
            member.charge(place, seconds);
        }
    }

    fn ahead(&self, model: ModelKey, place: Place, cost: Cost) -> Cost {
        let key = K::of(place.share);
        let own = self
            .members
            .get(&key)
            .map_or(Cost::default(), |member| member.ahead(model, place, cost));
        // Served when the others have had as much as the own share will have had by then.
        let had = own.total() + cost.total() + self.turns.lead(key, model);
        let others = self.members.iter().filter(|(other, _)| **other != key);
        let before = others.map(|(other, member)| {
            let may_have = had - self.turns.lead(*other, model);
            member.backlog().cost(model).at_most(may_have)
        });
        before.fold(own, |sum, cost| sum + cost)
    }

    fn list(&self, model: ModelKey, into: &mut Vec<(RequestId, Place)>) {
        for member in self.members.values() {
            member.list(model, into);
        }
    }
}
