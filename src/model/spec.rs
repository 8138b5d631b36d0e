//! A model's card: what the server must know about a network that the network's file does not say.

use std::num::NonZeroU32;

use super::{BatchingSpec, FileName, InstanceSpec, ModelError, ModelSource, Threshold, card};
use crate::heads::{AnchorTable, HeadSpec};
use crate::vision::preprocess::InputSpec;

/// A parsed card, `models/<name>/model.toml`.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelSpec {
    /// What the model is, in a sentence.
    pub description: String,
    /// The licence of the network and whom to thank for it.
    pub license: String,
    /// Whether the server is unhealthy, and does not start, without this model. True unless the card says
    /// otherwise.
    pub required: bool,
    /// Where the network's file comes from; unset for one that the operator puts there.
    pub source: Option<ModelSource>,
    /// What pictures must be made into.
    pub input: InputSpec,
    /// The name of the pictures' input; unset = the network's only one besides the head's.
    pub input_name: Option<String>,
    /// How the outputs are read.
    pub head: HeadSpec,
    /// The file with the labels, in the model's folder: `labels.txt` unless the card says otherwise.
    pub labels_file: FileName,
    /// What a request gets that says nothing.
    pub defaults: DetectionDefaults,
    /// How requests may be put together.
    pub batching: BatchingSpec,
    /// What runs where. Never empty; without `[[instances]]` it is one kind, of [`Default`].
    pub instances: Vec<InstanceSpec>,
}

/// The most boxes in a reply, whatever a card or a caller says: some 120 kB of them.
pub const MAX_DETECTIONS: u32 = 3_000;

/// The card's `[defaults]` table.
#[derive(Debug, Clone, PartialEq)]
pub struct DetectionDefaults {
    /// Boxes below it are left out.
    pub score_threshold: Threshold,
    /// Of two boxes that overlap by more, the lower one goes. Unset = no suppression, which only a head that
    /// gives each object once may say.
    pub iou_threshold: Option<Threshold>,
    /// Most boxes in a reply, the highest first.
    pub max_detections: NonZeroU32,
    /// Whether boxes of different classes suppress each other.
    pub class_agnostic_nms: bool,
}

// === impl ModelSpec ===

impl ModelSpec {
    /// Reads a card. `anchors` reads a file of anchors that the card names, which lies beside it.
    ///
    /// # Errors
    /// [`ModelError::Card`] in one line: the place, and what is wrong there. A key that is not known is an
    /// error that names the nearest known one. And what `anchors` says.
    pub fn parse(
        text: &str,
        anchors: impl FnOnce(&FileName) -> Result<AnchorTable, ModelError>,
    ) -> Result<Self, ModelError> {
        card::parse(text, anchors)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::heads::AnchorSpec;
    use crate::model::{Device, DeviceRequest, Origin};

    const SHORT: &str = r#"
[input]
size = [416, 320]
resize = { mode = "stretch" }
color = "rgb"

[head]
family = "detr"

[defaults]
score_threshold = 0.5
"#;

    const FULL: &str = r#"
description = "finds things"
license = "Apache-2.0"
required = false

[source]
version = 3
file = "x.onnx"
sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
[source.derived_from]
file = "y.onnx"
sha256 = "1111111111111111111111111111111111111111111111111111111111111111"
url = "https://example.com/y.onnx"
script = "make.py"

[input]
name = "images"
size = [64, 32]
resize = { mode = "letterbox", anchor = "top_left", pad = [1, 2, 3] }
color = "bgr"
layout = "nhwc"
scale = 0.5
mean = [1, 2, 3]
std = [4, 5, 6]

[head]
family = "yolox"
strides = [8, 16]
output = "boxes"
multi_label = true

[labels]
file = "names.txt"

[defaults]
score_threshold = 0.25
iou_threshold = 0.65
max_detections = 300
class_agnostic_nms = true

[batching]
max_batch_size = 8
max_queue_delay = "2ms"

[[instances]]
device = "cuda:1"
count = 2

[[instances]]
device = "cpu"
threads = 4
"#;

    fn parse(card: &str) -> Result<ModelSpec, ModelError> {
        ModelSpec::parse(card, |file| panic!("{file:?} is read"))
    }

    fn refusal(card: &str) -> String {
        parse(card).unwrap_err().to_string()
    }

    /// The card with `from` replaced, which must be there.
    fn edited(card: &str, from: &str, to: &str) -> String {
        assert!(card.contains(from), "{from}");
        card.replace(from, to)
    }

    #[test]
    fn a_short_card_has_the_documented_defaults() {
        let spec = parse(SHORT).unwrap();
        assert!(spec.required);
        assert_eq!(spec.source, None);
        assert_eq!(spec.input_name, None);
        assert_eq!(spec.labels_file.as_str(), "labels.txt");
        assert_eq!(spec.defaults.iou_threshold, None);
        assert_eq!(spec.defaults.max_detections.get(), 100);
        assert_eq!(spec.batching, BatchingSpec::default());
        assert_eq!(spec.batching.max_batch_size.get(), 1);
        assert_eq!(spec.instances, [InstanceSpec::default()]);
    }

    #[test]
    fn a_full_card_is_read_whole() {
        let spec = parse(FULL).unwrap();
        assert!(!spec.required);
        assert_eq!(spec.license, "Apache-2.0");
        let source = spec.source.unwrap();
        assert_eq!(source.version.get(), 3);
        let Origin::DerivedFrom(origin) = source.origin else {
            panic!("{source:?}")
        };
        assert_eq!(origin.script.as_str(), "make.py");
        assert_eq!(spec.input_name.as_deref(), Some("images"));
        assert_eq!((spec.input.size.width, spec.input.size.height), (64, 32));
        let HeadSpec::Yolox(head) = spec.head else {
            panic!("{:?}", spec.head)
        };
        assert!(head.multi_label);
        assert_eq!(head.strides.len(), 2);
        assert_eq!(spec.labels_file.as_str(), "names.txt");
        assert_eq!(spec.defaults.score_threshold.get(), 0.25);
        assert_eq!(spec.defaults.iou_threshold.unwrap().get(), 0.65);
        assert!(spec.defaults.class_agnostic_nms);
        assert_eq!(spec.batching.max_queue_delay, Duration::from_millis(2));
        let [gpu, cpu] = &spec.instances[..] else {
            panic!("{:?}", spec.instances)
        };
        assert_eq!(gpu.device, DeviceRequest::Exact(Device::Cuda(1)));
        assert_eq!(gpu.count.unwrap().get(), 2);
        assert_eq!(cpu.device, DeviceRequest::Exact(Device::Cpu));
        assert_eq!((cpu.count, cpu.threads.get()), (None, 4));
    }

    #[test]
    fn an_unknown_key_in_any_table_is_named_with_the_nearest_known_one() {
        for (known, typo) in [
            ("license", "licence"),
            ("required", "requierd"),
            ("version", "versoin"),
            ("script", "scrip"),
            ("name", "nme"),
            ("pad", "pda"),
            ("anchor", "achor"),
            ("color", "colour"),
            ("scale", "scael"),
            ("strides", "stride"),
            ("multi_label", "multilabel"),
            ("score_threshold", "score_treshold"),
            ("class_agnostic_nms", "agnostic_nms"),
            ("max_queue_delay", "max_queue_dealy"),
            ("count", "counts"),
            ("threads", "thread"),
            ("[defaults]", "[default]"),
            ("[batching]", "[baching]"),
        ] {
            let spelled = |word: &str| match word.strip_prefix('[') {
                Some(_) => word.to_owned(),
                None => format!("{word} = "),
            };
            let error = refusal(&edited(FULL, &spelled(known), &spelled(typo)));
            let bare = |word: &str| word.trim_matches(['[', ']']).to_owned();
            let expected = format!(
                "unknown key `{}`; the nearest known one is `{}`",
                bare(typo),
                bare(known)
            );
            assert!(error.contains(&expected), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn a_wrong_value_is_told_with_its_line() {
        for (from, to, expected) in [
            (
                "0.25",
                "1.5",
                "line 36, `score_threshold = 1.5`: a threshold lies from 0 to 1, not at 1.5",
            ),
            (
                "0.65",
                "nan",
                "line 37, `iou_threshold = nan`: a threshold lies from 0 to 1, not at NaN",
            ),
            (
                "= 300",
                "= 0",
                "line 38, `max_detections = 0`: 0 is not from 1 to 3000",
            ),
            (
                "= 8\n",
                "= 1000\n",
                "line 42, `max_batch_size = 1000`: 1000 is not from 1 to 256",
            ),
            (
                "\"2ms\"",
                "\"2\"",
                "line 43, `max_queue_delay = \"2\"`: \"2\" is no delay",
            ),
            (
                "cuda:1",
                "gpu1",
                "line 46, `device = \"gpu1\"`: \"gpu1\" is no device",
            ),
            (
                "count = 2",
                "count = -2",
                "line 47, `count = -2`: -2 is not from 1 to 256",
            ),
            (
                "names.txt",
                "../names.txt",
                "line 33, `file = \"../names.txt\"`: \"../names.txt\" is no plain file name",
            ),
            ("\"1111", "\"XYZ", "is no SHA-256"),
            (
                "\"yolox\"",
                "\"yolo\"",
                "unknown value `yolo`; the nearest known one is `yolox`",
            ),
            ("[8, 16]", "[8, 0]", "[head]"),
            ("mean = [1, 2, 3]", "mean = [1, 2]", "mean"),
            ("[64, 32]", "[64, 0]", "`[input]`: "),
            (
                "name = \"images\"",
                "name = 3",
                "`name` is not the name of an input",
            ),
            ("iou_threshold = 0.65\n", "", "lacks `iou_threshold`"),
            ("size = [64, 32]\n", "", "missing field `size`"),
            ("family = \"yolox\"", "", "missing field `family`"),
            ("url = ", "file = ", "duplicate key"),
            (
                "[source.derived_from]",
                "url = \"x\"\n[source.derived_from]",
                "either `url` or `derived_from`",
            ),
            (
                "required = false",
                "required = fals",
                "line 4, `required = fals`",
            ),
        ] {
            let error = refusal(&edited(FULL, from, to));
            assert!(error.contains(expected), "{to}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
        let error = refusal(&edited(SHORT, "\n[input]", "instances = []\n[input]"));
        assert!(error.contains("`instances` is empty"), "{error}");
        assert_eq!(refusal(""), "line 1, ``: missing field `input`");
    }

    const SSD: &str = r#"
[input]
size = [300, 300]
resize = { mode = "stretch" }
color = "rgb"

[head]
family = "ssd"
coding = "tensorflow"
anchors = "anchors.npy"

[defaults]
score_threshold = 0.5
iou_threshold = 0.6
"#;

    #[test]
    fn anchors_come_from_the_file_that_the_card_names() {
        let table = AnchorTable::new(vec![[0.5, 0.5, 0.25, 0.125]]).unwrap();
        let spec = ModelSpec::parse(SSD, |file| {
            assert_eq!(file.as_str(), "anchors.npy");
            Ok(table.clone())
        })
        .unwrap();
        let HeadSpec::Ssd(head) = spec.head else {
            panic!("{:?}", spec.head)
        };
        assert_eq!(head.anchors, AnchorSpec::Table(table));
    }

    #[test]
    fn a_card_of_another_family_is_held_to_its_own_keys() {
        let computed = "[head.anchors]\nclip = true\nmaps = [{ cells = [1, 1], min_sizes = [9] }]";
        let maps = edited(SSD, "anchors = \"anchors.npy\"", computed);
        assert!(parse(&maps).is_ok());
        for (card, from, to, expected) in [
            (
                SSD,
                "coding",
                "codign",
                "unknown key `codign`; the nearest known one is `coding`",
            ),
            (
                SSD,
                "\"tensorflow\"",
                "\"tf\"",
                "unknown value `tf`; the nearest known one is",
            ),
            (
                SSD,
                "anchors.npy",
                "../anchors.npy",
                "is no plain file name",
            ),
            (
                SSD,
                "anchors = \"anchors.npy\"",
                "",
                "missing field `anchors`",
            ),
            (
                &maps,
                "min_sizes",
                "sizes",
                "unknown key `sizes`; the nearest known one is",
            ),
            (
                &maps,
                "min_sizes = [9]",
                "min_sizes = [-9]",
                "-9 is not above zero",
            ),
            (&maps, "iou_threshold = 0.6", "", "lacks `iou_threshold`"),
            (
                SHORT,
                "\"detr\"",
                "\"yolov11\"",
                "unknown value `yolov11`; the nearest known one is `yolov5`",
            ),
            (
                SHORT,
                "\"detr\"",
                "\"ssd_decoded\"",
                "missing field `box_format`",
            ),
            (
                SHORT,
                "\"detr\"",
                "\"end_to_end\"\ncolumns = [\"x0\"]",
                "the columns lack `y0`",
            ),
        ] {
            let error = refusal(&edited(card, from, to));
            assert!(error.contains(expected), "{to}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
