//! [`Fair`]: whose turn it is among those who share alike, by what each has cost so far.
//!
//! Start-time fair queueing (Goyal, Vin and Cheng, 1996): each member has a virtual time, which advances by the
//! cost of what it is served; the one that is furthest behind is next. A member that had nothing to do is set
//! to the time of the one served last, so that nobody saves up turns. Costs may be corrected later, when they
//! are known: what was guessed too low is paid with the next turn.
//!
//! Members wait in [lanes](Lane), so that the next can be asked for among those that could be served: a lane that is
//! held up holds up nobody in another.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;

use super::lane::Lane;

/// Seconds of cost. Ordered totally, since it is never NaN.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct VirtualTime(f64);

impl Eq for VirtualTime {}

impl PartialOrd for VirtualTime {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for VirtualTime {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// Members without anything waiting that are remembered for being ahead. Some kilobytes; a flood of sources that each
/// come once costs no more.
const MAX_IDLE: usize = 256;

/// Those who share alike.
#[derive(Debug)]
pub(super) struct Fair<K> {
    members: HashMap<K, Member>,
    /// For each lane, who waits in it, the one furthest behind first. No lane is empty.
    lanes: BTreeMap<Lane, BTreeSet<(VirtualTime, K)>>,
    /// The virtual time of the member served last.
    clock: VirtualTime,
    /// Members that wait in no lane. They are kept while they are ahead of the clock, so that leaving and coming
    /// back does not pay.
    idle: usize,
}

#[derive(Debug, Default)]
struct Member {
    time: VirtualTime,
    /// Lanes in which it waits. Short: most are for one model.
    lanes: Vec<Lane>,
}

// === impl Fair ===

impl<K: Copy + Ord + Hash> Fair<K> {
    pub(super) fn new() -> Self {
        Self {
            members: HashMap::new(),
            lanes: BTreeMap::new(),
            clock: VirtualTime::default(),
            idle: 0,
        }
    }

    /// `key` has something waiting in `lane` from now on.
    pub(super) fn join(&mut self, key: K, lane: Lane) {
        let clock = self.clock;
        let known = self.members.contains_key(&key);
        let member = self.members.entry(key).or_default();
        if member.lanes.contains(&lane) {
            return;
        }
        if member.lanes.is_empty() {
            member.time = member.time.max(clock);
            if known {
                self.idle -= 1;
            }
        }
        member.lanes.push(lane);
        self.lanes
            .entry(lane)
            .or_default()
            .insert((member.time, key));
    }

    /// `key` has nothing waiting in `lane` any more.
    pub(super) fn leave(&mut self, key: K, lane: Lane) {
        let Some(member) = self.members.get_mut(&key) else {
            return;
        };
        let Some(at) = member.lanes.iter().position(|waits| *waits == lane) else {
            return;
        };
        member.lanes.swap_remove(at);
        if let Some(waiting) = self.lanes.get_mut(&lane) {
            waiting.remove(&(member.time, key));
            if waiting.is_empty() {
                self.lanes.remove(&lane);
            }
        }
        if !member.lanes.is_empty() {
            return;
        }
        self.idle += 1;
        if self.lanes.is_empty() {
            // Nobody waits: there is nothing to share, and all begin anew.
            let times = self.members.values().map(|member| member.time);
            self.clock = times.fold(self.clock, VirtualTime::max);
            self.members.clear();
            self.idle = 0;
        } else if self.idle > MAX_IDLE {
            self.forget();
        }
    }

    /// Who is furthest behind in `lane`.
    pub(super) fn first(&self, lane: Lane) -> Option<(VirtualTime, K)> {
        self.lanes.get(&lane)?.first().copied()
    }

    /// `key` is served now: the clock is at its time from here on.
    pub(super) fn serve(&mut self, key: K) {
        if let Some(member) = self.members.get(&key) {
            self.clock = self.clock.max(member.time);
        }
    }

    /// Advances the time of `key` by `cost` seconds, or takes it back where it was charged too much.
    pub(super) fn charge(&mut self, key: K, cost: f64) {
        let Some(member) = self.members.get_mut(&key) else {
            return; // long idle, and not ahead of anybody
        };
        let before = member.time;
        member.time = VirtualTime(before.0 + cost);
        for lane in &member.lanes {
            if let Some(waiting) = self.lanes.get_mut(lane) {
                waiting.remove(&(before, key));
                waiting.insert((member.time, key));
            }
        }
    }

    /// By how many seconds of cost `key` is ahead of the clock. A newcomer is not.
    pub(super) fn lead(&self, key: K) -> f64 {
        let time = self.members.get(&key).map(|member| member.time);
        time.map_or(0.0, |time| (time.0 - self.clock.0).max(0.0))
    }

    /// Lets go of the idle members that are not ahead of the clock, and of the half of the others that are least so:
    /// sources that come once must not be kept for ever.
    fn forget(&mut self) {
        let idle = self
            .members
            .values()
            .filter(|member| member.lanes.is_empty());
        let mut times: Vec<VirtualTime> = idle.map(|member| member.time).collect();
        let middle = times.len() / 2;
        let (_, median, _) = times.select_nth_unstable(middle);
        let bar = self.clock.max(*median);
        self.members
            .retain(|_, member| !member.lanes.is_empty() || member.time > bar);
        let idle = self
            .members
            .values()
            .filter(|member| member.lanes.is_empty());
        self.idle = idle.count();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduling::event::ModelKey;
    use crate::scheduling::lane::Job;

    const LANE: Lane = lane(0);

    const fn lane(model: u32) -> Lane {
        Lane {
            model: ModelKey(model),
            job: Job::Picture,
        }
    }

    /// Serves `turns` times at `cost(key)` seconds each, everybody always having more, and counts.
    fn served(
        fair: &mut Fair<u32>,
        turns: usize,
        cost: impl Fn(u32) -> f64,
    ) -> BTreeMap<u32, usize> {
        let mut counts = BTreeMap::new();
        for _ in 0..turns {
            let (_, key) = fair.first(LANE).unwrap();
            fair.serve(key);
            fair.charge(key, cost(key));
            *counts.entry(key).or_default() += 1;
        }
        counts
    }

    #[test]
    fn members_are_served_in_inverse_proportion_to_their_cost() {
        let mut fair = Fair::new();
        (0..3).for_each(|key| fair.join(key, LANE));
        let counts = served(&mut fair, 1_100, |key| [0.001, 0.002, 0.004][key as usize]);
        // 4 : 2 : 1, give or take a turn.
        assert!((628..=630).contains(&counts[&0]), "{counts:?}");
        assert!((313..=316).contains(&counts[&1]), "{counts:?}");
    }

    #[test]
    fn nobody_saves_up_turns_by_being_away() {
        let mut fair = Fair::new();
        fair.join(1, LANE);
        served(&mut fair, 1_000, |_| 1.0);
        fair.join(2, LANE);
        let counts = served(&mut fair, 100, |_| 1.0);
        assert!((49..=51).contains(&counts[&2]), "{counts:?}");
    }

    #[test]
    fn leaving_and_coming_back_does_not_pay() {
        let mut fair = Fair::new();
        (1..=2).for_each(|key| fair.join(key, LANE));
        let mut turns = 0;
        for _ in 0..1_000 {
            let (_, key) = fair.first(LANE).unwrap();
            fair.serve(key);
            fair.charge(key, 1.0);
            if key == 1 {
                turns += 1;
                fair.leave(1, LANE);
                fair.join(1, LANE);
            }
        }
        assert!((499..=501).contains(&turns), "{turns}");
    }

    #[test]
    fn a_lane_that_is_held_up_holds_up_nobody_in_another() {
        let mut fair = Fair::new();
        let other = lane(1);
        fair.join(1, LANE);
        fair.join(2, LANE);
        fair.join(2, other);
        fair.charge(2, 5.0);
        assert_eq!(fair.first(other).unwrap().1, 2);
        fair.leave(2, other);
        assert_eq!(fair.first(other), None);
        assert_eq!(fair.first(LANE).unwrap().1, 1);
    }

    #[test]
    fn members_that_came_once_are_not_kept_for_ever() {
        let mut fair = Fair::new();
        fair.join(u32::MAX, LANE);
        for key in 0..10_000 {
            fair.join(key, LANE);
            fair.serve(key);
            fair.charge(key, 0.001);
            fair.leave(key, LANE);
        }
        assert!(fair.members.len() < 300, "{}", fair.members.len());
    }
}
