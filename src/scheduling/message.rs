//! What is sent to the batching actor.

use std::time::Duration;

use tokio::sync::oneshot;

use super::event::{Arrival, InstanceKey, Placement, RequestId};

/// From the doors. Bounded by admission.
#[derive(Debug)]
pub(super) enum Request<W> {
    Arrived(Arrival<W>),
    Abandoned(RequestId),
}

/// From workers and instances. Bounded by their number, since each has only so much in hand.
#[derive(Debug)]
pub(super) enum Completion<W, R> {
    Prepared {
        id: RequestId,
        payload: R,
        /// Not named yet.
        pieces: Vec<W>,
        took: Duration,
    },
    PrepareFailed {
        id: RequestId,
        took: Duration,
    },
    /// Acknowledged once the machine knows it.
    InstanceUp(InstanceKey, Placement, oneshot::Sender<()>),
    BatchFinished {
        instance: InstanceKey,
        took: Option<Duration>,
    },
    InstanceDown {
        instance: InstanceKey,
        returned: Vec<(RequestId, R)>,
    },
}
