//! YOLOX: one output `[N, anchors, 5 + classes]` of grid cells.
//!
//! A cell's numbers are dx, dy, dw, dh, objectness and the class scores; objectness and class scores went
//! through the sigmoid inside the network. Anchors are in the order of the strides, row by row in each grid.
//! The cell in column `c` and row `r` of a grid of stride `s` has its centre at `((dx + c) * s, (dy + r) * s)`
//! and the size `(exp(dw) * s, exp(dh) * s)`, in pixels of the network's input.

use std::num::NonZeroU32;

use serde::Deserialize;

use super::outputs::{BoundOutput, Kind};
use super::{Decoded, Head, HeadError};
use crate::tensor::{Tensor, TensorSignature};
use crate::vision::{BoundingBox, ClassId, ImageSize, ScoredBox};

/// Numbers of a cell ahead of its class scores.
const CELL_HEADER: usize = 5;

/// What a card says about a YOLOX head.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct YoloxSpec {
    /// The grids' strides in pixels, in the order of their anchors.
    pub strides: Vec<NonZeroU32>,
    /// The output's name; unset = the network's only one.
    pub output: Option<String>,
    /// Whether a cell gives a box for every class that reaches the threshold, rather than for its best class
    /// alone. More boxes at low thresholds, and the better average precision that comes of them; next to no
    /// difference at those used in practice.
    pub multi_label: bool,
}

/// A YOLOX head bound to a network.
#[derive(Debug)]
struct YoloxHead {
    output: BoundOutput,
    cells: Vec<Cell>,
    cell_len: usize,
    multi_label: bool,
}

/// Where an anchor's cell lies.
#[derive(Debug, Clone, Copy)]
struct Cell {
    column: f32,
    row: f32,
    /// Side in pixels of the network's input.
    stride: f32,
}

// === impl YoloxSpec ===

impl Default for YoloxSpec {
    fn default() -> Self {
        let stride = |stride| NonZeroU32::new(stride).expect("8, 16 and 32 are not zero");
        Self {
            strides: [8, 16, 32].map(stride).to_vec(),
            output: None,
            multi_label: false,
        }
    }
}

impl YoloxSpec {
    pub(super) fn bind(
        &self,
        input: ImageSize,
        class_count: usize,
        outputs: &[TensorSignature],
    ) -> Result<Box<dyn Head>, HeadError> {
        let cells = self.cells(input)?;
        let cell_len = CELL_HEADER + class_count;
        let row = [Some(cells.len()), Some(cell_len)];
        Ok(Box::new(YoloxHead {
            output: BoundOutput::find(outputs, self.output.as_deref(), Kind::Float, &row)?,
            cells,
            cell_len,
            multi_label: self.multi_label,
        }))
    }

    /// The cells of all grids, in the order of the anchors.
    fn cells(&self, input: ImageSize) -> Result<Vec<Cell>, HeadError> {
        let ImageSize { width, height } = input;
        let mut cells = Vec::new();
        for stride in self.strides.iter().map(|stride| stride.get()) {
            if width % stride != 0 || height % stride != 0 {
                return Err(HeadError::Stride {
                    width,
                    height,
                    stride,
                });
            }
            for row in 0..height / stride {
                cells.extend((0..width / stride).map(|column| Cell {
                    column: column as f32,
                    row: row as f32,
                    stride: stride as f32,
                }));
            }
        }
        Ok(cells)
    }
}

// === impl YoloxHead ===

impl Head for YoloxHead {
    fn decode(
        &self,
        outputs: &[Tensor],
        index: usize,
        score_threshold: f32,
    ) -> Result<Decoded, HeadError> {
        let numbers = self.output.floats(outputs, index)?;
        let mut decoded = Decoded::default();
        for (cell, numbers) in self.cells.iter().zip(numbers.chunks_exact(self.cell_len)) {
            let (header, classes) = numbers.split_at(CELL_HEADER);
            let objectness = header[4];
            // No class score is above one, so nothing here can reach the threshold: true of all but a few
            // cells, which makes this the line that counts. A NaN is not below and goes on.
            if objectness < score_threshold {
                continue;
            }
            if !objectness.is_finite() || classes.iter().any(|class| !class.is_finite()) {
                decoded.dropped += 1;
                continue;
            }
            let bbox = cell.bbox(header);
            let scored = |(class, score): (usize, f32)| ScoredBox {
                bbox,
                score,
                class: ClassId(class as u32),
            };
            let scores = classes.iter().map(|class| objectness * class).enumerate();
            let candidates = scores.filter(|&(_, score)| score >= score_threshold);
            if self.multi_label {
                candidates.for_each(|candidate| decoded.push(scored(candidate)));
            } else if let Some(best) = candidates
                // `max_by` keeps the last of equals: reversed, the lowest class wins.
                .rev()
                .max_by(|(_, a), (_, b)| a.total_cmp(b))
            {
                decoded.push(scored(best));
            }
        }
        Ok(decoded)
    }
}

// === impl Cell ===

impl Cell {
    /// The box of a cell whose numbers begin with `dx, dy, dw, dh`. They may be anything, and so may it.
    fn bbox(self, header: &[f32]) -> BoundingBox {
        let (center_x, center_y) = (
            (header[0] + self.column) * self.stride,
            (header[1] + self.row) * self.stride,
        );
        let (half_width, half_height) = (
            header[2].exp() * self.stride / 2.0,
            header[3].exp() * self.stride / 2.0,
        );
        BoundingBox {
            x_min: center_x - half_width,
            y_min: center_y - half_height,
            x_max: center_x + half_width,
            y_max: center_y + half_height,
        }
    }
}
