//! One connection's life: handshake, age, progress, and a bounded end.

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::CancellationToken;

use super::address::Stream;
use super::caller::Peer;
use super::frames::Frames;
use super::reply::Replies;

/// Flow-control window of a call. A picture is sent in one go without waiting for window updates; against the protocol's
/// 64 KiB this about doubles the throughput of 100 KB messages.
const CALL_WINDOW: u32 = 2 << 20;

/// And of a connection: what a stream that is held back has sent and nobody reads takes from it. Thirty of them on one
/// connection leave room for others.
const CONNECTION_WINDOW: u32 = 64 << 20;

/// Largest frame: fewer headers and wake-ups a picture than the protocol's 16 KiB. No larger, because how far a
/// message has come shows only with whole frames.
pub(super) const MAX_FRAME: u32 = 64 << 10;

/// What is handed on of a reply before its peer has room for it.
const MAX_SEND_BUFFER: usize = 16 << 10;

/// All headers of a call together that are read at all, in bytes as the protocol counts them. The gate refuses
/// far smaller ones; but what is refused here ends a call without a gRPC status, or even the connection with
/// everybody's calls on it, and clients take either for something to try again. A connection holds the headers
/// of one call at a time.
const MAX_HEADERS_READ: u32 = 2 << 20;

/// Calls that a client may start and reset before they were looked at. A flood of such is an attack that costs
/// the sender nothing; a client that gives up a thousand calls at once is none.
const MAX_PENDING_RESETS: usize = 1_024;

/// A timer of no time at all is none.
const SHORTEST_LOOK: Duration = Duration::from_millis(1);

/// Quiet connections are pinged, so that a peer that vanished does not stay for ever.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(60);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// A connection's bounds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Connections at a time. More are closed at once.
    pub max_connections: usize,
    /// Calls under way on one connection. More wait at the client.
    pub max_streams: u32,
    /// How long a peer may take to speak HTTP/2 at all, and to finish headers that it began; half as long again at
    /// most.
    #[serde(with = "humantime_serde")]
    pub handshake_timeout: Duration,
    /// After this long, give or take a tenth, a connection is told to finish (GOAWAY), so that clients behind
    /// a balancer that only sees connections spread anew. Zero is never.
    #[serde(with = "humantime_serde")]
    pub max_age: Duration,
    /// How long calls that are open then may take.
    #[serde(with = "humantime_serde")]
    pub max_age_grace: Duration,
    /// How long a message may take to come, and a reply to be taken, whatever its size; there is a second more for
    /// each 16 KiB that has come.
    #[serde(with = "humantime_serde")]
    pub message_patience: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            // Idle ones cost some 20 KB each.
            max_connections: 16_384,
            max_streams: 1_024,
            handshake_timeout: Duration::from_secs(10),
            max_age: Duration::from_secs(30 * 60),
            max_age_grace: Duration::from_secs(60),
            // A phone that changes cells pauses for seconds.
            message_patience: Duration::from_secs(10),
        }
    }
}

/// Cancelled when a connection is told to finish: streams on it should end.
#[derive(Debug, Clone, Default)]
pub(super) struct Leaving(pub(super) CancellationToken);

/// Serves one connection until the peer closes it, it has come of age, or `stop` and all its calls are done.
/// Dropping the future cuts it.
pub(super) async fn serve(
    stream: Box<dyn Stream>,
    peer: Peer,
    routes: axum::Router,
    config: &Config,
    stop: &CancellationToken,
) {
    let frames = Arc::new(Mutex::new(Frames::new(Instant::now())));
    let io = TokioIo::new(Heard {
        stream,
        frames: frames.clone(),
    });
    let replies = Replies::default();
    let untaken = replies.clone();
    let leaving = Leaving(stop.child_token());
    let (old, of_age) = (leaving.clone(), leaving.0);
    let routes = TowerToHyperService::new(routes);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(replies.clone());
        request.extensions_mut().insert(old.clone());
        routes.call(request)
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(CALL_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(MAX_FRAME)
        .max_send_buf_size(MAX_SEND_BUFFER)
        .max_header_list_size(MAX_HEADERS_READ)
        .max_concurrent_streams(config.max_streams)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .serve_connection(io, service);
    let mut connection = pin!(connection);

    // Twice in that time, so that nobody has more than half of it too much.
    let mut look = tokio::time::interval((config.handshake_timeout / 2).max(SHORTEST_LOOK));
    let mut age = pin!(sleep_or_never(jittered(config.max_age)));
    let mut cut = pin!(sleep_or_never(None));
    let (mut finishing, mut aged) = (false, false);
    loop {
        tokio::select! {
            ended = &mut connection => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended in an error");
                }
                return;
            }
            _ = look.tick() => {
                let now = Instant::now();
                let since = frames.lock().unwrap_or_else(PoisonError::into_inner).unfinished_since();
                if since.is_some_and(|since| now.duration_since(since) >= config.handshake_timeout) {
                    tracing::debug!("a peer did not finish its hello, or headers, in time");
                    return;
                }
                if untaken.is_overdue(now) {
                    tracing::debug!("a peer did not take a reply in time");
                    return;
                }
            }
            // The listener cuts what is still open when its grace is over.
            () = stop.cancelled(), if !finishing => {
                finishing = true;
                connection.as_mut().graceful_shutdown();
            }
            () = &mut age, if !aged => {
                aged = true;
                of_age.cancel();
                if !finishing {
                    connection.as_mut().graceful_shutdown();
                }
                cut.set(sleep_or_never(Some(config.max_age_grace)));
            }
            () = &mut cut => {
                tracing::debug!("a connection of age is cut with calls open");
                return;
            }
        }
    }
}

async fn sleep_or_never(duration: Option<Duration>) {
    match duration {
        Some(duration) => tokio::time::sleep(duration).await,
        None => std::future::pending().await,
    }
}

/// `age` give or take a tenth, so that clients that came together do not come back together. `None` for zero.
fn jittered(age: Duration) -> Option<Duration> {
    if age.is_zero() {
        return None;
    }
    // The hasher's keys are random for each; nothing secret depends on it.
    let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), ());
    let fraction = random as f64 / u64::MAX as f64;
    Some(age.mul_f64(0.9 + 0.2 * fraction))
}

/// A stream whose peer's frames are followed.
struct Heard {
    stream: Box<dyn Stream>,
    frames: Arc<Mutex<Frames>>,
}

impl AsyncRead for Heard {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        let poll = Pin::new(&mut self.stream).poll_read(cx, buf);
        if let Some(bytes) = buf.filled().get(before..).filter(|bytes| !bytes.is_empty()) {
            let mut frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
            frames.follow(bytes, Instant::now());
        }
        poll
    }
}

impl AsyncWrite for Heard {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_spread_by_a_tenth_either_way_and_zero_is_never() {
        let age = Duration::from_secs(1_000);
        let ages: Vec<Duration> = (0..200).filter_map(|_| jittered(age)).collect();
        assert!(
            ages.iter()
                .all(|age| (900..=1_100).contains(&age.as_secs()))
        );
        assert!(
            ages.iter().any(|age| age.as_secs() < 980)
                && ages.iter().any(|age| age.as_secs() > 1_020)
        );
        assert_eq!(jittered(Duration::ZERO), None);
    }
}
