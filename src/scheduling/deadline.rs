//! [`Deadline`]: the instant after which nobody reads the answer.

use std::time::{Duration, Instant};

/// The instant after which the caller no longer reads the answer, or never.
///
/// Orders earliest first; a request without a deadline comes last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// No deadline.
    pub const NEVER: Deadline = Deadline(None);

    /// A deadline at `instant`.
    pub fn at(instant: Instant) -> Self {
        Self(Some(instant))
    }

    /// A deadline `timeout` after `now`; one too far away for the clock to hold is [`Deadline::NEVER`].
    pub fn after(now: Instant, timeout: Duration) -> Self {
        Self(now.checked_add(timeout))
    }

    /// So much earlier.
    pub fn earlier(self, by: Duration) -> Self {
        // An instant before the clock's first is as past as any.
        Self(
            self.0
                .map(|instant| instant.checked_sub(by).unwrap_or(instant)),
        )
    }

    /// The instant, if there is one.
    pub fn instant(self) -> Option<Instant> {
        self.0
    }

    /// Whether it has passed at `now`. It has at the very instant: an answer needs time to travel.
    pub fn has_passed(self, now: Instant) -> bool {
        self.0.is_some_and(|instant| instant <= now)
    }
}

impl PartialOrd for Deadline {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Deadline {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        match (self.0, other.0) {
            (Some(a), Some(b)) => a.cmp(&b),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (None, None) => std::cmp::Ordering::Equal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_deadline_never_passes_and_orders_last() {
        let now = Instant::now();
        let soon = Deadline::after(now, Duration::from_millis(5));
        assert!(!Deadline::NEVER.has_passed(now + Duration::from_secs(1_000_000)));
        assert!(soon < Deadline::NEVER);
        assert_eq!(Deadline::after(now, Duration::MAX), Deadline::NEVER);
    }

    #[test]
    fn a_deadline_has_passed_at_its_very_instant() {
        let now = Instant::now();
        let deadline = Deadline::after(now, Duration::from_millis(5));
        assert!(!deadline.has_passed(now + Duration::from_millis(4)));
        assert!(deadline.has_passed(now + Duration::from_millis(5)));
    }
}
