//! The listener: our own accept loop around tonic's routes.
//!
//! It takes its socket and its stop signal from outside. On the signal it stops accepting, tells every
//! connection to finish (GOAWAY) and waits for them at most the grace period, open streams or not: tonic's
//! own loop would wait for an open health watch for ever, and sends no GOAWAY at a connection's age when it has
//! a grace.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::address::Listener;
use super::connection;

/// Out of file descriptors, say: connections end meanwhile, and trying at once again would only burn a core.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Serves `routes` on `listener` until `stop`, then ends within `grace`.
pub(super) async fn serve(
    listener: Listener,
    routes: axum::Router,
    config: Arc<connection::Config>,
    stop: CancellationToken,
    grace: Duration,
) {
    let places = Arc::new(Semaphore::new(config.max_connections));
    let mut connections = JoinSet::new();
    // One line for each doubling: a flood must not become a flood of lines.
    let (mut refused, mut failed): (u64, u64) = (0, 0);
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            Some(_ended) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                failed += 1;
                if failed.is_power_of_two() {
                    tracing::warn!(%error, failed, "a connection cannot be accepted");
                }
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            // Closed rather than left in the backlog, so that the caller can go elsewhere.
            refused += 1;
            if refused.is_power_of_two() {
                tracing::warn!(
                    refused,
                    limit = config.max_connections,
                    "connections refused: there are as many as may be"
                );
            }
            continue;
        };
        let (routes, config, stop) = (routes.clone(), config.clone(), stop.clone());
        connections.spawn(async move {
            connection::serve(stream, peer, routes, &config, &stop).await;
            drop(place);
        });
    }
    // New connections are refused from here on, not left waiting in the backlog.
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(grace, ended).await.is_err() {
        tracing::warn!(
            connections = connections.len(),
            ?grace,
            "the grace period is over; what is open is cut"
        );
    }
    connections.shutdown().await;
}
