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
    /// It was ready, and no instance of it is left.
    Unavailable(Unavailable),
    /// Not to be had.
    Failed,
}

/// A model without an instance.
#[derive(Debug, Clone, PartialEq)]
pub struct Unavailable {
    /// What it was, and will be when an instance serves again.
    pub was: Box<ReadyModel>,
    /// What became of its instances.
    pub why: String,
    /// Whether instances are being made in their place. Otherwise nothing happens until a thread that hangs comes
    /// back.
    pub rebuilding: bool,
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
    /// The scheduler is gone.
    broke_down: bool,
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
            ModelState::Unavailable(_) => "unavailable",
            ModelState::Failed => "failed",
        }
    }

    /// What there is to say beside the state; empty when nothing.
    pub fn explanation(&self) -> &str {
        match &self.state {
            ModelState::Unavailable(unavailable) => &unavailable.why,
            _ => &self.detail,
        }
    }

    /// Why it does not answer, for callers. A failed model's reasons are for the operator.
    pub(super) fn why_not(&self) -> String {
        match &self.state {
            ModelState::Unavailable(_) => "no instance of it is running".to_owned(),
            _ => format!("it is {}", self.state_name()),
        }
    }

    /// It will not answer again by itself, having answered before.
    fn is_stuck(&self) -> bool {
        matches!(&self.state, ModelState::Unavailable(unavailable) if !unavailable.rebuilding)
    }
}

// === impl Readiness ===

impl Readiness {
    pub(super) fn new(models: Vec<ModelStatus>) -> Self {
        Self {
            models,
            broke_down: false,
        }
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

    /// Whether the process can still make progress: the scheduler works, and of the models that were ready not all
    /// are stuck for good. Models that are still loading, or never could, do not count.
    pub fn is_live(&self) -> bool {
        let mut were_ready = self.models.iter().filter(|model| {
            matches!(
                model.state,
                ModelState::Ready(_) | ModelState::Unavailable(_)
            )
        });
        let stuck = were_ready.clone().next().is_some() && were_ready.all(ModelStatus::is_stuck);
        !self.broke_down && !stuck
    }

    /// No model will answer any more.
    pub(super) fn break_down(&mut self, why: &str) {
        self.broke_down = true;
        for model in &mut self.models {
            model.state = ModelState::Failed;
            model.detail = why.to_owned();
        }
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

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::model::Threshold;

    fn ready() -> Box<ReadyModel> {
        let threshold = Threshold::new(0.5).unwrap();
        Box::new(ReadyModel {
            input: ImageSize {
                width: 1,
                height: 1,
            },
            max_batch_size: 1,
            labels: Vec::new(),
            devices: Vec::new(),
            defaults: EffectiveOptions {
                score_threshold: threshold,
                iou_threshold: None,
                max_detections: NonZeroU32::MIN,
                class_agnostic_nms: false,
                labels: Vec::new(),
                region: None,
                tiling: None,
                shown_from: None,
            },
        })
    }

    fn lost(rebuilding: bool) -> ModelState {
        ModelState::Unavailable(Unavailable {
            was: ready(),
            why: String::new(),
            rebuilding,
        })
    }

    fn readiness(states: impl IntoIterator<Item = ModelState>) -> Readiness {
        let status = |state| ModelStatus {
            name: String::new(),
            version: None,
            state,
            detail: String::new(),
            required: true,
            is_default: false,
        };
        Readiness::new(states.into_iter().map(status).collect())
    }

    #[test]
    fn a_server_lives_as_long_as_any_model_that_was_ready_may_answer_again() {
        use ModelState::{Failed, Loading, Ready};
        assert!(readiness([Loading, Failed]).is_live());
        assert!(readiness([Ready(ready()), lost(false)]).is_live());
        assert!(readiness([lost(true), lost(false), Failed]).is_live());
        assert!(!readiness([lost(false), lost(false), Failed]).is_live());
    }

    #[test]
    fn a_server_that_broke_down_neither_lives_nor_is_ready() {
        let mut readiness = readiness([ModelState::Ready(ready())]);
        assert!(readiness.is_live() && readiness.is_ready());
        readiness.break_down("the scheduler is gone");
        assert!(!readiness.is_live() && !readiness.is_ready());
    }
}
