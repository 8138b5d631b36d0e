//! Warm-up: the first runs at each batch bucket, and what a run at each costs.
//!
//! The first run at a batch size allocates, chooses kernels, and can take ten or a thousand times longer than
//! those after it; no request may pay for that.

use std::time::{Duration, Instant};

use super::engine::{Engine, EngineError, Signature};
use crate::scheduling::BatchBucket;
use crate::scheduling::bucket::bucket_sizes;
use crate::tensor::Tensor;

/// Rounds of timed runs, one run at each bucket in each. Their shortest counts: whatever else the machine does
/// only ever makes a run longer, and a bucket must not be chosen for years because a neighbour was busy for a
/// moment. Small, because a large bucket on a CPU may take half a second.
const TIMED_ROUNDS: usize = 5;

/// What warming an engine found out.
#[derive(Debug)]
pub(super) struct Warm {
    /// The sizes that it runs, smallest first, and what each costs.
    pub(super) buckets: Vec<BatchBucket>,
    /// Why it runs no other sizes, where the network does not take all that were asked for.
    pub(super) limit: Option<String>,
}

/// Runs `engine` at each of its buckets, smallest first, and returns them with their costs.
///
/// A network whose batch dimension is fixed has that one bucket. One that says that it takes any batch, and does not,
/// has those that it does take: the sizes below the first that fails, or that gives another number of rows.
///
/// # Errors
/// [`EngineError::Signature`] when the network does not take pictures of `picture_shape`, and whatever a
/// run gives that no smaller batch is left for.
pub(super) fn warm_up(
    engine: &mut dyn Engine,
    picture_shape: &[usize],
    max_batch_size: usize,
) -> Result<Warm, EngineError> {
    let input = engine.signature().input.clone();
    check_shape(&input.shape, picture_shape)?;
    let mut limit = None;
    let sizes = match input.shape.first() {
        Some(Some(fixed)) => {
            if *fixed > 1 || max_batch_size > 1 {
                limit = Some(match fixed {
                    1 => "the network's batch is fixed at 1: pictures run one by one".to_owned(),
                    fixed => format!(
                        "the network's batch is fixed at {fixed}: what is missing is filled up, and costs as much"
                    ),
                });
            }
            vec![*fixed]
        }
        _ => bucket_sizes(max_batch_size),
    };
    let batch_of = |size: usize| {
        let mut shape = vec![size];
        shape.extend_from_slice(picture_shape);
        Tensor::zeros(input.dtype, &shape)
    };
    let mut batches: Vec<(usize, Tensor)> = Vec::with_capacity(sizes.len());
    let mut rows = Rows::default();
    for size in sizes {
        let batch = batch_of(size);
        let outcome = engine.run(size, &batch);
        match outcome.and_then(|outputs| rows.check(size, &outputs, engine.signature())) {
            Ok(()) => batches.push((size, batch)),
            // What a device cannot hold is not the network's fault, and told by the same error; it is no less true that
            // smaller batches run.
            Err(EngineError::Run(why)) if !batches.is_empty() => {
                limit = Some(format!("the network takes no batch of {size}: {why}"));
                break;
            }
            Err(error) => return Err(error),
        }
    }
    let mut buckets: Vec<BatchBucket> = batches
        .iter()
        .map(|(size, _)| BatchBucket {
            size: *size,
            cost: Duration::MAX,
        })
        .collect();
    for _ in 0..TIMED_ROUNDS {
        for (bucket, (size, batch)) in buckets.iter_mut().zip(&batches) {
            let started = Instant::now();
            engine.run(*size, batch)?;
            bucket.cost = bucket.cost.min(started.elapsed());
        }
    }
    Ok(Warm { buckets, limit })
}

/// Which outputs have a row a picture: those that gave one row for the first batch, of one. Others have as many rows as there
/// are boxes in the whole batch, say.
#[derive(Debug, Default)]
struct Rows {
    a_picture: Option<Vec<bool>>,
}

// === impl Rows ===

impl Rows {
    /// Whether a run of `size` pictures gave as many rows where it has to.
    fn check(
        &mut self,
        size: usize,
        outputs: &[Tensor],
        signature: &Signature,
    ) -> Result<(), EngineError> {
        let gives = |output: &Tensor| output.shape().first() == Some(&size);
        let first = || outputs.iter().map(gives).collect();
        let a_picture = self.a_picture.get_or_insert_with(first);
        for ((output, said), a_picture) in outputs.iter().zip(&signature.outputs).zip(a_picture) {
            if *a_picture && !gives(output) {
                return Err(EngineError::Run(format!(
                    "output `{}` is {:?} for {size} pictures",
                    said.name,
                    output.shape()
                )));
            }
        }
        Ok(())
    }
}

/// Whether a network that takes `[N, ...]` takes these pictures. `None` stands for any length.
fn check_shape(input: &[Option<usize>], picture: &[usize]) -> Result<(), EngineError> {
    let fits = input.len() == picture.len() + 1
        && input
            .iter()
            .skip(1)
            .zip(picture)
            .all(|(takes, gives)| takes.is_none_or(|takes| takes == *gives));
    if fits {
        return Ok(());
    }
    Err(EngineError::Signature(format!(
        "the card's pictures are {picture:?}, the network takes {} of them",
        crate::tensor::show_shape(input)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_of_another_size_is_refused() {
        assert!(check_shape(&[None, Some(3), Some(4), Some(4)], &[3, 4, 4]).is_ok());
        assert!(check_shape(&[None, Some(3), None, None], &[3, 4, 4]).is_ok());
        assert!(check_shape(&[None, Some(3), Some(4)], &[3, 4, 4]).is_err());
        let error = check_shape(&[None, Some(3), Some(8), Some(8)], &[3, 4, 4]).unwrap_err();
        assert!(error.to_string().contains("[?, 3, 8, 8]"), "{error}");
    }
}
