//! Scheduling: in which order waiting requests are prepared, and which ready pictures run together, where.
//!
//! The room is cut as a queue usually is:
//!
//! | file | job |
//! |---|---|
//! | [`deadline`] | the instant after which nobody reads the answer |
//! | [`event`] | what happens, and what is decided: the words of the machine |
//! | [`estimate`] | what a thing usually takes, learned |
//! | [`fair`] | whose turn it is among those who share alike |
//! | [`lane`] | who waits for the same thing |
//! | [`line`] | the waiting line: requests still encoded, by priority, source, stream and deadline |
//! | [`shelf`] | the ready shelf of one model: tensors prepared, waiting for a device |
//! | [`bucket`] | batch sizes, what each costs, which to use |
//! | [`machine`] | the state machine over all of them: `(state, event, now) -> (state, actions)` |
//! | [`message`] | what is sent to the actor |
//! | [`batcher`] | the actor's handle and its worker task, which drives the machine |
//!
//! The machine is generic over what it carries: `W` while a request waits (an encoded picture, a reply
//! channel), `R` once it is ready (a tensor, the same reply channel). It cannot look into either, starts no
//! thread, reads no clock: every policy is tested by scripts of events under a time of the test's making.

pub mod batcher;
pub mod bucket;
pub mod deadline;
pub mod estimate;
pub mod event;
mod fair;
mod lane;
mod line;
pub mod machine;
mod message;
mod shelf;

pub use batcher::{Batcher, Completions, Config, Full, Stages, Ticket, Worker, completions};
pub use bucket::BatchBucket;
pub use deadline::Deadline;
pub use estimate::Estimate;
pub use event::{
    Action, Arrival, Event, InstanceKey, Kind, ModelKey, Outcome, Placement, Priority, RequestId,
    Share, SourceKey, StreamKey,
};
pub use machine::{Machine, Policy};
