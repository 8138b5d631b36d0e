//! Batch buckets: the batch sizes that an instance runs, what each costs, and which one to use.

use std::time::Duration;

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

/// An instance's buckets, smallest first; never empty.
#[derive(Debug, Clone)]
pub(super) struct Buckets(Vec<BatchBucket>);

// === impl Buckets ===

impl Buckets {
    /// Orders `buckets` by size; `None` when there are none.
    pub(super) fn new(mut buckets: Vec<BatchBucket>) -> Option<Self> {
        buckets.sort_by_key(|bucket| bucket.size);
        (!buckets.is_empty()).then_some(Self(buckets))
    }

    /// The bucket in which each of `ready` pictures costs least. Of two that cost the same the larger wins,
    /// since it takes more of what waits.
    pub(super) fn cheapest(&self, ready: usize) -> BatchBucket {
        let cost_each =
            |bucket: &BatchBucket| bucket.cost.as_secs_f64() / ready.min(bucket.size).max(1) as f64;
        let mut best = self.0[0];
        for bucket in &self.0[1..] {
            // A bucket that would be mostly padding can never win: a smaller one holds the same pictures.
            let holds_more = ready > best.size;
            if holds_more && cost_each(bucket) <= cost_each(&best) {
                best = *bucket;
            }
        }
        best
    }

    /// The bucket that is cheapest when there is always more to run: what one instance takes at its best.
    pub(super) fn preferred(&self) -> BatchBucket {
        self.cheapest(usize::MAX)
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
        assert_eq!(gpu.cheapest(1).size, 1);
        assert_eq!(gpu.cheapest(2).size, 2);
        assert_eq!(gpu.cheapest(3).size, 4); // 9 ms for three beats 7 ms for two
        assert_eq!(gpu.cheapest(100).size, 8);
        assert_eq!(gpu.preferred().size, 8);
    }

    #[test]
    fn a_device_that_loses_by_batching_runs_singles() {
        let cpu = buckets(&[(1, 26), (2, 60), (4, 130), (8, 270)]);
        assert_eq!(cpu.cheapest(8).size, 1);
        assert_eq!(cpu.preferred().size, 1);
    }

    #[test]
    fn padding_is_used_only_where_it_pays() {
        let flat = buckets(&[(1, 10), (2, 20), (4, 40)]);
        assert_eq!(flat.cheapest(3).size, 2); // padded to 4 each of 3 would cost 13 ms instead of 10
        assert_eq!(flat.cheapest(4).size, 4);
    }
}
