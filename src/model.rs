//! Models as files: the card, the labels, the repository.
//!
//! A repository is a folder of models; a model is a folder with a card (`model.toml`), its labels and one
//! folder for each version:
//!
//! ```text
//! models/yolox-nano/model.toml
//! models/yolox-nano/labels.txt
//! models/yolox-nano/1/model.onnx
//! ```
//!
//! This room reads these files into types that cannot hold a wrong value, and says in one line what is wrong
//! with one that does not fit. It loads no network: `heads` checks a network against its card, `device` runs
//! it, and which models are served is decided further up.

mod batching;
mod card;
mod device;
mod error;
mod labels;
mod npy;
mod repository;
mod source;
mod spec;
mod threshold;
mod version;

pub use batching::{BatchingSpec, MAX_BATCH_SIZE, MAX_QUEUE_DELAY};
pub use device::{Device, DeviceRequest, InstanceSpec, MAX_INSTANCES, MAX_THREADS};
pub use error::ModelError;
pub use labels::{LabelMap, MAX_LABELS, UNUSED_LABEL};
pub use repository::{ModelEntry, ModelRepository};
pub use source::{DerivedFrom, FileName, ModelSource, Origin, Sha256};
pub use spec::{DetectionDefaults, MAX_DETECTIONS, ModelSpec};
pub use threshold::Threshold;
pub use version::{ModelName, ModelVersion};
