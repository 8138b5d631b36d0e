//! Which pictures run next, together, where: the policy of batches. Looks at the state and changes nothing.

use std::collections::BTreeMap;
use std::time::Instant;

use super::{Instance, InstanceKey, Model};

/// Whether the shelf has a slot: it holds one next batch for each instance, of the size it is best at.
pub(super) fn has_room<W, R>(
    model: &Model<W, R>,
    instances: &BTreeMap<InstanceKey, Instance>,
) -> bool {
    let live = model.instances.iter().filter_map(|key| instances.get(key));
    let capacity: usize = live.map(|instance| instance.buckets.preferred().size).sum();
    model.shelf.taken() < capacity
}

/// The next batch of a model: where, in which bucket, how many pictures. `None` when nothing is to run now.
pub(super) fn choose_batch<W, R>(
    model: &Model<W, R>,
    instances: &BTreeMap<InstanceKey, Instance>,
    now: Instant,
) -> Option<(InstanceKey, usize, usize)> {
    let ready = model.shelf.len();
    let oldest = model.shelf.oldest_ready_at()?;
    let live = || {
        model
            .instances
            .iter()
            .filter_map(|key| Some((*key, instances.get(key)?)))
    };

    let free = live()
        .filter(|(_, instance)| instance.in_flight == 0)
        .count();
    if free > 0 {
        // Divided among those that are free, so that none takes all while its neighbour idles.
        let share = ready.div_ceil(free);
        let (key, instance) = live()
            .filter(|(_, instance)| instance.in_flight == 0)
            .min_by_key(|(key, instance)| (instance.buckets.cheapest(share).cost, *key))?;
        let bucket = instance.buckets.cheapest(share);
        let full = share >= instance.buckets.preferred().size;
        let waited_enough = oldest + instance.max_queue_delay <= now;
        return (full || waited_enough).then_some((key, bucket.size, share.min(bucket.size)));
    }

    // All busy. A batch that could not get better by waiting may be put together ahead of its turn.
    let mut busy = live().filter(|(_, instance)| instance.pipelined && instance.in_flight == 1);
    let (key, instance) = busy.find(|(_, instance)| ready >= instance.buckets.preferred().size)?;
    let size = instance.buckets.preferred().size;
    Some((key, size, size))
}
