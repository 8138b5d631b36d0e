//! Warm-up: the first runs at each batch bucket, and what a run at each costs.
//!
//! The first run at a batch size allocates, chooses kernels, and can take ten or a thousand times longer than
//! those after it; no request may pay for that.

use std::time::{Duration, Instant};

use super::engine::{Engine, EngineError};
use crate::scheduling::BatchBucket;
use crate::scheduling::bucket::bucket_sizes;
use crate::tensor::Tensor;

/// Rounds of timed runs, one run at each bucket in each. Their shortest counts: whatever else the machine does
/// only ever makes a run longer, and a bucket must not be chosen for years because a neighbour was busy for a
/// moment. Small, because a large bucket on a CPU may take half a second.
const TIMED_ROUNDS: usize = 5;

/// Runs `engine` at each of its buckets, smallest first, and returns them with their costs.
///
/// A network whose batch dimension is fixed has that one bucket.
///
/// # Errors
/// [`EngineError::Signature`] when the network does not take pictures of `picture_shape`, and whatever a
/// run gives.
pub(super) fn warm_up(
    engine: &mut dyn Engine,
    picture_shape: &[usize],
    max_batch_size: usize,
) -> Result<Vec<BatchBucket>, EngineError> {
    let input = engine.signature().input.clone();
    check_shape(&input.shape, picture_shape)?;
    let sizes = match input.shape.first() {
        Some(Some(fixed)) => vec![*fixed],
        _ => bucket_sizes(max_batch_size),
    };
    let batch_of = |size: usize| {
        let mut shape = vec![size];
        shape.extend_from_slice(picture_shape);
        Tensor::zeros(input.dtype, &shape)
    };
    let batches: Vec<(usize, Tensor)> = sizes
        .into_iter()
        .map(|size| (size, batch_of(size)))
        .collect();
    for (size, batch) in &batches {
        engine.run(*size, batch)?;
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
    Ok(buckets)
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
