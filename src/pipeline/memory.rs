//! What the server may hold, added up: `docs/MEMORY.md` explains the sum, the log tells it at start.
//!
//! Nothing is enforced here. Each part is bounded where it is taken: the waiting bytes by admission, the
//! decoded pictures by the number of workers, that of pictures which are kept for their pieces, and the limit on pixels,
//! the tensors by the pools.

use super::Config;
use crate::vision::Picture;
use crate::vision::decode::{PEAK_BYTES_PER_PIXEL, PEAK_FIXED_BYTES};

/// Replies that their callers have not taken yet, in bytes. A reply with a hundred boxes takes 5 KB, so this is ten
/// thousand of them: more than wait at any time for callers that read.
pub(super) const MAX_REPLY_BYTES: u64 = 64 << 20;

/// What one model's inputs take, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ModelMemory {
    /// Tensors of single pictures: ready, on their way there, and kept for the next.
    pub(super) shelf: u64,
    /// Batches: for each instance and each size above one, one that is filled and one that runs.
    pub(super) batches: u64,
}

/// The whole sum, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MemorySum {
    waiting: u64,
    decoding: u64,
    cut: u64,
    shelves: u64,
    batches: u64,
    replies: u64,
}

// === impl ModelMemory ===

impl ModelMemory {
    /// Of a model whose input takes `input` bytes a picture, with `shelf` tensors of it, and the batch sizes
    /// of each of its instances.
    pub(super) fn new(
        input: u64,
        shelf: usize,
        batch_sizes: impl IntoIterator<Item = usize>,
    ) -> Self {
        // A batch of one passes without a buffer of its own.
        let rows: usize = batch_sizes.into_iter().filter(|size| *size > 1).sum();
        Self {
            shelf: input.saturating_mul(shelf as u64),
            batches: input.saturating_mul(2 * rows as u64),
        }
    }
}

// === impl MemorySum ===

impl MemorySum {
    /// Adds up what `config` and the models allow.
    pub(super) fn new(config: &Config, models: impl IntoIterator<Item = ModelMemory>) -> Self {
        let policy = config.policy();
        let (workers, open) = (policy.workers as u64, policy.open_pictures() as u64);
        let pixels = config.decode.max_pixels;
        let decoded = pixels.saturating_mul(Picture::BYTES_PER_PIXEL);
        let picture = pixels
            .saturating_mul(PEAK_BYTES_PER_PIXEL)
            .saturating_add(PEAK_FIXED_BYTES);
        let sum = Self {
            waiting: config.admission.max_bytes,
            decoding: workers.saturating_mul(picture),
            cut: open.saturating_mul(decoded),
            shelves: 0,
            batches: 0,
            replies: MAX_REPLY_BYTES,
        };
        models.into_iter().fold(sum, |sum, model| Self {
            shelves: sum.shelves.saturating_add(model.shelf),
            batches: sum.batches.saturating_add(model.batches),
            ..sum
        })
    }

    /// All of it.
    pub(super) fn total(&self) -> u64 {
        let parts = [
            self.waiting,
            self.decoding,
            self.cut,
            self.shelves,
            self.batches,
            self.replies,
        ];
        parts.into_iter().fold(0, u64::saturating_add)
    }

    /// Tells the operator, in one line.
    pub(super) fn log(&self) {
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        tracing::info!(
            total_mib = mib(self.total()),
            waiting_mib = mib(self.waiting),
            decoding_mib = mib(self.decoding),
            cut_mib = mib(self.cut),
            shelves_mib = mib(self.shelves),
            batches_mib = mib(self.batches),
            replies_mib = mib(self.replies),
            "pictures take this much memory at most, beside the networks and the doors"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_that_of_the_documents() {
        let mut config = Config::default();
        config.cpu.workers = 4;
        config.decode.max_pixels = 1_000;
        config.admission.max_bytes = 5_000;
        // Two instances with batches of 1, 2 and 4.
        let model = ModelMemory::new(100, 16, [1, 2, 4, 1, 2, 4]);
        assert_eq!((model.shelf, model.batches), (1_600, 2_400));
        let sum = MemorySum::new(&config, [model, model]);
        let decoding = 4 * (11 * 1_000 + (64 << 20));
        let cut = 4 * 3 * 1_000;
        assert_eq!(
            sum.total(),
            5_000 + decoding + cut + 2 * (1_600 + 2_400) + MAX_REPLY_BYTES
        );
    }

    #[test]
    fn no_setting_makes_the_sum_overflow() {
        let mut config = Config::default();
        config.decode.max_pixels = u64::MAX;
        config.admission.max_bytes = u64::MAX;
        assert_eq!(MemorySum::new(&config, []).total(), u64::MAX);
    }
}
