//! The HTTP door: probes and metrics for people and orchestrators.
//!
//! | path | answers |
//! |---|---|
//! | `/livez` | 200 while the process can make progress |
//! | `/readyz` | 200 when every required model is ready and the server is not draining, else 503; a line a model |
//! | `/metrics` | the counters, in the OpenMetrics text format |

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use prometheus_client::registry::Registry;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::pipeline::{Detector, Readiness};

/// The door's settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where to listen, like `0.0.0.0:8080`; port 0 takes any.
    pub address: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            address: "0.0.0.0:8080".to_owned(),
        }
    }
}

#[derive(Debug, Clone)]
struct Probed {
    readiness: watch::Receiver<Readiness>,
    draining: CancellationToken,
    metrics: Arc<Registry>,
}

/// Serves HTTP on `listener` until `stop`. Probes are short: what is open then is cut.
pub async fn serve(
    listener: TcpListener,
    detector: &Detector,
    metrics: Arc<Registry>,
    draining: CancellationToken,
    stop: CancellationToken,
) {
    let probed = Probed {
        readiness: detector.readiness(),
        draining,
        metrics,
    };
    let router = Router::new()
        .route("/livez", get(live))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics_page))
        .with_state(probed);
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _peer)) = accepted else {
            tokio::time::sleep(ACCEPT_RETRY).await;
            continue;
        };
        // Closed at once when there are as many as may be.
        let Ok(place) = places.clone().try_acquire_owned() else {
            continue;
        };
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .serve_connection(
                TokioIo::new(stream),
                TowerToHyperService::new(router.clone()),
            );
        let stop = stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                ended = served => if let Err(error) = ended {
                    tracing::debug!(%error, "an HTTP connection ended in an error");
                },
                () = stop.cancelled() => {}
            }
            drop(place);
        });
    }
}

/// Probes and scrapers are a handful.
const MAX_CONNECTIONS: usize = 256;

/// For the headers of a request, the first and those after it on the same connection.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// Out of file descriptors, say: trying at once again would only burn a core.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

async fn live(State(probed): State<Probed>) -> impl IntoResponse {
    match probed.readiness.borrow().is_live() {
        true => (StatusCode::OK, "ok\n"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "no progress\n"),
    }
}

async fn ready(State(probed): State<Probed>) -> impl IntoResponse {
    let readiness = probed.readiness.borrow();
    let mut page = String::new();
    for model in readiness.models() {
        let detail = match model.explanation() {
            "" => String::new(),
            detail => format!(" ({detail})"),
        };
        page.push_str(&format!("{}: {}{detail}\n", model.name, model.state_name()));
    }
    if probed.draining.is_cancelled() {
        page.push_str("draining\n");
    }
    match readiness.is_ready() && !probed.draining.is_cancelled() {
        true => (StatusCode::OK, page),
        false => (StatusCode::SERVICE_UNAVAILABLE, page),
    }
}

async fn metrics_page(State(probed): State<Probed>) -> impl IntoResponse {
    let mut page = String::new();
    match prometheus_client::encoding::text::encode(&mut page, &probed.metrics) {
        Ok(()) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            (StatusCode::OK, [(header::CONTENT_TYPE, kind)], page)
        }
        Err(error) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            [(header::CONTENT_TYPE, "text/plain")],
            format!("{error}\n"),
        ),
    }
}
