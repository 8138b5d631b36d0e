//! One instance's place: what sits there, and how long it stays empty.

use std::time::Duration;

use tokio::time::Instant;

use crate::pipeline::loader::Recipe;
use crate::scheduling::InstanceKey;

/// The first wait before a lost instance is made anew. It doubles with each loss, since what breaks an engine at
/// once will do so again, and loading costs the others time.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The longest wait: a device that comes back is used again within a minute.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// An instance that ran this long ran well, and the next wait after it is the first again.
const RAN_WELL: Duration = Duration::from_secs(60);

/// The place of one instance.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) recipe: Recipe,
    pub(super) sits: Sits,
    next_wait: Wait,
}

/// What sits there.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sits {
    /// An instance in service.
    Live {
        /// Its name.
        key: InstanceKey,
        /// Since when.
        since: Instant,
    },
    /// Nobody, until a wait is over.
    Nobody,
    /// One that loads and warms.
    Coming,
    /// Nobody, until a thread that hangs comes back.
    Held,
}

/// How long the place stays empty next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wait(Duration);

// === impl Seat ===

impl Seat {
    pub(super) fn new(recipe: Recipe, key: InstanceKey, since: Instant) -> Self {
        Self {
            recipe,
            sits: Sits::Live { key, since },
            next_wait: Wait(FIRST_WAIT),
        }
    }

    pub(super) fn take(&mut self, key: InstanceKey, since: Instant) {
        self.sits = Sits::Live { key, since };
    }

    /// Empties the place and says for how long.
    pub(super) fn wait(&mut self, now: Instant) -> Duration {
        let ran = match self.sits {
            Sits::Live { since, .. } => now.saturating_duration_since(since),
            Sits::Nobody | Sits::Coming | Sits::Held => Duration::ZERO,
        };
        self.sits = Sits::Nobody;
        self.next_wait.after(ran)
    }

    pub(super) fn holds(&self, wanted: InstanceKey) -> bool {
        matches!(self.sits, Sits::Live { key, .. } if key == wanted)
    }

    pub(super) fn is_live(&self) -> bool {
        matches!(self.sits, Sits::Live { .. })
    }

    pub(super) fn is_held(&self) -> bool {
        matches!(self.sits, Sits::Held)
    }
}

// === impl Wait ===

impl Wait {
    /// The wait after an instance that ran for so long.
    fn after(&mut self, ran: Duration) -> Duration {
        if ran >= RAN_WELL {
            self.0 = FIRST_WAIT;
        }
        let wait = self.0;
        self.0 = (wait * 2).min(LONGEST_WAIT);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_minute_and_start_again_after_one_that_ran_well() {
        let mut wait = Wait(FIRST_WAIT);
        let seconds: Vec<u64> = (0..8)
            .map(|_| wait.after(Duration::ZERO).as_secs())
            .collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(wait.after(RAN_WELL / 2), LONGEST_WAIT);
        assert_eq!(wait.after(RAN_WELL), FIRST_WAIT);
        assert_eq!(wait.after(Duration::ZERO), 2 * FIRST_WAIT);
    }
}
