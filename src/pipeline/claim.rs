//! [`Claim`]: whose a request is that still waits: the CPU worker's that begins it, or the caller's who takes it back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Can be taken once, by whoever comes first. A frame that its stream has taken back is never decoded, and one that
/// a worker has begun is never told to have been replaced.
#[derive(Debug, Clone, Default)]
pub(super) struct Claim {
    taken: Arc<AtomicBool>,
}

// === impl Claim ===

impl Claim {
    /// Whether it was there to be taken.
    pub(super) fn take(&self) -> bool {
        !self.taken.swap(true, Ordering::AcqRel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_who_want_it_one_gets_it() {
        let claim = Claim::default();
        let other = claim.clone();
        assert!(other.take());
        assert!(!claim.take());
    }
}
