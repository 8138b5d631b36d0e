//! The card as TOML: its tables, and its errors in one line.

use std::num::NonZeroU32;

use serde::{Deserialize, Deserializer};

use super::device::bounded;
use super::spec::MAX_DETECTIONS;
use super::{
    BatchingSpec, DetectionDefaults, FileName, InstanceSpec, ModelError, ModelSource, ModelSpec,
    Threshold,
};
use crate::heads::{AnchorTable, HeadSpec};
use crate::vision::preprocess::InputSpec;

/// Longest piece of a card that an error quotes, in characters.
const MAX_QUOTE: usize = 60;

/// A card as it is written. Every table refuses keys that it does not know.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Card {
    #[serde(default)]
    description: String,
    #[serde(default)]
    license: String,
    #[serde(default = "yes")]
    required: bool,
    source: Option<ModelSource>,
    /// An [`InputSpec`] and the input's name beside it; taken apart in [`parse`].
    input: toml::Table,
    head: HeadSpec<FileName>,
    #[serde(default)]
    labels: LabelsTable,
    defaults: DefaultsTable,
    #[serde(default)]
    batching: BatchingSpec,
    #[serde(default = "one_kind_of_instance")]
    instances: Vec<InstanceSpec>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LabelsTable {
    file: FileName,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DefaultsTable {
    score_threshold: Threshold,
    iou_threshold: Option<Threshold>,
    #[serde(default = "hundred", deserialize_with = "detection_count")]
    max_detections: NonZeroU32,
    #[serde(default)]
    class_agnostic_nms: bool,
}

/// Reads a card. `anchors` reads a file of anchors that the card names.
pub(super) fn parse(
    text: &str,
    anchors: impl FnOnce(&FileName) -> Result<AnchorTable, ModelError>,
) -> Result<ModelSpec, ModelError> {
    let mut card: Card = toml::from_str(text).map_err(|error| explain(text, &error))?;

    let wrong = |message: String| ModelError::Card(message);
    let input_name = match card.input.remove("name") {
        None => None,
        Some(toml::Value::String(name)) if !name.is_empty() => Some(name),
        Some(_) => {
            return Err(wrong(
                "`[input]`: `name` is not the name of an input".to_owned(),
            ));
        }
    };
    let input: InputSpec =
        toml::Value::Table(card.input)
            .try_into()
            .map_err(|error: toml::de::Error| {
                wrong(format!("`[input]`: {}", reword(&error, &["name"])))
            })?;
    input
        .validate()
        .map_err(|reason| wrong(format!("`[input]`: {reason}")))?;

    let head = card.head.resolve(|file| anchors(&file))?;
    if head.needs_nms() && card.defaults.iou_threshold.is_none() {
        return Err(wrong(
            "`[defaults]` lacks `iou_threshold`, and a head of this family gives every object many times"
                .to_owned(),
        ));
    }
    if card.instances.is_empty() {
        return Err(wrong(
            "`instances` is empty; leave it out for one instance a core".to_owned(),
        ));
    }
    Ok(ModelSpec {
        description: card.description,
        license: card.license,
        required: card.required,
        source: card.source,
        input,
        input_name,
        head,
        labels_file: card.labels.file,
        defaults: DetectionDefaults {
            score_threshold: card.defaults.score_threshold,
            iou_threshold: card.defaults.iou_threshold,
            max_detections: card.defaults.max_detections,
            class_agnostic_nms: card.defaults.class_agnostic_nms,
        },
        batching: card.batching,
        instances: card.instances,
    })
}

impl Default for LabelsTable {
    fn default() -> Self {
        let file = FileName::try_from("labels.txt".to_owned());
        Self {
            file: file.expect("it has no folder"),
        }
    }
}

fn yes() -> bool {
    true
}

fn hundred() -> NonZeroU32 {
    NonZeroU32::new(100).expect("it is not zero")
}

fn one_kind_of_instance() -> Vec<InstanceSpec> {
    vec![InstanceSpec::default()]
}

fn detection_count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<NonZeroU32, D::Error> {
    bounded(deserializer, MAX_DETECTIONS as usize)
        .map(|count| count.try_into().expect("the bound is far below 2^32"))
}

/// Says in one line where the card is wrong, quoting the line, and how.
fn explain(text: &str, error: &toml::de::Error) -> ModelError {
    let reason = reword(error, &[]);
    let Some(span) = error.span() else {
        return ModelError::Card(reason);
    };
    let before = text.get(..span.start).unwrap_or(text);
    let number = before.matches('\n').count() + 1;
    let line = text.lines().nth(number - 1).unwrap_or_default().trim();
    let quote: String = line.chars().take(MAX_QUOTE).collect();
    ModelError::Card(format!("line {number}, `{quote}`: {reason}"))
}

/// The reason in one line, and for a name that is not known the nearest that is, be it one of `more`.
///
/// serde tells the known names only in its message: "unknown field `a`, expected one of `b`, `c`". Taking
/// them from there needs no list of keys beside the types.
/// Should the message change, it is shown as it is.
fn reword(error: &toml::de::Error, more: &[&str]) -> String {
    let message = error.message();
    let names: Vec<_> = message.split('`').skip(1).step_by(2).collect();
    let kind = [("unknown field", "key"), ("unknown variant", "value")]
        .iter()
        .find(|(opening, _)| message.starts_with(opening));
    if let (Some((_, kind)), [unknown, known @ ..]) = (kind, &names[..]) {
        let nearest = known
            .iter()
            .chain(more)
            .min_by_key(|known| strsim::damerau_levenshtein(unknown, known));
        if let Some(nearest) = nearest {
            return format!("unknown {kind} `{unknown}`; the nearest known one is `{nearest}`");
        }
    }
    // Without a span the only hint at the place is the key path, and only `Display` shows that.
    let full = match error.span() {
        Some(_) => message.to_owned(),
        None => error.to_string(),
    };
    full.split_whitespace().collect::<Vec<_>>().join(" ")
}
