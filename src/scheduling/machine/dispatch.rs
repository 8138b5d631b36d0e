//! Which pictures run next, together, where: the policy of batches. Looks at the state and changes nothing.

use std::time::Instant;

use super::instance::Instance;
use super::{Deadline, InstanceKey, Model};

/// The next batch of a model.
#[derive(Debug, Clone, Copy)]
pub(super) struct Choice {
    pub(super) instance: InstanceKey,
    /// The size to pad to.
    pub(super) bucket: usize,
    /// Pictures to take from the shelf.
    pub(super) count: usize,
}

/// Whether the shelf has a slot: it holds one next batch for each instance, of the size it is best at.
pub(super) fn has_room<R>(model: &Model<R>) -> bool {
    let live = model.instances.values();
    let live = live.filter(|instance| !instance.is_ejected());
    let capacity: usize = live.map(|instance| instance.buckets.preferred()).sum();
    model.shelf.taken() < capacity
}

/// The next batch of a model. `None` when nothing is to run now.
pub(super) fn choose_batch<R>(model: &Model<R>, now: Instant) -> Option<Choice> {
    let ready = model.shelf.len();
    if ready == 0 {
        return None;
    }
    let live = || model.instances.iter();
    let front = seconds_left(model, 1, now);
    let front = front.first().copied().unwrap_or(f64::INFINITY);
    // Of instances of several kinds one may be too slow for a picture that another will run in time.
    let in_time = |instance: &Instance| {
        !instance.is_ejected() && instance.busy_for(now) + instance.buckets.expected(1) <= front
    };
    let waste = live().any(|(_, instance)| in_time(instance));
    let useful = |instance: &Instance| instance.is_free() && (!waste || in_time(instance));
    let free = live().filter(|(_, instance)| useful(instance)).count();
    if free > 0 {
        // Divided among those that are free, so that none takes all while its neighbour idles.
        let share = ready.div_ceil(free);
        let left = seconds_left(model, share, now);
        let options = live().filter(|(_, instance)| useful(instance));
        let (key, instance, bucket) = options
            .map(|(key, instance)| {
                let bucket = instance.buckets.most_in_time(&left);
                (*key, instance, bucket)
            })
            .min_by(|(a_key, a, a_bucket), (b_key, b, b_bucket)| {
                let cost = |instance: &Instance, bucket| instance.buckets.expected(bucket);
                cost(a, *a_bucket)
                    .total_cmp(&cost(b, *b_bucket))
                    .then(a_key.cmp(b_key))
            })?;
        let full = share >= instance.buckets.preferred();
        let waited_enough = || {
            let oldest = model.shelf.oldest_ready_at();
            oldest.is_some_and(|oldest| oldest + instance.max_queue_delay <= now)
        };
        return (full || waited_enough()).then_some(Choice {
            instance: key,
            bucket,
            count: share.min(bucket),
        });
    }

    // All busy. A batch that could not get better by waiting may be put together ahead of its turn.
    // It goes where it runs first: behind the batch that ends first, not behind one that has just begun.
    let busy = live().filter(|(_, instance)| instance.takes_another());
    let full = busy.filter(|(_, instance)| ready >= instance.buckets.preferred());
    let (key, instance, busy_for) = full
        .map(|(key, instance)| (*key, instance, instance.busy_for(now)))
        .min_by(|(_, _, a), (_, _, b)| a.total_cmp(b))?;
    let size = instance.buckets.preferred();
    // What would be late behind the batch that runs gets a smaller one, once the instance is free.
    let mut left = seconds_left(model, size, now);
    left.iter_mut().for_each(|left| *left -= busy_for);
    (instance.buckets.most_in_time(&left) == size).then_some(Choice {
        instance: key,
        bucket: size,
        count: size,
    })
}

/// Seconds until the deadline of each of the next `count` pictures passes.
fn seconds_left<R>(model: &Model<R>, count: usize, now: Instant) -> Vec<f64> {
    let left = |deadline: Deadline| {
        deadline.instant().map_or(f64::INFINITY, |deadline| {
            deadline.saturating_duration_since(now).as_secs_f64()
        })
    };
    model.shelf.deadlines(count).map(left).collect()
}
