//! What happens to the machine, and what it decides: its vocabulary, without any behaviour.

use std::time::Duration;

use super::bucket::BatchBucket;
use super::deadline::Deadline;

/// Names one request. Ids rise in the order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Names one loaded (model, version).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelKey(pub u32);

/// Names one model instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceKey(pub u32);

/// Names whoever a request is from: all that one source sends shares what is given to a source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceKey(pub u64);

/// Names one stream of a source. Single calls are a stream of their own, [`StreamKey::CALLS`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKey(pub u64);

/// Whose share of the server a request takes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share {
    /// Sources share alike.
    pub source: SourceKey,
    /// The streams of a source share alike what the source is given.
    pub stream: StreamKey,
}

/// How urgent a request is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Somebody waits for the answer.
    #[default]
    Interactive,
    /// Work that fills what interactive work leaves, and is refused first.
    Batch,
}

/// What a request is a part of, and so what its deadline means.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A call: refused when it would be late, or without a deadline would wait for too long; let go wherever it is
    /// when its deadline passes.
    #[default]
    Call,
    /// A stream's frame: without a deadline it waits for as long as it has to. With one it is refused when it would be
    /// late, and let go when the deadline passes while it waits; what was begun is finished, so that a frame
    /// that is let go has cost nothing.
    Frame,
}

/// A request as it enters the line.
#[derive(Debug)]
pub struct Arrival<W> {
    /// Its name; greater than that of every request before it.
    pub id: RequestId,
    /// The model it is for.
    pub model: ModelKey,
    /// Whose share it takes from.
    pub share: Share,
    /// How urgent it is.
    pub priority: Priority,
    /// What it is a part of.
    pub kind: Kind,
    /// When its caller stops waiting.
    pub deadline: Deadline,
    /// `Some` for a picture that will be cut: into about so many pieces besides the one that it is itself. The machine
    /// goes by it until the pieces are there.
    pub pieces: Option<usize>,
    /// What the caller wants back in an action.
    pub payload: W,
}

/// What an instance serves and how, told when it comes up.
#[derive(Debug, Clone)]
pub struct Placement {
    /// The model whose pictures it runs.
    pub model: ModelKey,
    /// Its batch buckets with their measured costs; at least one.
    pub buckets: Vec<BatchBucket>,
    /// How long the oldest ready picture may wait for company while a device is free.
    ///
    /// Zero, the default, gives a free device what is ready at once: batches grow because devices are busy.
    pub max_queue_delay: Duration,
    /// Whether a next batch is put together while one runs. Worth it where copying a batch takes long
    /// against running it (a GPU); on a CPU it would only bind a picture to an instance too early.
    pub pipelined: bool,
    /// An instance that is this long over a batch, and twenty times as long as such a batch takes, hangs.
    pub watchdog: Duration,
}

/// Something that happened.
#[derive(Debug)]
pub enum Event<W, R> {
    /// A request was admitted.
    Arrived(Arrival<W>),
    /// Its caller left; it, and what it was cut into, may be anywhere, or gone already.
    Abandoned(RequestId),
    /// A CPU worker finished preparing a request.
    Prepared {
        /// Which.
        id: RequestId,
        /// What came out.
        payload: R,
        /// What of it is still to be prepared, in order: pieces of a picture that was to be cut. Each is a request of its
        /// own from now on; leaving or expiring, they all do.
        pieces: Vec<(RequestId, W)>,
        /// How long the worker was busy with it.
        took: Duration,
    },
    /// A CPU worker could not prepare a request, and has answered it.
    PrepareFailed {
        /// Which.
        id: RequestId,
        /// How long the worker was busy with it.
        took: Duration,
    },
    /// An instance is warm and idle.
    InstanceUp(InstanceKey, Placement),
    /// An instance can take another batch; the oldest that it had is out of its hands.
    BatchFinished {
        /// Which.
        instance: InstanceKey,
        /// Duration of the run on the device; `None` when it failed, or was run again in parts.
        took: Option<Duration>,
    },
    /// An instance is gone.
    InstanceDown {
        /// Which.
        instance: InstanceKey,
        /// What it had been given and has not answered.
        returned: Vec<(RequestId, R)>,
    },
    /// Nothing but time passed.
    Tick,
}

/// Something to do.
#[derive(Debug, PartialEq)]
pub enum Action<W, R> {
    /// Prepare this request on a CPU worker.
    Prepare {
        /// Which.
        id: RequestId,
        /// What came in.
        payload: W,
        /// How long it stood in the line.
        waited: Duration,
    },
    /// Run these pictures together.
    Run {
        /// Where.
        instance: InstanceKey,
        /// The bucket to pad to; at least as large as the batch.
        bucket: usize,
        /// The pictures, in the order in which they became ready; never empty.
        batch: Vec<(RequestId, R)>,
    },
    /// Give up an instance that hangs: take back what it was given, and report [`Event::InstanceDown`].
    Eject(InstanceKey),
    /// Let go of a request that still waited to be prepared.
    DropWaiting(W, Outcome),
    /// Let go of a request that was ready to run.
    DropReady(R, Outcome),
}

/// Why a request is let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Its deadline passed.
    Expired,
    /// Its caller left.
    Abandoned,
    /// No instance of its model is left.
    NoInstance,
    /// Refused at the door: it could not have been answered in time.
    Infeasible {
        /// After how long such a request could be, if nothing else comes. `None` when it takes longer than it has, even if
        /// nobody else is here.
        retry_after: Option<Duration>,
    },
    /// Two instances in turn were lost with it.
    Lost,
}

// === impl StreamKey ===

impl StreamKey {
    /// The calls of a source that belong to no stream.
    pub const CALLS: StreamKey = StreamKey(0);
}
