//! The batching actor: one task that feeds the [`Machine`] with what happens and carries out what it decides.
//!
//! The actor holds no policy. Nothing it calls may block: [`Stages`] hands work to threads that are known to
//! have room for it, because the machine counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use super::event::{Action, Arrival, Event, InstanceKey, Outcome, Placement, RequestId};
use super::machine::{Machine, Policy};
use super::message::{Completion, Request};

/// The actor's settings.
#[derive(Debug, Clone)]
pub struct Config {
    /// The most requests that admission lets in before they are prepared.
    pub max_waiting: usize,
    /// What the machine goes by.
    pub policy: Policy,
    /// The most model instances there will be.
    pub max_instances: usize,
}

/// Carries out what the machine decides. Called from the actor's task: every method returns at once.
pub trait Stages<W, R>: Send + 'static {
    /// Starts preparing a request on a CPU worker; at most [`Policy::workers`] are out at a time. It comes
    /// back through [`Completions::prepared`] or [`Completions::prepare_failed`], whatever happens.
    fn prepare(&mut self, id: RequestId, payload: W, waited: Duration);

    /// Hands a batch to an instance: at most one, or two when it is pipelined, are out at a time.
    /// It comes back through [`Completions::batch_finished`].
    fn run(&mut self, instance: InstanceKey, bucket: usize, batch: Vec<(RequestId, R)>);

    /// What was to run on an instance that had gone by then. Asked when that instance is reported down: until then the
    /// machine could not know.
    fn stranded(&mut self, _instance: InstanceKey) -> Vec<(RequestId, R)> {
        Vec::new()
    }

    /// Gives up an instance that hangs: takes back what it was given, leaves it behind and reports
    /// [`Completions::instance_down`].
    fn eject(&mut self, instance: InstanceKey);

    /// Answers a request that is let go before it was prepared.
    fn drop_waiting(&mut self, payload: W, outcome: Outcome);

    /// Answers a request that is let go before it ran.
    fn drop_ready(&mut self, payload: R, outcome: Outcome);
}

/// The doors' handle: sends requests in. Cheap to clone. When the last one is gone the actor finishes what it
/// has and stops.
#[derive(Debug)]
pub struct Batcher<W> {
    requests: mpsc::Sender<Request<W>>,
    next_id: Arc<AtomicU64>,
}

/// The workers' and instances' handle: reports what is done. Cheap to clone.
#[derive(Debug)]
pub struct Completions<W, R> {
    sender: mpsc::Sender<Completion<W, R>>,
}

/// A request's place. Dropping it takes the request, and all that it was cut into, out of the line, or off the shelf, at
/// once; what is already with a device runs on and its result is thrown away. Call [`Ticket::answered`] instead when the
/// answer has come.
#[derive(Debug)]
#[must_use = "dropping a ticket abandons the request"]
pub struct Ticket<W> {
    id: RequestId,
    requests: Option<mpsc::Sender<Request<W>>>,
}

/// The actor's mailbox is full: more requests came in than it could be told of.
#[derive(Debug)]
pub struct Full<W>(pub W);

/// The actor, not yet running.
#[derive(Debug)]
pub struct Worker<W, R, S> {
    requests: mpsc::Receiver<Request<W>>,
    completions: mpsc::Receiver<Completion<W, R>>,
    /// Names pieces of pictures.
    next_id: Arc<AtomicU64>,
    machine: Machine<W, R>,
    stages: S,
    /// Kept from turn to turn for its memory.
    actions: Vec<Action<W, R>>,
}

/// A channel for workers and instances, made before the actor so that [`Stages`] can hold the sending end.
pub fn completions<W, R>(config: &Config) -> (Completions<W, R>, CompletionsReceiver<W, R>) {
    // Each worker has one request in hand, and each instance at most two batches plus one coming up or going
    // down, so a report always finds room and no worker ever waits for the actor.
    let (sender, receiver) = mpsc::channel(config.policy.workers + 4 * config.max_instances);
    (Completions { sender }, CompletionsReceiver(receiver))
}

/// The receiving end of [`completions`], for [`Batcher::new`].
#[derive(Debug)]
pub struct CompletionsReceiver<W, R>(mpsc::Receiver<Completion<W, R>>);

// === impl Batcher ===

impl<W> Batcher<W> {
    /// Makes the actor. Run the [`Worker`] on the runtime.
    pub fn new<R, S>(
        config: &Config,
        completions: CompletionsReceiver<W, R>,
        stages: S,
    ) -> (Self, Worker<W, R, S>) {
        // An admitted request is told of once when it comes and at most once when its caller leaves.
        let (sender, requests) = mpsc::channel(2 * config.max_waiting.max(1));
        let next_id: Arc<AtomicU64> = Arc::default();
        let worker = Worker {
            requests,
            completions: completions.0,
            next_id: next_id.clone(),
            machine: Machine::new(config.policy),
            stages,
            actions: Vec::new(),
        };
        (
            Self {
                requests: sender,
                next_id,
            },
            worker,
        )
    }

    /// Puts a request into the line; `arrival` is given its name.
    ///
    /// # Errors
    /// [`Full`] gives the request back when the actor has fallen behind what admission allows, or stopped.
    pub fn arrive(
        &self,
        arrival: impl FnOnce(RequestId) -> Arrival<W>,
    ) -> Result<Ticket<W>, Full<W>> {
        let id = RequestId(self.next_id.fetch_add(1, Ordering::Relaxed));
        let arrival = arrival(id);
        match self.requests.try_send(Request::Arrived(arrival)) {
            Ok(()) => Ok(Ticket {
                id,
                requests: Some(self.requests.clone()),
            }),
            Err(
                TrySendError::Full(Request::Arrived(arrival))
                | TrySendError::Closed(Request::Arrived(arrival)),
            ) => Err(Full(arrival.payload)),
            Err(_) => unreachable!("the request that was sent comes back"),
        }
    }
}

impl<W> Clone for Batcher<W> {
    fn clone(&self) -> Self {
        Self {
            requests: self.requests.clone(),
            next_id: self.next_id.clone(),
        }
    }
}

// === impl Ticket ===

impl<W> Ticket<W> {
    /// The answer has come: nothing is left to take out.
    pub fn answered(mut self) {
        self.requests = None;
    }
}

impl<W> Drop for Ticket<W> {
    fn drop(&mut self) {
        if let Some(requests) = self.requests.take() {
            // Should the mailbox be full or closed, the request is found abandoned by its reply channel
            // before it is prepared; it only stands in the line a little longer.
            drop(requests.try_send(Request::Abandoned(self.id)));
        }
    }
}

// === impl Completions ===

impl<W, R> Completions<W, R> {
    /// Reports a prepared request, with which a worker was busy for so long, and what of a picture that was to be cut
    /// is still to be prepared.
    pub fn prepared(&self, id: RequestId, payload: R, pieces: Vec<W>, took: Duration) {
        self.send(Completion::Prepared {
            id,
            payload,
            pieces,
            took,
        });
    }

    /// Reports a request that could not be prepared and has been answered, likewise.
    pub fn prepare_failed(&self, id: RequestId, took: Duration) {
        self.send(Completion::PrepareFailed { id, took });
    }

    /// Reports an instance that is warm and idle, and returns once the scheduler knows it: a request that
    /// comes later finds it.
    pub async fn instance_up(&self, instance: InstanceKey, placement: Placement) {
        let (known, acknowledged) = oneshot::channel();
        self.send(Completion::InstanceUp(instance, placement, known));
        // No acknowledgement comes from an actor that has stopped, and none is needed then.
        drop(acknowledged.await);
    }

    /// Reports that an instance can take another batch, and how long the run on the device was, if it was one run.
    pub fn batch_finished(&self, instance: InstanceKey, took: Option<Duration>) {
        self.send(Completion::BatchFinished { instance, took });
    }

    /// Reports that an instance is gone, and what it was given and has not answered.
    pub fn instance_down(&self, instance: InstanceKey, returned: Vec<(RequestId, R)>) {
        self.send(Completion::InstanceDown { instance, returned });
    }

    fn send(&self, completion: Completion<W, R>) {
        match self.sender.try_send(completion) {
            Ok(()) => {}
            // The actor has stopped: the process is on its way out and nobody waits for this any more.
            Err(TrySendError::Closed(_)) => {}
            Err(TrySendError::Full(_)) => {
                unreachable!("the channel has room for all that can be out")
            }
        }
    }
}

impl<W, R> Clone for Completions<W, R> {
    fn clone(&self) -> Self {
        Self {
            sender: self.sender.clone(),
        }
    }
}

// === impl Worker ===

impl<W, R, S: Stages<W, R>> Worker<W, R, S> {
    /// Runs until every [`Batcher`] is dropped and what was let in has been handed on.
    pub async fn run(mut self) {
        loop {
            tokio::select! {
                // A free worker or instance before a new request: finishing comes before starting.
                biased;
                Some(completion) = self.completions.recv() => self.complete(completion),
                request = self.requests.recv() => match request {
                    Some(request) => self.turn(request.into()),
                    None => break,
                },
                () = sleep_until(self.machine.next_tick()) => self.turn(Event::Tick),
            }
            self.catch_up();
        }
        // No request can come any more; those in the line still go their way.
        while self.machine.pending() > 0 {
            tokio::select! {
                biased;
                Some(completion) = self.completions.recv() => self.complete(completion),
                () = sleep_until(self.machine.next_tick()) => self.turn(Event::Tick),
            }
        }
    }

    /// Takes in what else has come meanwhile, without going to sleep in between.
    ///
    /// Bounded, so that the runtime's other tasks on this thread get their turn.
    fn catch_up(&mut self) {
        const EVENTS_A_TURN: usize = 64;
        for _ in 0..EVENTS_A_TURN {
            if let Ok(completion) = self.completions.try_recv() {
                self.complete(completion);
            } else if let Ok(request) = self.requests.try_recv() {
                self.turn(request.into());
            } else {
                return;
            }
        }
    }

    fn complete(&mut self, completion: Completion<W, R>) {
        match completion {
            Completion::Prepared {
                id,
                payload,
                pieces,
                took,
            } => {
                let name = |piece| {
                    let id = self.next_id.fetch_add(1, Ordering::Relaxed);
                    (RequestId(id), piece)
                };
                let pieces = pieces.into_iter().map(name).collect();
                self.turn(Event::Prepared {
                    id,
                    payload,
                    pieces,
                    took,
                });
            }
            Completion::PrepareFailed { id, took } => {
                self.turn(Event::PrepareFailed { id, took });
            }
            Completion::InstanceUp(key, placement, known) => {
                self.turn(Event::InstanceUp(key, placement));
                if known.send(()).is_err() {
                    tracing::debug!(
                        instance = key.0,
                        "nobody waited for an instance to be known"
                    );
                }
            }
            Completion::BatchFinished { instance, took } => {
                self.turn(Event::BatchFinished { instance, took });
            }
            Completion::InstanceDown {
                instance,
                mut returned,
            } => {
                returned.extend(self.stages.stranded(instance));
                self.turn(Event::InstanceDown { instance, returned });
            }
        }
    }

    fn turn(&mut self, event: Event<W, R>) {
        let mut actions = std::mem::take(&mut self.actions);
        self.machine.handle(event, now(), &mut actions);
        for action in actions.drain(..) {
            match action {
                Action::Prepare {
                    id,
                    payload,
                    waited,
                } => self.stages.prepare(id, payload, waited),
                Action::Run {
                    instance,
                    bucket,
                    batch,
                } => self.stages.run(instance, bucket, batch),
                Action::Eject(instance) => self.stages.eject(instance),
                Action::DropWaiting(payload, outcome) => self.stages.drop_waiting(payload, outcome),
                Action::DropReady(payload, outcome) => self.stages.drop_ready(payload, outcome),
            }
        }
        self.actions = actions;
    }
}

/// The runtime's clock, which a test can hold still.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

async fn sleep_until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant.into()).await,
        None => std::future::pending().await,
    }
}

impl<W, R> From<Request<W>> for Event<W, R> {
    fn from(request: Request<W>) -> Self {
        match request {
            Request::Arrived(arrival) => Event::Arrived(arrival),
            Request::Abandoned(id) => Event::Abandoned(id),
        }
    }
}

#[cfg(test)]
mod tests;
