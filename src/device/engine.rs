//! [`Engine`]: one loaded network on one device, and where engines come from.

use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;

use crate::model::Device;
use crate::tensor::{Tensor, TensorSignature};
use crate::vision::ImageSize;

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
    /// [`EngineError::Run`] when the run fails; the engine can be used again. [`EngineError::DeviceLost`] when
    /// nothing will run on this device again.
    fn run(&mut self, rows: usize, input: &Tensor) -> Result<Vec<Tensor>, EngineError>;
}

/// Makes engines of one network.
pub trait EngineFactory: Debug + Send + Sync {
    /// Loads the network onto `device`, with `threads` threads for one run where the device is a CPU.
    /// Called on the thread that will own the engine.
    ///
    /// # Errors
    /// [`EngineError::DeviceUnavailable`] when the device cannot be had, [`EngineError::Load`] when the
    /// network cannot.
    fn build(&self, device: Device, threads: usize) -> Result<Box<dyn Engine>, EngineError>;
}

/// A network's file, and what its card says about running it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkFile {
    /// The file. Loaded by path, so that weights kept beside it are found.
    pub path: PathBuf,
    /// The input that takes the pictures; `None` is the network's first.
    pub input: Option<String>,
    /// The name of an `i64 [N, 2]` input that wants (width, height), and what it is given in each row.
    pub size_input: Option<(String, ImageSize)>,
}

/// Where engines come from: a library that runs networks.
pub trait EngineSource: Debug + Send + Sync {
    /// A factory of one network's engines. Reads nothing yet: what is wrong with the file is told by
    /// [`EngineFactory::build`].
    fn network(&self, file: NetworkFile) -> Arc<dyn EngineFactory>;
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
    /// The device is gone, or in a state from which it does not come back for this engine.
    #[error("device {device} is lost: {detail}")]
    DeviceLost {
        /// Which.
        device: Device,
        /// What the runtime says.
        detail: String,
    },
    /// The engine panicked.
    #[error("the engine panicked: {0}")]
    Panicked(String),
    /// The operating system gives no thread.
    #[error("cannot start a thread: {0}")]
    Thread(String),
}
