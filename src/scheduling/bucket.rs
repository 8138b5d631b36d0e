//! Batch buckets: the batch sizes that an instance runs, what each costs, and which one to use.

use std::time::Duration;

use super::estimate::Estimate;

/// A fixed batch size of an instance and the measured duration of one run at it.
///
/// Fewer pictures than `size` are padded to it, so a run costs the same however many are real.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchBucket {
    /// Pictures in a full batch.
    pub size: usize,
    /// Duration of one run, measured at warm-up.
    pub cost: Duration,
}

/// The bucket sizes for a greatest batch of `max_batch_size`: powers of two, and that size itself.
pub fn bucket_sizes(max_batch_size: usize) -> Vec<usize> {
    let mut sizes: Vec<usize> = std::iter::successors(Some(1), |size| Some(size * 2))
        .take_while(|size| *size < max_batch_size)
        .collect();
    sizes.push(max_batch_size.max(1));
    sizes
}

/// How fast a bucket's shape is learned: slowly, since buckets are rarely run at the same moment and the pace changes.
const SHAPE_GAIN: f64 = 1.0 / 64.0;

/// Two buckets are compared when each had a run among so many: within that time the pace is much the same.
const SAME_TIME: u64 = 32;

/// An instance's buckets, smallest first, never empty, and what their runs have turned out to take.
///
/// A run of a bucket takes what it took at warm-up, times the *pace* of the instance (neighbours on the same cores,
/// a hot or throttled device: the same for all buckets), times the *shape* of the bucket (what warm-up got wrong
/// about it). Buckets are compared by shape alone: one that was run under load is not worse for it than one
/// that was last run in peace.
#[derive(Debug, Clone)]
pub(super) struct Buckets {
    buckets: Vec<Learned>,
    pace: Estimate,
    /// Asked for on every event, for every instance.
    preferred: usize,
    runs: u64,
}

#[derive(Debug, Clone, Copy)]
struct Learned {
    size: usize,
    /// At warm-up, in seconds.
    warm: f64,
    shape: f64,
    /// What its last runs took, as a multiple of the warm-up's.
    ratio: Estimate,
    /// The number of its last run.
    last: u64,
}

// === impl Learned ===

impl Learned {
    /// What a run takes at the pace of the warm-up, in seconds.
    fn cost(&self) -> f64 {
        self.warm * self.shape
    }
}

// === impl Buckets ===

impl Buckets {
    /// Orders `buckets` by size; `None` when there are none.
    pub(super) fn new(mut buckets: Vec<BatchBucket>) -> Option<Self> {
        buckets.sort_by_key(|bucket| bucket.size);
        let learned = |bucket: BatchBucket| Learned {
            size: bucket.size,
            // A clock may not see a run that does nothing; a cost of nothing would make every wait one of nothing.
            warm: bucket.cost.as_secs_f64().max(1e-9),
            shape: 1.0,
            ratio: Estimate::UNKNOWN,
            last: 0,
        };
        let mut buckets = Self {
            buckets: buckets.into_iter().map(learned).collect(),
            pace: Estimate::measured(1.0),
            runs: 0,
            preferred: 0,
        };
        if buckets.buckets.is_empty() {
            return None;
        }
        buckets.preferred = buckets.cheapest(usize::MAX);
        Some(buckets)
    }

    /// The size in which each of `ready` pictures costs least. Of two that cost the same the larger wins, since
    /// it takes more of what waits.
    pub(super) fn cheapest(&self, ready: usize) -> usize {
        let cost_each = |learned: &Learned| learned.cost() / ready.min(learned.size).max(1) as f64;
        let mut best = self.buckets[0];
        for learned in &self.buckets[1..] {
            // A bucket that would be mostly padding can never win: a smaller one holds the same pictures.
            let holds_more = ready > best.size;
            if holds_more && cost_each(learned) <= cost_each(&best) {
                best = *learned;
            }
        }
        best.size
    }

    /// The size that answers most pictures in time for each second of the device, `left` being the seconds that each
    /// of those that are ready, in their order, may still take.
    ///
    /// One that would be late in a large batch makes it smaller only where that does not cost more than it is worth:
    /// a device that runs small batches for the sake of the most urgent falls behind, and then all are urgent.
    pub(super) fn most_in_time(&self, left: &[f64]) -> usize {
        let pace = self.pace.upper();
        let in_time = |learned: &Learned| {
            let takes = learned.cost() * pace;
            let batch = &left[..left.len().min(learned.size)];
            batch.iter().filter(|left| takes <= **left).count()
        };
        let rate = |learned: &Learned| in_time(learned) as f64 / learned.cost();
        let mut best = self.buckets[0];
        for learned in &self.buckets[1..] {
            if left.len() > best.size && rate(learned) >= rate(&best) {
                best = *learned;
            }
        }
        match in_time(&best) {
            0 => self.cheapest(left.len()),
            _ => best.size,
        }
    }

    /// The size that is cheapest when there is always more to run: what one instance takes at its best.
    pub(super) fn preferred(&self) -> usize {
        self.preferred
    }

    /// Takes in that a run of `size` took so many seconds.
    pub(super) fn observe(&mut self, size: usize, took: f64) {
        self.runs += 1;
        let runs = self.runs;
        let Some(learned) = self.buckets.iter_mut().find(|learned| learned.size == size) else {
            return;
        };
        learned.ratio.observe(took / learned.warm);
        learned.last = runs;
        self.pace.observe(took / learned.cost());
        // A shape is how a bucket compares with the others. While it is the only one that runs, nothing can be said.
        let recent = |learned: &Learned| learned.last > 0 && learned.last + SAME_TIME > runs;
        let compared = self.buckets.iter().filter(|learned| recent(learned));
        let ratios: Vec<f64> = compared.map(|learned| learned.ratio.mean()).collect();
        if ratios.len() < 2 {
            return;
        }
        let middle = ratios.iter().sum::<f64>() / ratios.len() as f64;
        for learned in self.buckets.iter_mut().filter(|learned| recent(learned)) {
            let shape = learned.ratio.mean() / middle;
            learned.shape += SHAPE_GAIN * (shape - learned.shape);
        }
        self.preferred = self.cheapest(usize::MAX);
    }

    /// What a run of `size` usually takes, in seconds.
    pub(super) fn expected(&self, size: usize) -> f64 {
        self.cost(size) * self.pace.mean()
    }

    /// What a run of `size` takes at most, but for one in a hundred, in seconds.
    pub(super) fn at_most(&self, size: usize) -> f64 {
        self.cost(size) * self.pace.upper()
    }

    /// Seconds for each picture when full batches of the preferred size follow one another.
    pub(super) fn each(&self) -> f64 {
        let size = self.preferred();
        self.expected(size) / size as f64
    }

    fn cost(&self, size: usize) -> f64 {
        let holds = |learned: &&Learned| learned.size >= size;
        let learned = self.buckets.iter().find(holds);
        learned.or(self.buckets.last()).map_or(0.0, Learned::cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buckets(costs_ms: &[(usize, u64)]) -> Buckets {
        let buckets = costs_ms.iter().map(|&(size, ms)| BatchBucket {
            size,
            cost: Duration::from_millis(ms),
        });
        Buckets::new(buckets.collect()).unwrap()
    }

    #[test]
    fn sizes_are_powers_of_two_up_to_the_greatest() {
        assert_eq!(bucket_sizes(1), [1]);
        assert_eq!(bucket_sizes(8), [1, 2, 4, 8]);
        assert_eq!(bucket_sizes(6), [1, 2, 4, 6]);
    }

    #[test]
    fn a_device_that_gains_by_batching_takes_the_bucket_that_holds_what_is_ready() {
        let gpu = buckets(&[(1, 6), (2, 7), (4, 9), (8, 14)]);
        assert_eq!(gpu.cheapest(1), 1);
        assert_eq!(gpu.cheapest(2), 2);
        assert_eq!(gpu.cheapest(3), 4); // 9 ms for three beats 7 ms for two
        assert_eq!(gpu.cheapest(100), 8);
        assert_eq!(gpu.preferred(), 8);
    }

    #[test]
    fn a_device_that_loses_by_batching_runs_singles() {
        let cpu = buckets(&[(1, 26), (2, 60), (4, 130), (8, 270)]);
        assert_eq!(cpu.cheapest(8), 1);
        assert_eq!(cpu.preferred(), 1);
    }

    #[test]
    fn padding_is_used_only_where_it_pays() {
        let flat = buckets(&[(1, 10), (2, 20), (4, 40)]);
        assert_eq!(flat.cheapest(3), 2); // padded to 4 each of 3 would cost 13 ms instead of 10
        assert_eq!(flat.cheapest(4), 4);
    }

    #[test]
    fn a_batch_is_smaller_for_an_urgent_picture_only_where_it_is_worth_it() {
        let gpu = buckets(&[(1, 6), (2, 7), (4, 9), (8, 14)]);
        assert_eq!(gpu.most_in_time(&[1.0; 8]), 8);
        assert_eq!(gpu.most_in_time(&[0.0105; 8]), 4);
        assert_eq!(gpu.most_in_time(&[0.001; 8]), 8); // all are late anyway
        assert_eq!(gpu.most_in_time(&[0.0065, 1.0]), 1);
        assert_eq!(
            gpu.most_in_time(&[0.010, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
            8
        );
    }

    #[test]
    fn load_makes_every_bucket_slower_and_none_of_them_worse() {
        let mut cpu = buckets(&[(1, 10), (2, 21), (4, 43)]);
        for _ in 0..1_000 {
            cpu.observe(1, 0.016);
        }
        assert!((0.0155..0.0165).contains(&cpu.expected(1)), "{cpu:?}");
        assert!((0.060..0.072).contains(&cpu.expected(4)), "{cpu:?}");
        assert_eq!(cpu.preferred(), 1);
    }

    #[test]
    fn what_warm_up_got_wrong_about_a_bucket_is_learned() {
        let mut gpu = buckets(&[(1, 6), (8, 14)]);
        for _ in 0..400 {
            gpu.observe(1, 0.006);
            gpu.observe(8, 0.060);
        }
        assert_eq!(gpu.preferred(), 1, "{gpu:?}");
    }
}
