//! `grpc.health.v1`: what the models' states mean for a load balancer.
//!
//! | name | SERVING when |
//! |---|---|
//! | `""` and the service's full name | every required model is ready and the server is not draining |
//! | `detectd.v1.DetectionService/<model>` | that model is ready and the server is not draining |
//! | `liveness` | the process can still make progress |
//!
//! NOT_SERVING from before the port is open until all that is so. The service is our own, over tonic's generated
//! types: tonic's starts with `""` SERVING, answers a watch of an unknown name with an error instead of
//! SERVICE_UNKNOWN, and cannot end its watches, which would hold up the end of the server.

use std::collections::BTreeMap;
use std::pin::Pin;

use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::pipeline::Readiness;

/// The service's full name.
pub(super) const SERVICE: &str = "detectd.v1.DetectionService";

/// Every known name, and whether it is serving.
type Statuses = BTreeMap<String, bool>;

/// Answers health checks. One for all connections.
#[derive(Debug)]
pub(super) struct HealthService {
    statuses: watch::Receiver<Statuses>,
}

/// Keeps the statuses true.
#[derive(Debug)]
pub(super) struct HealthKeeper {
    statuses: watch::Sender<Statuses>,
    readiness: watch::Receiver<Readiness>,
}

// === impl HealthKeeper ===

impl HealthKeeper {
    pub(super) fn new(mut readiness: watch::Receiver<Readiness>) -> Self {
        let statuses = watch::Sender::new(statuses(&readiness.borrow_and_update(), false));
        Self {
            statuses,
            readiness,
        }
    }

    pub(super) fn service(&self) -> HealthService {
        HealthService {
            statuses: self.statuses.subscribe(),
        }
    }

    /// Follows the models' states. From `draining` on all but liveness is NOT_SERVING; at `stop` every watch
    /// ends.
    pub(super) async fn keep(mut self, draining: CancellationToken, stop: CancellationToken) {
        while !draining.is_cancelled() {
            self.tell(false);
            tokio::select! {
                biased;
                () = draining.cancelled() => {}
                changed = self.readiness.changed() => if changed.is_err() { break },
            }
        }
        self.tell(true);
        stop.cancelled().await;
        // With the sender the watches go, each after it was told the last status.
    }

    fn tell(&mut self, draining: bool) {
        let now = statuses(&self.readiness.borrow_and_update(), draining);
        self.statuses.send_if_modified(|told| {
            let changed = *told != now;
            *told = now;
            changed
        });
    }
}

fn statuses(readiness: &Readiness, draining: bool) -> Statuses {
    let mut statuses = Statuses::from([
        ("liveness".to_owned(), readiness.is_live()),
        (String::new(), readiness.is_ready() && !draining),
        (SERVICE.to_owned(), readiness.is_ready() && !draining),
    ]);
    for model in readiness.models() {
        statuses.insert(
            format!("{SERVICE}/{}", model.name),
            model.is_ready() && !draining,
        );
    }
    statuses
}

// === impl HealthService ===

#[tonic::async_trait]
impl Health for HealthService {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let serving = self
            .statuses
            .borrow()
            .get(&request.get_ref().service)
            .copied();
        match serving {
            Some(serving) => Ok(Response::new(response(Some(serving)))),
            None => Err(Status::not_found("there is no such service")),
        }
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let service = request.into_inner().service;
        let mut told = None;
        // The first status at once, and then changes of this name's only.
        let changes = WatchStream::new(self.statuses.clone()).filter_map(move |statuses| {
            let serving = statuses.get(&service).copied();
            (told.replace(serving) != Some(serving)).then(|| Ok(response(serving)))
        });
        Ok(Response::new(Box::pin(changes)))
    }
}

/// `None` is a name that is not known, which may become known later.
fn response(serving: Option<bool>) -> HealthCheckResponse {
    let status = match serving {
        Some(true) => ServingStatus::Serving,
        Some(false) => ServingStatus::NotServing,
        None => ServingStatus::ServiceUnknown,
    };
    HealthCheckResponse {
        status: status.into(),
    }
}
