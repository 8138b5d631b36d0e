//! What is sent to the batching actor.

use tokio::sync::oneshot;

use super::machine::{Arrival, InstanceKey, Placement, RequestId};

/// From the doors. Bounded by admission.
#[derive(Debug)]
pub(super) enum Request<W> {
    Arrived(Arrival<W>),
    Abandoned(RequestId),
}

/// From workers and instances. Bounded by their number, since each has only so much in hand.
#[derive(Debug)]
pub(super) enum Completion<R> {
    Prepared {
        id: RequestId,
        payload: R,
    },
    PrepareFailed(RequestId),
    /// Acknowledged once the machine knows it.
    InstanceUp(InstanceKey, Placement, oneshot::Sender<()>),
    BatchFinished(InstanceKey),
    InstanceDown(InstanceKey),
}
