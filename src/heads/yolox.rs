//! YOLOX: one output `[N, anchors, 5 + classes]` of grid cells.
//!
//! A cell's numbers are dx, dy, dw, dh, objectness and the class scores; objectness and class scores went
//! through the sigmoid inside the network. Anchors are in the order of the strides, row by row in each grid.
//! The cell in column `c` and row `r` of a grid of stride `s` has its centre at `((dx + c) * s, (dy + r) * s)`
//! and the size `(exp(dw) * s, exp(dh) * s)`, in pixels of the network's input. An export that has done this itself
//! (`decoded`) gives the centre and the size in their place.

use std::num::NonZeroU32;

use serde::Deserialize;

use super::boxes::{BoxFormat, BoxLayout, centered};
use super::cells::{CellBoxes, CellHead, HEADER};
use super::classes::ClassScores;
use super::outputs::{BoundOutput, Kind};
use super::{Head, HeadError};
use crate::tensor::TensorSignature;
use crate::vision::{BoundingBox, ImageSize};

/// What a card says about a YOLOX head.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct YoloxSpec {
    /// The grids' strides in pixels, in the order of their anchors.
    pub strides: Vec<NonZeroU32>,
    /// The output's name; unset = the network's only one.
    pub output: Option<String>,
    /// Whether the network decodes its boxes itself: centre and size in pixels of its input.
    pub decoded: bool,
    /// Whether a cell gives a box for every class that reaches the threshold, rather than for its best class
    /// alone. More boxes at low thresholds, and the better average precision that comes of them; next to no
    /// difference at those used in practice.
    pub multi_label: bool,
}

/// Where an anchor's cell lies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cell {
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
            decoded: false,
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
        let row = [Some(cells.len()), Some(HEADER + class_count)];
        Ok(Box::new(CellHead {
            output: BoundOutput::find(outputs, self.output.as_deref(), Kind::Float, &row)?,
            boxes: match self.decoded {
                true => CellBoxes::Decoded(BoxLayout::new(BoxFormat::Cxcywh, false, input)),
                false => CellBoxes::Grid(cells),
            },
            classes: ClassScores::plain(class_count, self.multi_label),
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

// === impl Cell ===

impl Cell {
    /// The box of a cell whose numbers are `dx, dy, dw, dh`. They may be anything, and so may it.
    pub(super) fn bbox(self, [dx, dy, dw, dh]: [f32; 4]) -> BoundingBox {
        centered(
            (dx + self.column) * self.stride,
            (dy + self.row) * self.stride,
            dw.exp() * self.stride,
            dh.exp() * self.stride,
        )
    }
}
