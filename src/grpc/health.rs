//! `grpc.health.v1`: what the models' states mean for a load balancer.
//!
//! | name | SERVING when |
//! |---|---|
//! | `""` and the service's full name | every required model is ready and the server is not draining |
//! | `detectd.v1.DetectionService/<model>` | that model is ready and the server is not draining |
//! | `liveness` | the process can still make progress |
//!
//! NOT_SERVING from before the port is open until all that is so.

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::pipeline::Readiness;

/// The service's full name.
pub(super) const SERVICE: &str = "detectd.v1.DetectionService";

/// Makes the reporter, with everything but liveness NOT_SERVING. tonic's own starts with `""` SERVING.
pub(super) async fn reporter(readiness: &Readiness) -> HealthReporter {
    let reporter = HealthReporter::new();
    publish(&reporter, readiness, true).await;
    reporter
        .set_service_status("liveness", ServingStatus::Serving)
        .await;
    reporter
}

/// Follows the models' states until the server drains; then everything but liveness is NOT_SERVING for good.
pub(super) async fn follow(
    reporter: HealthReporter,
    mut readiness: watch::Receiver<Readiness>,
    draining: CancellationToken,
) {
    loop {
        let now = readiness.borrow_and_update().clone();
        publish(&reporter, &now, draining.is_cancelled()).await;
        tokio::select! {
            biased;
            () = draining.cancelled() => break,
            changed = readiness.changed() => if changed.is_err() { break },
        }
    }
    let last = readiness.borrow().clone();
    publish(&reporter, &last, true).await;
}

async fn publish(reporter: &HealthReporter, readiness: &Readiness, draining: bool) {
    let status = |ready: bool| match ready && !draining {
        true => ServingStatus::Serving,
        false => ServingStatus::NotServing,
    };
    for model in readiness.models() {
        reporter
            .set_service_status(
                format!("{SERVICE}/{}", model.name),
                status(model.is_ready()),
            )
            .await;
    }
    reporter
        .set_service_status(SERVICE, status(readiness.is_ready()))
        .await;
    reporter
        .set_service_status("", status(readiness.is_ready()))
        .await;
}
