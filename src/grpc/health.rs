//! `grpc.health.v1`: what the models' states mean for a load balancer.
//!
//! | name | SERVING when |
//! |---|---|
//! | `""` and the service's full name | every required model is ready and the server is not draining |
//! | `detectd.v1.DetectionService/<model>` | that model is ready and the server is not draining |
//! | `liveness` | the process can still make progress |
//!
//! NOT_SERVING from before the port is open until all that is so.

use std::collections::HashMap;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic_health::ServingStatus;
use tonic_health::server::{HealthReporter, HealthService};

use crate::pipeline::Readiness;

/// The service's full name.
pub(super) const SERVICE: &str = "detectd.v1.DetectionService";

/// What health says now. Watchers are told of changes only, so it is written down what they were told.
#[derive(Debug)]
pub(super) struct Health {
    reporter: HealthReporter,
    told: HashMap<String, bool>,
}

// === impl Health ===

impl Health {
    /// Everything NOT_SERVING but liveness. tonic's own reporter starts with `""` SERVING.
    pub(super) async fn new(readiness: &Readiness) -> Self {
        let mut health = Self {
            reporter: HealthReporter::new(),
            told: HashMap::new(),
        };
        health.publish(readiness, true).await;
        health.tell("liveness".to_owned(), true).await;
        health
    }

    /// The service that answers for it.
    pub(super) fn service(&self) -> HealthService {
        HealthService::from_health_reporter(self.reporter.clone())
    }

    /// Follows the models' states until the server drains; from then on all but liveness is NOT_SERVING.
    pub(super) async fn follow(
        mut self,
        mut readiness: watch::Receiver<Readiness>,
        draining: CancellationToken,
    ) {
        loop {
            let now = readiness.borrow_and_update().clone();
            self.publish(&now, draining.is_cancelled()).await;
            tokio::select! {
                biased;
                () = draining.cancelled() => break,
                changed = readiness.changed() => if changed.is_err() { break },
            }
        }
        let last = readiness.borrow().clone();
        self.publish(&last, true).await;
    }

    async fn publish(&mut self, readiness: &Readiness, draining: bool) {
        for model in readiness.models() {
            self.tell(
                format!("{SERVICE}/{}", model.name),
                model.is_ready() && !draining,
            )
            .await;
        }
        for service in [SERVICE, ""] {
            self.tell(service.to_owned(), readiness.is_ready() && !draining)
                .await;
        }
    }

    async fn tell(&mut self, service: String, serving: bool) {
        if self.told.insert(service.clone(), serving) == Some(serving) {
            return;
        }
        let status = if serving {
            ServingStatus::Serving
        } else {
            ServingStatus::NotServing
        };
        self.reporter.set_service_status(service, status).await;
    }
}
