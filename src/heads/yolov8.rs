//! YOLOv8, v9 and v11: one output `[N, 4 + classes, A]` of finished boxes and class scores, no objectness.

use serde::Deserialize;

use super::boxes::{BoxFormat, BoxLayout};
use super::classes::{ClassReader, ClassScores};
use super::outputs::{BoundOutput, Kind};
use super::{Decoded, Head, HeadError};
use crate::tensor::{Tensor, TensorSignature};
use crate::vision::ImageSize;

/// Numbers of a candidate ahead of its class scores.
const HEADER: usize = 4;

/// Candidates whose scores are compared at a time. Their part of every plane then stays in the nearest cache until
/// those that reach the threshold are read.
const BLOCK: usize = 64;

/// What a card says about a YOLOv8 head.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Yolov8Spec {
    /// The output's name; unset = the network's only one.
    pub output: Option<String>,
    /// How the output lies.
    pub layout: OutputLayout,
    /// What a box's four numbers mean.
    pub box_format: BoxFormat,
    /// Whether boxes run from 0 to 1 over the network's input.
    pub normalized: bool,
    /// Whether a candidate gives a box for every class that reaches the threshold, rather than for its best alone.
    pub multi_label: bool,
}

/// Which dimension comes first behind the batch's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputLayout {
    /// `[N, 4 + C, A]`, as the networks give it.
    ChannelsFirst,
    /// `[N, A, 4 + C]`.
    AnchorsFirst,
}

/// A YOLOv8 head bound to a network.
#[derive(Debug)]
struct Yolov8Head {
    output: BoundOutput,
    layout: OutputLayout,
    boxes: BoxLayout,
    classes: ClassScores,
}

// === impl Yolov8Spec ===

impl Default for Yolov8Spec {
    fn default() -> Self {
        Self {
            output: None,
            layout: OutputLayout::ChannelsFirst,
            box_format: BoxFormat::Cxcywh,
            normalized: false,
            multi_label: false,
        }
    }
}

impl Yolov8Spec {
    pub(super) fn bind(
        &self,
        input: ImageSize,
        class_count: usize,
        outputs: &[TensorSignature],
    ) -> Result<Box<dyn Head>, HeadError> {
        let channels = Some(HEADER + class_count);
        let row = match self.layout {
            OutputLayout::ChannelsFirst => [channels, None],
            OutputLayout::AnchorsFirst => [None, channels],
        };
        Ok(Box::new(Yolov8Head {
            output: BoundOutput::find(outputs, self.output.as_deref(), Kind::Float, &row)?,
            layout: self.layout,
            boxes: BoxLayout::new(self.box_format, self.normalized, input),
            classes: ClassScores::plain(class_count, self.multi_label),
        }))
    }
}

// === impl Yolov8Head ===

impl Head for Yolov8Head {
    fn decode(
        &self,
        outputs: &[Tensor],
        index: usize,
        score_threshold: f32,
    ) -> Result<Decoded, HeadError> {
        let numbers = self.output.floats(outputs, index)?;
        let reader = self.classes.at(score_threshold);
        let mut decoded = Decoded::default();
        match self.layout {
            OutputLayout::ChannelsFirst => self.read_planes(&numbers, &reader, &mut decoded),
            OutputLayout::AnchorsFirst => self.read_rows(&numbers, &reader, &mut decoded),
        }
        Ok(decoded)
    }
}

impl Yolov8Head {
    fn read_rows(&self, numbers: &[f32], reader: &ClassReader<'_>, decoded: &mut Decoded) {
        for candidate in numbers.chunks_exact(HEADER + self.classes.columns()) {
            let [a, b, c, d, ref scores @ ..] = *candidate else {
                continue;
            };
            if reader.may_reach(scores) {
                let bbox = || self.boxes.bbox([a, b, c, d]);
                reader.read(scores.iter().copied(), bbox, decoded);
            }
        }
    }

    fn read_planes(&self, numbers: &[f32], reader: &ClassReader<'_>, decoded: &mut Decoded) {
        let anchors = numbers.len() / (HEADER + self.classes.columns());
        if anchors == 0 {
            return;
        }
        let (boxes, scores) = numbers.split_at(HEADER * anchors);
        let cut = reader.cut();
        for start in (0..anchors).step_by(BLOCK) {
            let block = start..(start + BLOCK).min(anchors);
            let mut below = [true; BLOCK];
            for plane in scores.chunks_exact(anchors) {
                // A NaN is not below and goes on, to be counted.
                for (below, score) in below.iter_mut().zip(&plane[block.clone()]) {
                    *below &= *score < cut;
                }
            }
            for (anchor, _) in block.zip(below).filter(|(_, below)| !below) {
                let number = |row: usize| boxes[row * anchors + anchor];
                let bbox = || {
                    self.boxes
                        .bbox([number(0), number(1), number(2), number(3)])
                };
                let column = scores[anchor..].iter().step_by(anchors).copied();
                reader.read(column, bbox, decoded);
            }
        }
    }
}
