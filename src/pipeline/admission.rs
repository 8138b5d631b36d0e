//! Admission: how many requests, and how many bytes of them, may wait at a time.
//!
//! A permit is taken before a request enters the line and travels with its encoded picture. It is given back
//! when those bytes are gone, which is when the picture has been decoded, or the request has been let go. So
//! what is bounded here is exactly what the line holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// The bounds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Requests that may wait at a time.
    ///
    /// At 150 pictures a second 512 of them are 3.4 seconds of waiting: longer than most callers wait.
    pub max_requests: usize,
    /// Bytes of encoded pictures that may wait at a time.
    pub max_bytes: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_requests: 512,
            max_bytes: 512 << 20,
        }
    }
}

/// Lets requests in, or says that there is no room. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Admission {
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    config: Config,
    requests: AtomicU64,
    bytes: AtomicU64,
}

/// A request's right to wait. Dropping it makes room for another.
#[derive(Debug)]
#[must_use = "dropping a permit gives its place away"]
pub struct AdmissionPermit {
    state: Arc<State>,
    bytes: u64,
}

/// There is no room for another request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overloaded;

// === impl Admission ===

impl Admission {
    pub(super) fn new(config: Config) -> Self {
        Self {
            state: Arc::new(State {
                config,
                requests: AtomicU64::new(0),
                bytes: AtomicU64::new(0),
            }),
        }
    }

    /// Takes a permit for one request of `bytes`, or none when either bound would be passed. A single request
    /// larger than the whole byte bound would never fit: the message limit has to be below it.
    ///
    /// # Errors
    /// [`Overloaded`] when there is no room.
    pub fn admit(&self, bytes: u64) -> Result<AdmissionPermit, Overloaded> {
        let State {
            config,
            requests,
            bytes: used,
        } = &*self.state;
        take(requests, 1, config.max_requests as u64)?;
        if take(used, bytes, config.max_bytes).is_err() {
            requests.fetch_sub(1, Ordering::Relaxed);
            return Err(Overloaded);
        }
        Ok(AdmissionPermit {
            state: self.state.clone(),
            bytes,
        })
    }

    /// Whether a request of no bytes at all would be let in now. A door asks before it reads a message.
    pub fn has_room(&self) -> bool {
        let State {
            config,
            requests,
            bytes,
        } = &*self.state;
        requests.load(Ordering::Relaxed) < config.max_requests as u64
            && bytes.load(Ordering::Relaxed) < config.max_bytes
    }

    /// Requests that hold a permit.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> u64 {
        self.state.requests.load(Ordering::Relaxed)
    }
}

// === impl AdmissionPermit ===

impl AdmissionPermit {
    /// Makes the permit one for `bytes`: a message that was sent compressed turns out larger once it is
    /// inflated. The place is kept either way.
    ///
    /// # Errors
    /// [`Overloaded`] when there is no room for the difference; the permit is then as it was.
    pub fn resize(&mut self, bytes: u64) -> Result<(), Overloaded> {
        match bytes.checked_sub(self.bytes) {
            Some(more) => take(&self.state.bytes, more, self.state.config.max_bytes)?,
            None => drop(
                self.state
                    .bytes
                    .fetch_sub(self.bytes - bytes, Ordering::Relaxed),
            ),
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for AdmissionPermit {
    fn drop(&mut self) {
        self.state.requests.fetch_sub(1, Ordering::Relaxed);
        self.state.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Adds `amount` unless that passes `limit`. The counters guard no other memory, so no ordering is needed.
fn take(counter: &AtomicU64, amount: u64, limit: u64) -> Result<(), Overloaded> {
    let within = |used: u64| used.checked_add(amount).filter(|total| *total <= limit);
    counter
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, within)
        .map(drop)
        .map_err(|_| Overloaded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(max_requests: usize, max_bytes: u64) -> Admission {
        Admission::new(Config {
            max_requests,
            max_bytes,
        })
    }

    #[test]
    fn requests_beyond_the_count_are_refused_until_one_leaves() {
        let admission = admission(2, 1_000);
        let first = admission.admit(1).unwrap();
        let _second = admission.admit(1).unwrap();
        assert_eq!(admission.admit(1).unwrap_err(), Overloaded);
        drop(first);
        assert!(admission.admit(1).is_ok());
    }

    #[test]
    fn requests_beyond_the_bytes_are_refused_and_take_no_place() {
        let admission = admission(10, 100);
        let _first = admission.admit(60).unwrap();
        assert_eq!(admission.admit(41).unwrap_err(), Overloaded);
        assert_eq!(admission.waiting(), 1);
        let second = admission.admit(40).unwrap();
        drop(second);
        assert_eq!(admission.admit(u64::MAX).unwrap_err(), Overloaded);
        assert_eq!(admission.waiting(), 1);
    }

    #[test]
    fn a_permit_grows_only_as_far_as_there_is_room_and_gives_back_what_it_grew_to() {
        let admission = admission(10, 100);
        let mut permit = admission.admit(10).unwrap();
        permit.resize(90).unwrap();
        assert_eq!(permit.resize(101).unwrap_err(), Overloaded);
        assert!(admission.admit(11).is_err());
        permit.resize(5).unwrap();
        let other = admission.admit(95).unwrap();
        drop((permit, other));
        assert!(admission.admit(100).is_ok());
    }

    #[test]
    fn there_is_room_until_either_bound_is_reached() {
        let by_count = admission(1, 100);
        assert!(by_count.has_room());
        let _one = by_count.admit(1).unwrap();
        assert!(!by_count.has_room());
        let by_bytes = admission(10, 100);
        let _all = by_bytes.admit(100).unwrap();
        assert!(!by_bytes.has_room());
    }
}
