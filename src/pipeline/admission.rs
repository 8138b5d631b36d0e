//! Admission: how many requests, and how many bytes of them, may wait at a time, and of whom.
//!
//! A permit is taken before a request enters the line and travels with its encoded picture. It is given back
//! when those bytes are gone, which is when the picture has been decoded, or the request has been let go. So
//! what is bounded here is exactly what the line holds.
//!
//! A source may have as much as some multiple of what is free (dynamic thresholds: Choudhury and Hahne, 1998). One
//! alone gets nearly everything; the longer the line, the less may any one have of it, so that the longest share
//! is refused first and there is always a little room for whoever has none. What is free to batch work is less: however
//! many sources it comes from, all of it together may have no more than is left to interactive work, which is half at
//! most. So it is refused first. Nobody who was let in is put out for another.
//!
//! Calls are refused when there is no room; streams wait for it ([`Admission::wait`]), and leave a sixteenth of the whole
//! to calls.

mod waiters;

use std::collections::HashMap;
use std::hash::RandomState;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::caller::{Caller, Source};
use crate::scheduling::{Deadline, ModelKey, Priority, SourceKey};
use waiters::{Fit, Waiter, Waiters};

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
    /// How long a request without a deadline may have to wait. One that would have to wait longer is refused.
    #[serde(with = "humantime_serde")]
    pub max_wait: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_requests: 512,
            max_bytes: 512 << 20,
            // Somebody who waits for an answer without saying for how long has usually gone by then.
            max_wait: Duration::from_secs(10),
        }
    }
}

/// As many times what is free may a source have waiting. One alone gets eight ninths of the whole; sixteen greedy ones
/// get a sixteenth each, but for a hundredth that stays free.
const MULTIPLE: u64 = 8;

/// The part of the whole that streams leave to calls: a call finds room or is refused, a stream waits for it and takes
/// whatever there is.
const LEFT_TO_CALLS: u64 = 16;

/// Lets requests in, or says that there is no room. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Admission {
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    config: Config,
    room: Mutex<Room>,
    /// The secret by which sources are named.
    names: RandomState,
}

/// What is taken, in all and by each source that has anything.
#[derive(Debug)]
struct Room {
    all: Taken,
    /// Of that, by batch work.
    by_batch: Taken,
    sources: HashMap<Source, Share>,
    asks: LruCache<SourceKey, Asks>,
    waiters: Waiters,
}

#[derive(Debug, Default)]
struct Share {
    taken: Taken,
    turned_away: Option<TurnedAway>,
}

/// Which models a source asks for. Remembered beyond its last permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asks {
    Only(ModelKey),
    /// Which one a request is for is only known when it is read.
    Several,
}

/// What a source was last told about deadlines that cannot be met. What it asks next would be told the same, for so
/// long, and need not be read.
///
/// A request this urgent and with so much time was too late; one that has no more of either is likely to be until then.
#[derive(Debug, Clone, Copy)]
struct TurnedAway {
    priority: Priority,
    left: Duration,
    retry_after: Duration,
    until: Instant,
}

/// Sources of which it is known what they ask for: more than are likely to be refused at a time.
const MAX_ASKERS: NonZeroUsize = NonZeroUsize::new(1_024).unwrap();

/// What is told of one request holds for others no longer than this: somebody may leave the line at any time.
const TURNED_AWAY_FOR: Duration = Duration::from_millis(10);

#[derive(Debug, Default, Clone, Copy)]
struct Taken {
    requests: u64,
    bytes: u64,
}

/// A request's right to wait. Dropping it makes room for another.
#[derive(Debug)]
#[must_use = "dropping a permit gives its place away"]
pub struct AdmissionPermit {
    state: Arc<State>,
    caller: Caller,
    bytes: u64,
}

/// A place among those who wait. Dropping it leaves the queue.
#[derive(Debug)]
struct WaitingPlace {
    state: Arc<State>,
    source: Source,
    name: waiters::Name,
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
                room: Mutex::new(Room {
                    all: Taken::default(),
                    by_batch: Taken::default(),
                    sources: HashMap::new(),
                    asks: LruCache::new(MAX_ASKERS),
                    waiters: Waiters::default(),
                }),
                names: RandomState::new(),
            }),
        }
    }

    /// Takes a permit for one request of `bytes`, or none when a bound would be passed, or the caller's share of it. A
    /// single request larger than the whole byte bound would never fit: the message limit has to be below it.
    ///
    /// # Errors
    /// [`Overloaded`] when there is no room.
    pub fn admit(&self, caller: &Caller, bytes: u64) -> Result<AdmissionPermit, Overloaded> {
        let mut room = self.state.lock();
        let more = Taken { requests: 1, bytes };
        room.check(&self.state.config, caller, more)?;
        Ok(self.state.permit(&mut room, caller, bytes))
    }

    /// Takes a permit for a frame of `bytes` when there is room for it. Dropping the future leaves the queue.
    pub fn wait(
        &self,
        caller: &Caller,
        bytes: u64,
    ) -> impl Future<Output = AdmissionPermit> + Send + use<> {
        let (grant, granted) = oneshot::channel();
        let name = self.state.lock().waiters.push(caller, bytes, grant);
        let place = WaitingPlace {
            state: self.state.clone(),
            source: caller.source.clone(),
            name,
        };
        self.state.grant();
        async move {
            let permit = granted.await;
            drop(place);
            match permit {
                Ok(permit) => permit,
                // Only when admission itself has gone, and the server with it.
                Err(_) => std::future::pending().await,
            }
        }
    }

    /// For replies: as many as there are, of so many bytes together.
    pub(super) fn of_replies(max_bytes: u64) -> Self {
        Self::new(Config {
            max_requests: usize::MAX,
            max_bytes,
            ..Config::default()
        })
    }

    /// Whether a request of no bytes at all would be let in now. A door asks before it reads a message.
    pub fn has_room(&self, caller: &Caller) -> bool {
        let room = self.state.lock();
        let least = Taken {
            requests: 1,
            bytes: 1,
        };
        room.check(&self.state.config, caller, least).is_ok()
    }

    /// A source asks for this model.
    pub(super) fn asks_for(&self, source: SourceKey, model: ModelKey) {
        let mut room = self.state.lock();
        let asks = room.asks.get_or_insert_mut(source, || Asks::Only(model));
        if *asks != Asks::Only(model) {
            *asks = Asks::Several;
        }
    }

    /// A request of the caller's with this deadline came too late to be answered, and would have, until later.
    pub(super) fn turn_away(&self, caller: &Caller, deadline: Deadline, retry_after: Duration) {
        let now = Instant::now();
        let mut room = self.state.lock();
        let Some(share) = room.sources.get_mut(&caller.source) else {
            return;
        };
        let left = deadline.instant().map_or(Duration::MAX, |instant| {
            instant.saturating_duration_since(now)
        });
        share.turned_away = Some(TurnedAway {
            priority: caller.priority,
            left,
            retry_after,
            until: now + retry_after.min(TURNED_AWAY_FOR),
        });
    }

    /// Whether a request of the caller's with this deadline would be told the same as the last one, and what that was:
    /// when it makes sense to come back. Of a source that asks for one model alone; the first request that it ever sends
    /// for another may be taken for one of these.
    pub(super) fn turns_away(&self, caller: &Caller, deadline: Deadline) -> Option<Duration> {
        let now = Instant::now();
        let room = self.state.lock();
        let last = room.sources.get(&caller.source)?.turned_away?;
        let has = deadline.instant()?.saturating_duration_since(now);
        let no_better = has <= last.left && caller.priority >= last.priority;
        let key = caller.source.key(&self.state.names);
        let of_one_model = matches!(room.asks.peek(&key), Some(Asks::Only(_)));
        (no_better && of_one_model && now < last.until).then_some(last.retry_after)
    }

    /// Requests that hold a permit.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> u64 {
        self.state.lock().all.requests
    }
}

// === impl State ===

impl State {
    fn lock(&self) -> MutexGuard<'_, Room> {
        // Nothing that is done under the lock panics half way.
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn permit(self: &Arc<Self>, room: &mut Room, caller: &Caller, bytes: u64) -> AdmissionPermit {
        room.take(caller, Taken { requests: 1, bytes });
        AdmissionPermit {
            state: self.clone(),
            caller: caller.clone(),
            bytes,
        }
    }

    /// Gives permits to those who wait, as far as there is room.
    fn grant(self: &Arc<Self>) {
        loop {
            let mut room = self.lock();
            let Some(waiter) = room.next_waiter(&self.config) else {
                return;
            };
            let permit = self.permit(&mut room, &waiter.caller, waiter.bytes);
            drop(room);
            // One who has just stopped waiting gives it back right here, and another gets it.
            drop(waiter.grant.send(permit));
        }
    }
}

// === impl Room ===

impl Room {
    /// Whether there is room for `more` of the caller's.
    fn check(&self, config: &Config, caller: &Caller, more: Taken) -> Result<(), Overloaded> {
        match self.fit(config, caller, more) {
            Fit::Now => Ok(()),
            Fit::ShareFull | Fit::TooLarge => Err(Overloaded),
        }
    }

    fn fit(&self, config: &Config, caller: &Caller, more: Taken) -> Fit {
        let own = self
            .sources
            .get(&caller.source)
            .map_or(Taken::default(), |share| share.taken);
        let bounds = Taken {
            requests: config.max_requests as u64,
            bytes: config.max_bytes,
        };
        let fit = |of: fn(Taken) -> u64| {
            let free = of(bounds).saturating_sub(of(self.all));
            let by_batch = of(self.by_batch);
            let free_to_it = match caller.priority {
                Priority::Interactive => free,
                // A single one as large as all that may be held finds room when nothing is.
                Priority::Batch if by_batch == 0 => free,
                Priority::Batch => free.saturating_sub(by_batch),
            };
            let own = of(own);
            let full = own > 0 && own >= MULTIPLE.saturating_mul(free_to_it);
            if full {
                Fit::ShareFull
            } else if of(more) > free {
                Fit::TooLarge
            } else if of(more) > free_to_it {
                Fit::ShareFull
            } else {
                Fit::Now
            }
        };
        match fit(|of| of.requests) {
            Fit::Now => fit(|of| of.bytes),
            // Nobody takes more than one place: whoever finds none waits for his share, or everybody does.
            Fit::ShareFull | Fit::TooLarge => Fit::ShareFull,
        }
    }

    /// Takes out the next who waits and for whom there is room.
    fn next_waiter(&mut self, config: &Config) -> Option<Waiter> {
        if self.waiters.is_empty() {
            return None;
        }
        let mut waiters = std::mem::take(&mut self.waiters);
        let mut for_streams = config.clone();
        // A frame as large as all that may be held still finds room when nothing is.
        if self.all.requests > 0 {
            for_streams.max_requests -= config.max_requests / LEFT_TO_CALLS as usize;
            for_streams.max_bytes -= config.max_bytes / LEFT_TO_CALLS;
        }
        let next = waiters.next(|waiter| {
            let more = Taken {
                requests: 1,
                bytes: waiter.bytes,
            };
            self.fit(&for_streams, &waiter.caller, more)
        });
        self.waiters = waiters;
        next
    }

    fn take(&mut self, caller: &Caller, more: Taken) {
        self.all = self.all.plus(more);
        if caller.priority == Priority::Batch {
            self.by_batch = self.by_batch.plus(more);
        }
        match self.sources.get_mut(&caller.source) {
            Some(share) => share.taken = share.taken.plus(more),
            None => {
                let share = Share {
                    taken: more,
                    ..Share::default()
                };
                self.sources.insert(caller.source.clone(), share);
            }
        }
    }

    fn give_back(&mut self, caller: &Caller, less: Taken) {
        self.all = self.all.minus(less);
        if caller.priority == Priority::Batch {
            self.by_batch = self.by_batch.minus(less);
        }
        if let Some(share) = self.sources.get_mut(&caller.source) {
            share.taken = share.taken.minus(less);
            if share.taken.requests == 0 {
                self.sources.remove(&caller.source);
            }
        }
    }
}

// === impl Taken ===

impl Taken {
    fn plus(self, more: Taken) -> Taken {
        Taken {
            requests: self.requests + more.requests,
            bytes: self.bytes + more.bytes,
        }
    }

    fn minus(self, less: Taken) -> Taken {
        Taken {
            requests: self.requests - less.requests,
            bytes: self.bytes - less.bytes,
        }
    }
}

// === impl WaitingPlace ===

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        let mut room = self.state.lock();
        room.waiters.remove(&self.source, self.name);
        drop(room);
        // It may have been the one that nobody may pass any more.
        self.state.grant();
    }
}

// === impl AdmissionPermit ===

impl AdmissionPermit {
    /// The caller's share, by the name that the scheduler knows it by.
    pub(super) fn source(&self) -> SourceKey {
        self.caller.source.key(&self.state.names)
    }

    /// What it is for, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Who was given it.
    pub(super) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// How urgent the caller said that it is.
    pub(super) fn priority(&self) -> Priority {
        self.caller.priority
    }

    /// Makes the permit one for `bytes`: a message that was sent compressed turns out larger once it is
    /// inflated. The place is kept either way.
    ///
    /// # Errors
    /// [`Overloaded`] when there is no room for the difference; the permit is then as it was.
    pub fn resize(&mut self, bytes: u64) -> Result<(), Overloaded> {
        let mut room = self.state.lock();
        match bytes.checked_sub(self.bytes) {
            Some(0) => {}
            Some(bytes) => {
                let more = Taken { requests: 0, bytes };
                room.check(&self.state.config, &self.caller, more)?;
                room.take(&self.caller, more);
            }
            None => {
                let less = Taken {
                    requests: 0,
                    bytes: self.bytes - bytes,
                };
                room.give_back(&self.caller, less);
            }
        }
        drop(room);
        self.bytes = bytes;
        self.state.grant();
        Ok(())
    }
}

impl Drop for AdmissionPermit {
    fn drop(&mut self) {
        let all = Taken {
            requests: 1,
            bytes: self.bytes,
        };
        self.state.lock().give_back(&self.caller, all);
        self.state.grant();
    }
}

#[cfg(test)]
mod tests;
