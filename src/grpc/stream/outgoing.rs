//! The way out of a stream: a few messages that wait to be taken, and then how it ended.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::Status;

use crate::grpc::pb::DetectStreamResponse;
use crate::pipeline::AdmissionPermit;

/// Messages that may wait for HTTP/2 to take them. Two: one is being sent while the next is made.
const LENGTH: usize = 2;

/// A message, and what it is counted by.
type Item = (DetectStreamResponse, Option<AdmissionPermit>);

/// The session's end.
#[derive(Debug, Clone)]
pub(super) struct Sender {
    items: mpsc::Sender<Item>,
    ended: Arc<OnceLock<Status>>,
}

/// The connection's end. Dropped when the caller has gone.
#[derive(Debug)]
pub(in crate::grpc) struct Outgoing {
    items: mpsc::Receiver<Item>,
    ended: Arc<OnceLock<Status>>,
    told: bool,
}

pub(super) fn channel() -> (Sender, Outgoing) {
    let (sender, receiver) = mpsc::channel(LENGTH);
    let ended = Arc::new(OnceLock::new());
    let outgoing = Outgoing {
        items: receiver,
        ended: ended.clone(),
        told: false,
    };
    let sender = Sender {
        items: sender,
        ended,
    };
    (sender, outgoing)
}

// === impl Sender ===

impl Sender {
    /// Returns when there is room for a message. Forever pending when the caller has gone; see [`Sender::gone`].
    pub(super) async fn room(&self) -> mpsc::Permit<'_, Item> {
        match self.items.reserve().await {
            Ok(room) => room,
            Err(_gone) => std::future::pending().await,
        }
    }

    /// Returns when the caller has gone.
    pub(super) async fn gone(&self) {
        self.items.closed().await;
    }

    /// The last word. What waits is sent before it.
    pub(super) fn end(self, outcome: Result<(), Status>) {
        if let Err(status) = outcome {
            // It is set once: there is one session.
            drop(self.ended.set(status));
        }
    }
}

// === impl Outgoing ===

impl Stream for Outgoing {
    type Item = Result<DetectStreamResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match std::task::ready!(self.items.poll_recv(context)) {
            Some((message, _permit)) => Poll::Ready(Some(Ok(message))),
            // Every sender is gone, so how it ended is known.
            None if self.told => Poll::Ready(None),
            None => {
                self.told = true;
                Poll::Ready(self.ended.get().cloned().map(Err))
            }
        }
    }
}
