//! What state the models are in, for whoever asks: health, lists, the drain.

use crate::model::{Device, ModelVersion};
use crate::vision::ImageSize;

use super::request::EffectiveOptions;

/// The state of one model.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelState {
    /// Being loaded and warmed.
    Loading,
    /// Every instance is warm at every bucket.
    Ready(Box<ReadyModel>),
    /// Not to be had.
    Failed,
}

/// What a ready model is.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadyModel {
    /// The network's input.
    pub input: ImageSize,
    /// The largest batch that it runs.
    pub max_batch_size: usize,
    /// By class.
    pub labels: Vec<String>,
    /// Where its instances run, one entry an instance.
    pub devices: Vec<Device>,
    /// What holds when a caller asks for nothing else.
    pub defaults: EffectiveOptions,
}

/// One model of the repository.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelStatus {
    /// Its name.
    pub name: String,
    /// The version that is, or would be, served; `None` when there is none.
    pub version: Option<ModelVersion>,
    /// Its state.
    pub state: ModelState,
    /// Why it failed, or what else there is to say: a device that fell back, say.
    pub detail: String,
    /// Whether the server is only ready when this model is.
    pub required: bool,
    /// Whether it answers requests that name none.
    pub is_default: bool,
}

/// The state of every model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Readiness {
    models: Vec<ModelStatus>,
}

// === impl ModelStatus ===

impl ModelStatus {
    /// Whether it answers.
    pub fn is_ready(&self) -> bool {
        matches!(self.state, ModelState::Ready(_))
    }

    /// The state in a word.
    pub fn state_name(&self) -> &'static str {
        match self.state {
            ModelState::Loading => "loading",
            ModelState::Ready(_) => "ready",
            ModelState::Failed => "failed",
        }
    }
}

// === impl Readiness ===

impl Readiness {
    pub(super) fn new(models: Vec<ModelStatus>) -> Self {
        Self { models }
    }

    /// Every model of the repository, by name.
    pub fn models(&self) -> &[ModelStatus] {
        &self.models
    }

    /// Whether every required model is ready, and any at all.
    pub fn is_ready(&self) -> bool {
        let mut required = self.models.iter().filter(|model| model.required);
        required.all(ModelStatus::is_ready) && self.models.iter().any(ModelStatus::is_ready)
    }

    pub(super) fn get(&self, name: &str) -> Option<&ModelStatus> {
        self.models.iter().find(|model| model.name == name)
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut ModelStatus> {
        self.models.iter_mut().find(|model| model.name == name)
    }

    /// Their names, for messages.
    pub(super) fn names(&self) -> String {
        self.models
            .iter()
            .map(|model| model.name.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    }
}
