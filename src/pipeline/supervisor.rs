//! The supervisor: makes another instance for each that is lost, and says which models have none.
//!
//! Every instance of a model has a [`Seat`]: its recipe, and what sits there now. A lost one is made anew by the
//! same recipe under a new name, after a wait that doubles from loss to loss. A thread that hangs cannot be
//! ended; it keeps its engine and its buffers. So there is a cap on how many of them a model may leave behind:
//! from there on nothing is made for it until one comes back. Nothing is made during a drain.

mod seat;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::instances::Loss;
use super::loader::{Loader, WarmInstance};
use super::registry::Registry;
use crate::device::{EngineError, Signature};
use crate::scheduling::{InstanceKey, ModelKey};
use seat::{Seat, Sits};

/// A model may leave at least so many threads behind, and otherwise as many as it has instances: then every one of
/// them has hung once, and what is wrong is not wrong with one of them. Two, so that a model with a single
/// instance is not lost by one accident.
const MIN_LEFT_BEHIND: usize = 2;

/// A load that takes this many times what it took at the start hangs, like a run does: see `pipeline.devices.watchdog`,
/// which is the least that either is given.
const HANGS: u32 = 20;

/// What the supervisor is told.
#[derive(Debug)]
pub(super) enum News {
    /// A model's instances go into service.
    Serving(Supervised),
    /// Requests find the model from now on.
    Ready(ModelKey),
    /// An instance in service is lost.
    Lost(InstanceKey, Loss),
    /// The thread of one that hung has ended.
    CameBack(InstanceKey),
}

/// A model in service, as the supervisor sees it.
#[derive(Debug)]
pub(super) struct Supervised {
    name: String,
    key: ModelKey,
    /// What requests in service were fitted to.
    signature: Signature,
    /// The longest that an instance of it took to be warm.
    took: Duration,
    seats: Vec<Seat>,
    /// Instances whose threads hang.
    left_behind: HashSet<InstanceKey>,
    /// Why the last one was lost, or could not be made.
    why: String,
}

/// Replaces what is lost. One for all models.
#[derive(Debug)]
pub(super) struct Supervisor {
    registry: Arc<Registry>,
    loader: Arc<Loader>,
    news: mpsc::Receiver<News>,
    stop: CancellationToken,
    models: Vec<Supervised>,
    steps: JoinSet<Step>,
    /// Threads that were given up while they loaded, and ended before that was known here.
    back_early: HashSet<InstanceKey>,
}

/// Which model and which seat of it.
type Place = (usize, usize);

/// A warm instance, or why there is none, with its name if its thread was left behind.
type Outcome = Result<Box<WarmInstance>, (EngineError, Option<InstanceKey>)>;

/// Something that was waited for.
#[derive(Debug)]
enum Step {
    /// The wait before another instance is made is over.
    Due(Place),
    /// An instance is warm, or could not be had.
    Made(Place, Outcome),
}

// === impl Supervised ===

impl Supervised {
    /// Of a model and all of its instances, which are about to go into service. `None` when there are none.
    pub(super) fn new(name: &str, key: ModelKey, instances: &[WarmInstance]) -> Option<Self> {
        let seat = |warm: &WarmInstance| Seat::new(warm.recipe.clone(), warm.key, Instant::now());
        Some(Self {
            name: name.to_owned(),
            key,
            signature: instances.first()?.loaded.signature.clone(),
            took: instances.iter().map(|warm| warm.took).max()?,
            seats: instances.iter().map(seat).collect(),
            left_behind: HashSet::new(),
            why: String::new(),
        })
    }

    /// Whether another thread may be risked.
    fn may_rebuild(&self) -> bool {
        self.left_behind.len() < self.seats.len().max(MIN_LEFT_BEHIND)
    }

    fn tell(&self, registry: &Registry) {
        let name = &self.name;
        if self.seats.iter().any(Seat::is_live) {
            return registry.recovered(name);
        }
        let (why, hung) = (&self.why, self.left_behind.len());
        if self.seats.iter().all(Seat::is_held) {
            let detail = format!(
                "no instance is left ({why}); {hung} threads hang, so none is made until one of them comes back"
            );
            registry.lost_all(name, &detail, false);
        } else {
            let detail = format!("no instance is left ({why}); others are being made");
            registry.lost_all(name, &detail, true);
        }
    }
}

// === impl Supervisor ===

impl Supervisor {
    pub(super) fn new(
        registry: Arc<Registry>,
        loader: Arc<Loader>,
        news: mpsc::Receiver<News>,
        stop: CancellationToken,
    ) -> Self {
        Self {
            registry,
            loader,
            news,
            stop,
            models: Vec::new(),
            steps: JoinSet::new(),
            back_early: HashSet::new(),
        }
    }

    /// Runs until the drain. What is being made then is let go.
    pub(super) async fn run(mut self) {
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                Some(news) = self.news.recv() => self.hear(news),
                Some(step) = self.steps.join_next() => match step {
                    Ok(Step::Due(place)) => self.make(place),
                    Ok(Step::Made(place, outcome)) => self.made(place, outcome).await,
                    Err(error) => tracing::error!(%error, "an instance that was being made is lost"),
                },
            }
        }
    }

    fn hear(&mut self, news: News) {
        match news {
            News::Serving(model) => self.models.push(model),
            News::Ready(key) => {
                // Its instances may be lost already, which could not be told of a model that was not ready.
                let model = self.models.iter().find(|model| model.key == key);
                if let Some(model) = model {
                    model.tell(&self.registry);
                }
            }
            News::Lost(key, loss) => self.lost(key, &loss),
            News::CameBack(key) => self.came_back(key),
        }
    }

    fn lost(&mut self, key: InstanceKey, loss: &Loss) {
        let sits = |model: &Supervised| model.seats.iter().position(|seat| seat.holds(key));
        let mut places = self.models.iter().enumerate();
        let Some((m, s)) = places.find_map(|(m, model)| Some((m, sits(model)?))) else {
            return;
        };
        let model = &mut self.models[m];
        model.why = loss.to_string();
        if matches!(loss, Loss::Hung) {
            model.left_behind.insert(key);
        }
        self.empty((m, s));
    }

    fn came_back(&mut self, key: InstanceKey) {
        let mut models = self.models.iter_mut();
        let Some(m) = models.position(|model| model.left_behind.remove(&key)) else {
            self.back_early.insert(key);
            return;
        };
        tracing::warn!(
            model = self.models[m].name,
            instance = key.0,
            "an instance that hung came back and was let go"
        );
        for s in 0..self.models[m].seats.len() {
            if self.models[m].seats[s].is_held() {
                self.empty((m, s));
            }
        }
    }

    /// A seat is empty: another instance is made for it after a while, if that may be.
    fn empty(&mut self, (m, s): Place) {
        let model = &mut self.models[m];
        if model.may_rebuild() {
            let wait = model.seats[s].wait(Instant::now());
            self.steps.spawn(async move {
                sleep(wait).await;
                Step::Due((m, s))
            });
        } else {
            Self::hold(model, s);
        }
        self.models[m].tell(&self.registry);
    }

    fn hold(model: &mut Supervised, s: usize) {
        // Once each time that the cap is met.
        if !model.seats.iter().any(Seat::is_held) {
            tracing::error!(
                model = model.name,
                hung = model.left_behind.len(),
                "as many threads of the model hang as may: no instance of it is made until one comes back"
            );
        }
        model.seats[s].sits = Sits::Held;
    }

    fn make(&mut self, (m, s): Place) {
        let model = &mut self.models[m];
        // Others may have been left behind during the wait.
        if !model.may_rebuild() {
            Self::hold(model, s);
            return model.tell(&self.registry);
        }
        model.seats[s].sits = Sits::Coming;
        let patience = (HANGS * model.took).max(self.loader.watchdog);
        let starting = self.loader.start(model.seats[s].recipe.clone());
        self.steps.spawn(async move {
            let outcome = match starting {
                Ok(starting) => starting.warm_within(patience).await.map(Box::new),
                Err(error) => Err((error, None)),
            };
            Step::Made((m, s), outcome)
        });
    }

    async fn made(&mut self, (m, s): Place, outcome: Outcome) {
        let model = &mut self.models[m];
        // The file may have been replaced since; requests in service were fitted to what it was.
        let outcome = outcome.and_then(|warm| match warm.loaded.signature == model.signature {
            true => Ok(warm),
            false => {
                let changed = "the network's file has changed since the model was loaded";
                Err((EngineError::Signature(changed.to_owned()), None))
            }
        });
        match outcome {
            Ok(warm) => {
                let key = warm.key;
                self.loader.put_into_service(model.key, *warm).await;
                tracing::info!(
                    model = model.name,
                    instance = key.0,
                    "an instance was replaced"
                );
                model.seats[s].take(key, Instant::now());
                model.tell(&self.registry);
            }
            Err((error, left_behind)) => {
                tracing::error!(model = model.name, %error, "an instance cannot be made again");
                model.why = error.to_string();
                let hangs = left_behind.filter(|key| !self.back_early.remove(key));
                model.left_behind.extend(hangs);
                self.empty((m, s));
            }
        }
    }
}
