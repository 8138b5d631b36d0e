//! The instances in service: where a batch is handed over, and how one that is lost is taken out.
//!
//! An instance leaves in one of three ways: its thread ends by itself, the watchdog gives it up, or a batch finds that
//! it has gone. Whoever takes it out of here has it alone, and tells the scheduler once, with everything that it was
//! given and has not answered.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::mpsc;

use super::metrics::Metrics;
use super::placement::MAX_INSTANCES;
use super::stages::{Context, Waiting};
use super::supervisor::News;
use crate::device::{EngineError, Instance, InstanceLabels, Picture};
use crate::scheduling::{Completions, InstanceKey, RequestId};

/// The instances in service. Clones share them; with the last one their threads end.
#[derive(Debug, Clone)]
pub(super) struct Instances {
    shared: Arc<Shared>,
}

/// The same for the instances' own threads, which must not keep themselves alive.
#[derive(Debug, Clone)]
pub(super) struct WeakInstances {
    shared: Weak<Shared>,
}

#[derive(Debug)]
struct Shared {
    placed: Mutex<HashMap<InstanceKey, Placed>>,
    completions: Completions<Waiting, Picture<Context>>,
    news: mpsc::Sender<News>,
    metrics: Metrics,
}

#[derive(Debug)]
struct Placed {
    instance: Instance<Context>,
    labels: InstanceLabels,
}

/// Why an instance is lost.
#[derive(Debug, Clone)]
pub(super) enum Loss {
    /// Its run did not end in time. Its thread is left behind.
    Hung,
    /// Its thread ended.
    BrokeDown(EngineError),
}

/// The pictures of a batch as the scheduler handed them out.
pub(super) type HandedOut = Vec<(RequestId, Picture<Context>)>;

// === impl Loss ===

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Hung => f.write_str("it hung"),
            Self::BrokeDown(error) => write!(f, "it broke down: {error}"),
        }
    }
}

// === impl Instances ===

impl Instances {
    /// None yet, and the supervisor's end of what is told about them.
    pub(super) fn new(
        completions: Completions<Waiting, Picture<Context>>,
        metrics: Metrics,
    ) -> (Self, mpsc::Receiver<News>) {
        // Two of each instance: that it is lost, and that its thread has come back after all. One that replaces it
        // comes up only after the first was read.
        let (news, heard) = mpsc::channel(2 * MAX_INSTANCES);
        let shared = Shared {
            placed: Mutex::default(),
            completions,
            news,
            metrics,
        };
        let shared = Arc::new(shared);
        (Self { shared }, heard)
    }

    pub(super) fn downgrade(&self) -> WeakInstances {
        WeakInstances {
            shared: Arc::downgrade(&self.shared),
        }
    }

    /// Where the supervisor is told things.
    pub(super) fn news(&self) -> mpsc::Sender<News> {
        self.shared.news.clone()
    }

    /// Puts a warm instance into service. The scheduler is to be told afterwards: it may send a batch at once.
    pub(super) fn insert(
        &self,
        key: InstanceKey,
        labels: InstanceLabels,
        instance: Instance<Context>,
    ) {
        self.shared.metrics.instances.get_or_create(&labels).inc();
        let placed = Placed { instance, labels };
        self.shared.lock().insert(key, placed);
    }

    /// Hands a batch to an instance. One that turns out to have gone is lost with the batch.
    ///
    /// # Errors
    /// The batch, when the instance was lost before: it belongs to the report of that.
    pub(super) fn send(
        &self,
        key: InstanceKey,
        bucket: usize,
        batch: HandedOut,
    ) -> Result<(), HandedOut> {
        let mut placed = self.shared.lock();
        let Some(instance) = placed.get(&key) else {
            return Err(batch);
        };
        let pictures = batch.into_iter().map(|(_, picture)| picture).collect();
        let Err((_, refused)) = instance.instance.try_send((bucket, pictures)) else {
            return Ok(());
        };
        let gone = placed.remove(&key);
        drop(placed);
        if let Some(gone) = gone {
            let error = EngineError::Thread("it has ended".to_owned());
            self.shared
                .lose(key, gone, refused, &Loss::BrokeDown(error));
        }
        Ok(())
    }

    /// Takes an instance out of service, and reports it with all that it has in hand. Does nothing when somebody
    /// else has done so before.
    pub(super) fn lose(&self, key: InstanceKey, loss: &Loss) {
        let lost = self.shared.lock().remove(&key);
        if let Some(lost) = lost {
            self.shared.lose(key, lost, Vec::new(), loss);
        }
    }

    /// Ends the instances' threads once they have run what they were sent.
    pub(super) fn clear(&self) {
        let all = std::mem::take(&mut *self.shared.lock());
        for placed in all.into_values() {
            self.shared.came_down(&placed.labels);
        }
    }
}

// === impl WeakInstances ===

impl WeakInstances {
    /// See [`Instances::lose`].
    pub(super) fn lose(&self, key: InstanceKey, loss: &Loss) {
        if let Some(shared) = self.shared.upgrade() {
            Instances { shared }.lose(key, loss);
        }
    }

    /// A thread that was left behind has ended.
    pub(super) fn came_back(&self, key: InstanceKey) {
        if let Some(shared) = self.shared.upgrade() {
            shared.tell(News::CameBack(key));
        }
    }
}

// === impl Shared ===

impl Shared {
    fn lose(
        &self,
        key: InstanceKey,
        lost: Placed,
        mut pictures: Vec<Picture<Context>>,
        loss: &Loss,
    ) {
        let InstanceLabels { model, device } = &lost.labels;
        tracing::error!(
            instance = key.0,
            model,
            device,
            "an instance is lost: {loss}"
        );
        self.came_down(&lost.labels);
        self.metrics
            .instances_lost
            .get_or_create(&lost.labels)
            .inc();
        // Before it is given up: its thread may come back the moment after.
        self.tell(News::Lost(key, loss.clone()));
        pictures.extend(lost.instance.abandon());
        let named = pictures
            .into_iter()
            .map(|picture| (picture.context.id(), picture));
        self.completions.instance_down(key, named.collect());
    }

    fn came_down(&self, labels: &InstanceLabels) {
        self.metrics.instances.get_or_create(labels).dec();
    }

    fn tell(&self, news: News) {
        match self.news.try_send(news) {
            // Closed: the server is on its way out and nothing is rebuilt any more.
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
            Err(mpsc::error::TrySendError::Full(news)) => {
                tracing::error!(?news, "the supervisor could not be told");
            }
        }
    }

    /// The map is whole at every instant, so a panic elsewhere while it was held does not spoil it.
    fn lock(&self) -> MutexGuard<'_, HashMap<InstanceKey, Placed>> {
        self.placed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
