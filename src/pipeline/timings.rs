//! The ledger of one request: where its time went.

use std::time::{Duration, Instant};

use crate::device::RunReport;
use crate::model::Device;

/// Where the time of a request went, measured in the server. The parts do not overlap.
///
/// Of a picture that is looked at in pieces, the parts are those of the way to the piece that came last, which the
/// answer waited for: it was decoded with its picture, and waited for a CPU worker once more behind the other pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timings {
    /// Admitted, waiting for a CPU worker; of a piece, both times.
    pub queue: Duration,
    /// Decode, orient, resize, normalise.
    pub preprocess: Duration,
    /// Tensor ready, waiting for a device.
    pub batch_wait: Duration,
    /// The batch's run on the device.
    pub inference: Duration,
    /// Decode of the head, suppression, mapping back.
    pub postprocess: Duration,
    /// In a stream: ready, waiting for the answers of earlier frames. `None` outside.
    pub order_wait: Option<Duration>,
    /// From the request's receipt to its reply.
    pub total: Duration,
    /// Pictures and pieces of pictures in the batch that ran; of several the largest.
    pub batch_size: usize,
    /// The device that ran it; of several pieces the last.
    pub device: Device,
    /// How often the picture was looked at: once, or once for each piece.
    pub tiles: usize,
}

/// The ledger while the request is under way: one type for each thing that is known by then.
#[derive(Debug, Clone, Copy)]
pub(super) struct Received {
    at: Instant,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Preprocessed {
    received: Instant,
    queue: Duration,
    preprocess: Duration,
    at: Instant,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Ran {
    before: Preprocessed,
    run: RunReport,
    at: Instant,
}

// === impl Timings ===

impl Timings {
    /// The answer to what was received then is given now, in its turn.
    pub(super) fn in_order(&mut self, received: Received) {
        let total = received.elapsed().max(self.total);
        self.order_wait = Some(total - self.total);
        self.total = total;
    }
}

// === impl Received ===

impl Received {
    pub(super) fn now() -> Self {
        Self { at: Instant::now() }
    }

    /// So long after it.
    pub(super) fn after(self, time: Duration) -> Option<Instant> {
        self.at.checked_add(time)
    }

    /// Since then.
    pub(super) fn elapsed(self) -> Duration {
        self.at.elapsed()
    }

    /// Preprocessing began at `began` and is done now.
    pub(super) fn preprocessed(self, began: Instant) -> Preprocessed {
        let now = Instant::now();
        Preprocessed {
            received: self.at,
            queue: began.saturating_duration_since(self.at),
            preprocess: now.saturating_duration_since(began),
            at: now,
        }
    }
}

impl Preprocessed {
    /// A piece of the picture waited from when that was done until `began`, and is done now.
    pub(super) fn again(self, began: Instant) -> Preprocessed {
        let now = Instant::now();
        Preprocessed {
            received: self.received,
            queue: self.queue + began.saturating_duration_since(self.at),
            preprocess: self.preprocess + now.saturating_duration_since(began),
            at: now,
        }
    }

    /// The batch is back from its device now.
    pub(super) fn ran(self, run: RunReport) -> Ran {
        Ran {
            before: self,
            run,
            at: Instant::now(),
        }
    }
}

impl Ran {
    /// Pictures and pieces of pictures in the batch that it ran in.
    pub(super) fn batch_size(&self) -> usize {
        self.run.batch_size
    }

    /// The reply is ready now.
    pub(super) fn replied(self) -> Timings {
        let now = Instant::now();
        let Self { before, run, at } = self;
        let away = at.saturating_duration_since(before.at);
        Timings {
            queue: before.queue,
            preprocess: before.preprocess,
            batch_wait: away.saturating_sub(run.inference),
            inference: run.inference,
            postprocess: now.saturating_duration_since(at),
            order_wait: None,
            total: now.saturating_duration_since(before.received),
            batch_size: run.batch_size,
            device: run.device,
            tiles: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_add_up_to_the_total() {
        let received = Received::now();
        let run = RunReport {
            inference: Duration::ZERO,
            batch_size: 3,
            device: Device::Cpu,
        };
        let made = received.preprocessed(Instant::now());
        for prepared in [made, made.again(Instant::now())] {
            let timings = prepared.ran(run).replied();
            let parts = timings.queue
                + timings.preprocess
                + timings.batch_wait
                + timings.inference
                + timings.postprocess;
            assert_eq!(parts, timings.total);
            assert_eq!(timings.batch_size, 3);
        }
    }
}
