//! [`Engine`]: one loaded network on one device.

use crate::model::Device;
use crate::tensor::{Tensor, TensorSignature};

/// What a network takes and gives, read from its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// The input that takes the pictures, `[N, ...]`.
    pub input: TensorSignature,
    /// The outputs, in the order in which [`Engine::run`] returns them.
    pub outputs: Vec<TensorSignature>,
}

/// One loaded network on one device.
///
/// It is made, used and dropped by one thread, never shared or locked: `run` takes `&mut self` because the
/// runtimes' own calls are not safe from two threads at once.
pub trait Engine {
    /// What the network takes and gives.
    fn signature(&self) -> &Signature;

    /// Runs one batch of `rows` pictures, whose tensors lie one behind another in `input`. The tensor's own
    /// shape does not count: a single picture is passed as it is, without a leading dimension.
    ///
    /// Returns the outputs in the order of the signature, each `[rows, ...]`.
    ///
    /// # Errors
    /// [`EngineError::Run`] when the run fails; the engine can be used again.
    fn run(&mut self, rows: usize, input: &Tensor) -> Result<Vec<Tensor>, EngineError>;
}

/// Makes engines of one network.
pub trait EngineFactory: Send + Sync {
    /// Loads the network onto `device`, with `threads` threads for one run where the device is a CPU.
    /// Called on the thread that will own the engine.
    ///
    /// # Errors
    /// [`EngineError::DeviceUnavailable`] when the device cannot be had, [`EngineError::Load`] when the
    /// network cannot.
    fn build(&self, device: Device, threads: usize) -> Result<Box<dyn Engine>, EngineError>;
}

/// What can go wrong in this room.
#[derive(Debug, Clone, thiserror::Error)]
pub enum EngineError {
    /// The library that runs networks is not there.
    #[error("cannot load the ONNX Runtime library {path}: {detail}")]
    RuntimeMissing {
        /// Where it was looked for.
        path: String,
        /// Why it could not be loaded.
        detail: String,
    },
    /// The network cannot be loaded.
    #[error("cannot load {path}: {detail}")]
    Load {
        /// The network's file.
        path: String,
        /// What the runtime says.
        detail: String,
    },
    /// The device that was asked for cannot be had.
    #[error("device {device} is not available: {detail}")]
    DeviceUnavailable {
        /// Which.
        device: Device,
        /// What the runtime says.
        detail: String,
    },
    /// The network does not take what its card says.
    #[error("the network and its card disagree: {0}")]
    Signature(String),
    /// A run failed.
    #[error("the run failed: {0}")]
    Run(String),
    /// The engine panicked.
    #[error("the engine panicked: {0}")]
    Panicked(String),
    /// The operating system gives no thread.
    #[error("cannot start a thread: {0}")]
    Thread(String),
}
