//! The listener: our own accept loop around tonic's routes.
//!
//! It takes its socket and its stop signal from outside. On the signal it stops accepting, tells every
//! connection to finish (GOAWAY) and waits for them at most the grace period, open streams or not: tonic's
//! own loop would wait for an open health watch for ever.

use std::time::Duration;

use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Flow-control windows of a stream and of a connection. A picture is sent in one go without waiting for
/// window updates; against the protocol's 64 KiB this about doubles the throughput of 100 KB messages.
const WINDOW: u32 = 8 << 20;

/// Largest frame: fewer headers and wake-ups a picture than the protocol's 16 KiB.
const MAX_FRAME: u32 = 256 << 10;

/// Calls under way on one connection. More wait at the client; without a bound one connection could hold as
/// many half-read messages as it likes.
const MAX_STREAMS: u32 = 1_024;

/// Quiet connections are pinged, so that a peer that vanished does not stay for ever.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(60);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Out of file descriptors, say: connections end meanwhile, and trying at once again would only burn a core.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Serves `routes` on `listener` until `stop`, then ends within `grace`.
pub(super) async fn serve(
    listener: TcpListener,
    routes: axum::Router,
    stop: CancellationToken,
    grace: Duration,
) {
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(_ended) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _peer)) => {
                    let watcher = graceful.watcher();
                    let routes = routes.clone();
                    connections.spawn(async move { connection(stream, routes, watcher).await });
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection cannot be accepted");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            },
        }
    }
    // New connections are refused from here on, not left waiting in the backlog.
    drop(listener);
    if tokio::time::timeout(grace, graceful.shutdown())
        .await
        .is_err()
    {
        tracing::warn!(
            connections = connections.len(),
            ?grace,
            "the grace period is over; what is open is cut"
        );
    }
    connections.shutdown().await;
}

async fn connection(
    stream: TcpStream,
    routes: axum::Router,
    watcher: hyper_util::server::graceful::Watcher,
) {
    // Replies are small and each is awaited.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "nodelay cannot be set");
    }
    let served = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_frame_size(MAX_FRAME)
        .max_concurrent_streams(MAX_STREAMS)
        .keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    if let Err(error) = watcher.watch(served).await {
        tracing::debug!(%error, "a connection ended in an error");
    }
}
