//! [`Fair`]: whose turn it is among those who share alike, by what each has cost so far.
//!
//! Start-time fair queueing (Goyal, Vin and Cheng, 1996), for each model by itself: in the line of a model each member has a
//! virtual time, which advances by the cost of what it is served there; the one that is furthest behind is next. A
//! member that had nothing to do there is set to the time of the one served last, so that nobody saves up turns; one
//! that is ahead stays so while it is away, so that sending one request after another costs as much as sending them at
//! once. Costs may be corrected later, when they are known: what was guessed too low is paid with the next turn.
//!
//! Among models it is the turn of the one whose next member has had least in all. What somebody has of one model's devices
//! takes nothing from others who want another model, so it does not set him back in that line; CPU workers serve all
//! models, and of them he has had more.
//!
//! Members wait in [lanes](Lane), so that the next can be asked for among those that could be served: a lane that is
//! held up holds up nobody in another. All begin anew when there is nothing left to share, waiting or being worked on
//! ([`Fair::begin_anew`]).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;

use super::event::ModelKey;
use super::lane::Lane;

/// By how many seconds of cost one may be behind the others in all. Who is held up by slow devices for an hour does not keep the
/// workers to himself for an hour once they are faster.
const MAX_CREDIT: f64 = 1.0;

/// Seconds of cost. Ordered totally, since it is never NaN.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct VirtualTime(f64);

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

/// Those who share alike.
#[derive(Debug)]
pub(super) struct Fair<K> {
    members: HashMap<K, Member>,
    /// For each lane, who waits in it, the one furthest behind first. No lane is empty.
    lanes: BTreeMap<Lane, BTreeSet<(VirtualTime, K)>>,
    clocks: Clocks,
    /// Members that wait in no lane. They are kept while they are ahead, so that leaving and coming back does not pay.
    idle: usize,
    /// As many of them are kept at most.
    max_idle: usize,
}

/// The virtual times of those who were served last.
#[derive(Debug, Default)]
struct Clocks {
    of_models: BTreeMap<ModelKey, VirtualTime>,
    total: VirtualTime,
}

#[derive(Debug, Default)]
struct Member {
    /// What it has had in all.
    total: VirtualTime,
    /// Short: most are for one model.
    in_models: Vec<InModel>,
}

#[derive(Debug)]
struct InModel {
    model: ModelKey,
    time: VirtualTime,
    /// Lanes in which it waits.
    lanes: Vec<Lane>,
}

// === impl Fair ===

impl<K: Copy + Ord + Hash> Fair<K> {
    /// Nobody yet. Members without anything waiting are remembered for being ahead, but no more than `max_idle`: a flood
    /// of those that come once costs no more than that.
    pub(super) fn new(max_idle: usize) -> Self {
        Self {
            members: HashMap::new(),
            lanes: BTreeMap::new(),
            clocks: Clocks::default(),
            idle: 0,
            max_idle,
        }
    }

    /// Members that are known, waiting or not.
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    pub(super) fn knows(&self, key: K) -> bool {
        self.members.contains_key(&key)
    }

    /// Nothing waits, and nothing is worked on: nobody is ahead of anybody any more.
    pub(super) fn begin_anew(&mut self) {
        debug_assert!(self.lanes.is_empty(), "somebody waits");
        self.members.clear();
        self.idle = 0;
        self.clocks = Clocks::default();
    }

    /// `key` has something waiting in `lane` from now on.
    pub(super) fn join(&mut self, key: K, lane: Lane) {
        let known = self.members.contains_key(&key);
        let member = self.members.entry(key).or_default();
        if member.is_idle() {
            member.total = member.total.max(self.clocks.total);
            self.idle -= usize::from(known);
        }
        let clock = self.clocks.of(lane.model);
        let of_model = member.in_model(lane.model);
        if of_model.lanes.contains(&lane) {
            return;
        }
        if of_model.lanes.is_empty() {
            of_model.time = of_model.time.max(clock);
        }
        of_model.lanes.push(lane);
        let waiting = self.lanes.entry(lane).or_default();
        waiting.insert((of_model.time, key));
    }

    /// `key` has nothing waiting in `lane` any more.
    pub(super) fn leave(&mut self, key: K, lane: Lane) {
        let Some(member) = self.members.get_mut(&key) else {
            return;
        };
        let of_model = member.in_model(lane.model);
        let Some(at) = of_model.lanes.iter().position(|waits| *waits == lane) else {
            return;
        };
        of_model.lanes.swap_remove(at);
        if let Some(waiting) = self.lanes.get_mut(&lane) {
            waiting.remove(&(of_model.time, key));
            if waiting.is_empty() {
                self.lanes.remove(&lane);
            }
        }
        if member.is_idle() {
            self.idle += 1;
            if self.idle > self.max_idle {
                self.forget();
            }
        }
    }

    /// Whose turn it is among those in the `open` lanes, which are in order, and in which of these: in those of one model, or of
    /// more where it is his in each.
    pub(super) fn next(&self, open: &[Lane]) -> Option<(K, Vec<Lane>)> {
        let of_models = open.chunk_by(|one, other| one.model == other.model);
        let firsts = of_models.filter_map(|lanes| {
            let first = |lane: &Lane| self.lanes.get(lane)?.first();
            let (_, key) = lanes.iter().filter_map(first).min()?;
            Some((self.members.get(key)?.total, *key, lanes))
        });
        let firsts: Vec<(VirtualTime, K, &[Lane])> = firsts.collect();
        let (_, next, _) = *firsts.iter().min_by_key(|(total, key, _)| (*total, *key))?;
        let his = firsts.iter().filter(|(_, key, _)| *key == next);
        let lanes = his.flat_map(|(_, _, lanes)| lanes.iter().copied());
        Some((next, lanes.collect()))
    }

    /// `key` is served for `model` now: the clocks are at its times from here on.
    pub(super) fn serve(&mut self, key: K, model: ModelKey) {
        if let Some(member) = self.members.get_mut(&key) {
            let time = member.in_model(model).time;
            let clock = self.clocks.of_models.entry(model).or_default();
            *clock = time.max(*clock);
            self.clocks.total = self.clocks.total.max(member.total);
        }
    }

    /// Advances the time of `key` for `model` by `cost` seconds, or takes it back where it was charged too much.
    pub(super) fn charge(&mut self, key: K, model: ModelKey, cost: f64) {
        let Some(member) = self.members.get_mut(&key) else {
            return; // long idle, and not ahead of anybody
        };
        let least = self.clocks.total.0 - MAX_CREDIT;
        member.total = VirtualTime(member.total.0.max(least) + cost);
        let of_model = member.in_model(model);
        let before = of_model.time;
        of_model.time = VirtualTime(before.0 + cost);
        for lane in &of_model.lanes {
            if let Some(waiting) = self.lanes.get_mut(lane) {
                waiting.remove(&(before, key));
                waiting.insert((of_model.time, key));
            }
        }
    }

    /// By how many seconds of cost `key` is ahead in the line of `model`. A newcomer is not.
    pub(super) fn lead(&self, key: K, model: ModelKey) -> f64 {
        let member = self.members.get(&key);
        let of_model = member.and_then(|member| {
            let mut in_models = member.in_models.iter();
            in_models.find(|of_model| of_model.model == model)
        });
        of_model.map_or(0.0, |of_model| self.clocks.lead(of_model))
    }

    /// Lets go of the idle members that are not ahead, and of the half of the others that are least so: sources that come
    /// once must not be kept for ever.
    fn forget(&mut self) {
        let clocks = &self.clocks;
        let lead = |member: &Member| {
            let in_models = member.in_models.iter();
            in_models
                .map(|of_model| clocks.lead(of_model))
                .fold(0.0, f64::max)
        };
        let idle = self.members.values().filter(|member| member.is_idle());
        let mut leads: Vec<f64> = idle.map(lead).collect();
        let middle = leads.len() / 2;
        let (_, median, _) = leads.select_nth_unstable_by(middle, f64::total_cmp);
        let bar = *median;
        self.members
            .retain(|_, member| !member.is_idle() || lead(member) > bar);
        let idle = self.members.values().filter(|member| member.is_idle());
        self.idle = idle.count();
    }
}

// === impl Clocks ===

impl Clocks {
    fn of(&self, model: ModelKey) -> VirtualTime {
        self.of_models.get(&model).copied().unwrap_or_default()
    }

    fn lead(&self, of_model: &InModel) -> f64 {
        (of_model.time.0 - self.of(of_model.model).0).max(0.0)
    }
}

// === impl Member ===

impl Member {
    /// Whether nothing of it waits.
    fn is_idle(&self) -> bool {
        self.in_models
            .iter()
            .all(|of_model| of_model.lanes.is_empty())
    }

    fn in_model(&mut self, model: ModelKey) -> &mut InModel {
        let known = self.in_models.iter().position(|of| of.model == model);
        let at = known.unwrap_or_else(|| {
            self.in_models.push(InModel {
                model,
                time: VirtualTime::default(),
                lanes: Vec::new(),
            });
            self.in_models.len() - 1
        });
        &mut self.in_models[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduling::lane::Job;

    const LANE: Lane = lane(0);

    const fn lane(model: u32) -> Lane {
        Lane {
            model: ModelKey(model),
            job: Job::Picture,
        }
    }

    fn new() -> Fair<u32> {
        Fair::new(256)
    }

    /// Serves `turns` times at `cost(key)` seconds each, everybody always having more, and counts.
    fn served(
        fair: &mut Fair<u32>,
        turns: usize,
        cost: impl Fn(u32) -> f64,
    ) -> BTreeMap<u32, usize> {
        let mut counts = BTreeMap::new();
        for _ in 0..turns {
            let (key, _) = fair.next(&[LANE]).unwrap();
            fair.serve(key, LANE.model);
            fair.charge(key, LANE.model, cost(key));
            *counts.entry(key).or_default() += 1;
        }
        counts
    }

    #[test]
    fn members_are_served_in_inverse_proportion_to_their_cost() {
        let mut fair = new();
        (0..3).for_each(|key| fair.join(key, LANE));
        let counts = served(&mut fair, 1_100, |key| [0.001, 0.002, 0.004][key as usize]);
        // 4 : 2 : 1, give or take a turn.
        assert!((628..=630).contains(&counts[&0]), "{counts:?}");
        assert!((313..=316).contains(&counts[&1]), "{counts:?}");
    }

    #[test]
    fn nobody_saves_up_turns_by_being_away() {
        let mut fair = new();
        fair.join(1, LANE);
        served(&mut fair, 1_000, |_| 1.0);
        fair.join(2, LANE);
        let counts = served(&mut fair, 100, |_| 1.0);
        assert!((49..=51).contains(&counts[&2]), "{counts:?}");
    }

    #[test]
    fn leaving_and_coming_back_does_not_pay() {
        let mut fair = new();
        (1..=2).for_each(|key| fair.join(key, LANE));
        let mut turns = 0;
        for _ in 0..1_000 {
            let (key, _) = fair.next(&[LANE]).unwrap();
            fair.serve(key, LANE.model);
            fair.charge(key, LANE.model, 1.0);
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
        let mut fair = new();
        let other = lane(1);
        fair.join(1, LANE);
        fair.join(2, LANE);
        fair.join(2, other);
        assert_eq!(fair.next(&[other]), Some((2, vec![other])));
        fair.leave(2, other);
        assert_eq!(fair.next(&[other]), None);
        assert_eq!(fair.next(&[LANE]).unwrap().0, 1);
    }

    #[test]
    fn what_somebody_has_of_one_model_does_not_set_him_back_in_the_line_of_another() {
        let (mut fair, other) = (new(), lane(1));
        fair.join(1, LANE);
        (1..=2).for_each(|key| fair.join(key, other));
        for _ in 0..1_000 {
            fair.serve(1, LANE.model);
            fair.charge(1, LANE.model, 1.0);
        }
        let mut turns = 0;
        for _ in 0..101 {
            let (key, _) = fair.next(&[other]).unwrap();
            fair.serve(key, other.model);
            fair.charge(key, other.model, 1.0);
            turns += usize::from(key == 1);
        }
        assert!((49..=51).contains(&turns), "{turns}");
        // Of what serves both he has had more.
        assert_eq!(fair.next(&[LANE, other]), Some((2, vec![other])));
    }

    #[test]
    fn whose_turn_it_is_in_several_models_may_choose() {
        let (mut fair, other) = (new(), lane(1));
        (1..=2).for_each(|key| fair.join(key, LANE));
        fair.join(1, other);
        assert_eq!(fair.next(&[LANE, other]), Some((1, vec![LANE, other])));
        fair.charge(1, LANE.model, 1.0);
        assert_eq!(fair.next(&[LANE, other]), Some((2, vec![LANE])));
    }

    #[test]
    fn who_was_held_up_for_long_does_not_keep_everything_to_himself_afterwards() {
        let (mut fair, other) = (new(), lane(1));
        fair.join(1, LANE);
        fair.join(2, other);
        for _ in 0..1_000 {
            fair.serve(2, other.model);
            fair.charge(2, other.model, 0.1);
        }
        let mut turns = 0;
        while fair.next(&[LANE, other]).unwrap().0 == 1 {
            fair.serve(1, LANE.model);
            fair.charge(1, LANE.model, 0.1);
            turns += 1;
        }
        assert!(turns <= 12, "{turns}");
    }

    #[test]
    fn members_that_came_once_are_not_kept_for_ever() {
        let mut fair = new();
        fair.join(u32::MAX, LANE);
        for key in 0..10_000 {
            fair.join(key, LANE);
            fair.serve(key, LANE.model);
            fair.charge(key, LANE.model, 0.001);
            fair.leave(key, LANE);
        }
        assert!(fair.len() <= 256 + 1, "{}", fair.len());
    }

    #[test]
    fn sending_one_after_another_is_charged_like_sending_all_at_once() {
        let mut fair = new();
        fair.join(0, LANE);
        // Eight that come back as soon as they are served, beside one that always has something waiting.
        (1..9).for_each(|key| fair.join(key, LANE));
        let mut counts = BTreeMap::<u32, usize>::new();
        for _ in 0..900 {
            let (key, _) = fair.next(&[LANE]).unwrap();
            fair.serve(key, LANE.model);
            fair.charge(key, LANE.model, 1.0);
            *counts.entry(key).or_default() += 1;
            if key != 0 {
                fair.leave(key, LANE);
                fair.join(key, LANE);
            }
        }
        assert!(
            counts.values().all(|count| (99..=101).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn who_was_charged_while_nobody_waited_is_still_ahead() {
        let mut fair = new();
        fair.join(1, LANE);
        fair.serve(1, LANE.model);
        fair.leave(1, LANE);
        fair.charge(1, LANE.model, 3.0);
        (1..=2).for_each(|key| fair.join(key, LANE));
        assert_eq!(fair.next(&[LANE]).unwrap().0, 2);
        assert_eq!(fair.lead(1, LANE.model), 3.0);
        (1..=2).for_each(|key| fair.leave(key, LANE));
        fair.begin_anew();
        assert_eq!(fair.lead(1, LANE.model), 0.0);
    }
}
