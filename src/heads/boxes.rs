//! What the four numbers of a finished box mean.

use serde::Deserialize;

use crate::vision::{BoundingBox, ImageSize};

/// The order and the meaning of a box's four numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BoxFormat {
    /// Corners: left, upper, right, lower.
    Xyxy,
    /// Corners: upper, left, lower, right.
    Yxyx,
    /// The centre (x, y), width, height.
    Cxcywh,
}

/// A format and a scale.
#[derive(Debug, Clone, Copy)]
pub(super) struct BoxLayout {
    format: BoxFormat,
    /// Pixels of the network's input that a one is: across and down.
    scale: [f32; 2],
}

// === impl BoxLayout ===

impl BoxLayout {
    /// `normalized` boxes have numbers from 0 to 1 over the network's input, others are in its pixels.
    pub(super) fn new(format: BoxFormat, normalized: bool, input: ImageSize) -> Self {
        let scale = match normalized {
            true => [input.width as f32, input.height as f32],
            false => [1.0; 2],
        };
        Self { format, scale }
    }

    /// The box. The numbers may be anything, and so may it.
    pub(super) fn bbox(&self, [a, b, c, d]: [f32; 4]) -> BoundingBox {
        let [across, down] = self.scale;
        let corners = |x_min, y_min, x_max, y_max| BoundingBox {
            x_min: x_min * across,
            y_min: y_min * down,
            x_max: x_max * across,
            y_max: y_max * down,
        };
        match self.format {
            BoxFormat::Xyxy => corners(a, b, c, d),
            BoxFormat::Yxyx => corners(b, a, d, c),
            BoxFormat::Cxcywh => centered(a * across, b * down, c * across, d * down),
        }
    }
}

/// The box of a centre and a size.
pub(super) fn centered(x: f32, y: f32, width: f32, height: f32) -> BoundingBox {
    let (half_width, half_height) = (width / 2.0, height / 2.0);
    BoundingBox {
        x_min: x - half_width,
        y_min: y - half_height,
        x_max: x + half_width,
        y_max: y + half_height,
    }
}
