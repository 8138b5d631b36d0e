//! Devices: engines that run networks, and the threads that own them.
//!
//! | file | job |
//! |---|---|
//! | [`engine`] | trait [`Engine`]: one loaded network on one device; [`EngineSource`]: where engines come from |
//! | [`ort`] | the ONNX Runtime engine, the only file that names that library |
//! | [`synthetic`] | an engine for tests and benches that takes as long, and fails, as it is told |
//! | [`assembler`] | puts ready tensors together into a batch |
//! | [`flight`] | what an instance was given and has not answered, so that it can be had back |
//! | [`instance`] | a model instance: the named OS thread that owns an engine and runs batches on it |
//! | [`warm_up`] | first runs at each batch bucket, and what they cost |
//!
//! The room sees tensors and whatever context a picture carries, which it hands back untouched. It knows
//! nothing of pictures, heads, requests or the wire.

pub mod assembler;
pub mod engine;
mod flight;
mod gpus;
pub mod instance;
mod metrics;
pub mod ort;
mod priority;
pub mod synthetic;
pub mod warm_up;

pub use assembler::Picture;
pub use engine::{Engine, EngineError, EngineFactory, EngineSource, NetworkFile, Signature};
pub use gpus::gpus;
pub use instance::{
    End, Inferred, Instance, InstanceConfig, Loaded, Reports, Run, RunReport, pipelined,
};
pub use metrics::{InstanceLabels, Metrics};
pub use priority::step_back;
