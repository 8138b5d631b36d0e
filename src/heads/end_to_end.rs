//! Networks that suppress for themselves: one output with a finished box in each row.
//!
//! It is `[N, K, 6]`, as YOLOv10 gives it, or `[M, 7]` with the picture's place in the batch in a column of its own.
//! Then M is how many boxes the whole batch has, perhaps none, and a batch's padding may have some too.

use serde::Deserialize;

use super::boxes::{BoxFormat, BoxLayout};
use super::classes::{LabelNumbers, whole};
use super::outputs::{BoundOutput, Kind};
use super::{Decoded, Head, HeadError};
use crate::tensor::{Tensor, TensorSignature};
use crate::vision::{ImageSize, ScoredBox};

/// What a card says about such a head.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EndToEndSpec {
    /// The output's name; unset = the network's only one.
    pub output: Option<String>,
    /// What a row's numbers are, in their order.
    pub columns: Columns,
    /// Whether boxes run from 0 to 1 over the network's input.
    pub normalized: bool,
    /// The number that the network gives the first label.
    pub label_offset: u32,
}

/// What a number of a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Column {
    /// The picture's place in the batch.
    Batch,
    /// The left edge.
    X0,
    /// The upper edge.
    Y0,
    /// The right edge.
    X1,
    /// The lower edge.
    Y1,
    /// The score.
    Score,
    /// The class's number.
    Class,
}

/// The columns of a row: each of a box's, and perhaps the batch's, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<Column>")]
pub struct Columns {
    batch: Option<usize>,
    corners: [usize; 4],
    score: usize,
    class: usize,
}

/// Such a head bound to a network.
#[derive(Debug)]
struct EndToEndHead {
    output: BoundOutput,
    columns: Columns,
    layout: BoxLayout,
    numbers: LabelNumbers,
}

// === impl Columns ===

impl Columns {
    fn len(&self) -> usize {
        6 + usize::from(self.batch.is_some())
    }
}

impl Default for Columns {
    /// x0, y0, x1, y1, score, class.
    fn default() -> Self {
        Self {
            batch: None,
            corners: [0, 1, 2, 3],
            score: 4,
            class: 5,
        }
    }
}

impl TryFrom<Vec<Column>> for Columns {
    type Error = String;

    fn try_from(columns: Vec<Column>) -> Result<Self, String> {
        let find = |wanted: Column| columns.iter().position(|column| *column == wanted);
        let needed = |wanted: Column, name: &str| {
            find(wanted).ok_or_else(|| format!("the columns lack `{name}`"))
        };
        let found = Self {
            batch: find(Column::Batch),
            corners: [
                needed(Column::X0, "x0")?,
                needed(Column::Y0, "y0")?,
                needed(Column::X1, "x1")?,
                needed(Column::Y1, "y1")?,
            ],
            score: needed(Column::Score, "score")?,
            class: needed(Column::Class, "class")?,
        };
        match columns.len() == found.len() {
            true => Ok(found),
            false => Err("a column stands twice".to_owned()),
        }
    }
}

// === impl EndToEndSpec ===

impl EndToEndSpec {
    pub(super) fn bind(
        &self,
        input: ImageSize,
        class_count: usize,
        outputs: &[TensorSignature],
    ) -> Result<Box<dyn Head>, HeadError> {
        let len = Some(self.columns.len());
        let row = match self.columns.batch {
            Some(_) => &[len][..],
            None => &[None, len],
        };
        Ok(Box::new(EndToEndHead {
            output: BoundOutput::find(outputs, self.output.as_deref(), Kind::Float, row)?,
            columns: self.columns,
            layout: BoxLayout::new(BoxFormat::Xyxy, self.normalized, input),
            numbers: LabelNumbers {
                offset: self.label_offset,
                class_count,
            },
        }))
    }
}

// === impl EndToEndHead ===

impl Head for EndToEndHead {
    fn decode(
        &self,
        outputs: &[Tensor],
        index: usize,
        score_threshold: f32,
    ) -> Result<Decoded, HeadError> {
        let numbers = match self.columns.batch {
            Some(_) => self.output.all_floats(outputs)?,
            None => self.output.floats(outputs, index)?,
        };
        let mut decoded = Decoded::default();
        for row in numbers.chunks_exact(self.columns.len()) {
            if let Some(column) = self.columns.batch
                && !belongs(row[column], index, &mut decoded)
            {
                continue;
            }
            let score = row[self.columns.score];
            // A NaN is not below and goes on, to be counted.
            if score < score_threshold {
                continue;
            }
            let Some(class) = self.numbers.class(whole(row[self.columns.class])) else {
                decoded.dropped += 1;
                continue;
            };
            decoded.push(ScoredBox {
                bbox: self.layout.bbox(self.columns.corners.map(|at| row[at])),
                score,
                class,
            });
        }
        Ok(decoded)
    }
}

/// Whether a row whose batch column holds `place` is of the picture at `index`.
///
/// One that is of no picture at all is counted by the first: every batch has one, so it is counted once.
fn belongs(place: f32, index: usize, decoded: &mut Decoded) -> bool {
    let place = usize::try_from(whole(place)).ok();
    if place.is_none() && index == 0 {
        decoded.dropped += 1;
    }
    place == Some(index)
}
