//! Filled rectangles, outlines and label plates on a picture's pixels, cut at its edges.

use super::super::bbox::BoundingBox;
use super::super::picture::{MAX_SIDE, Picture};
use super::text::Lettering;

/// Whole pixels from the left and upper edge up to, and without, the right and lower one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rect {
    pub(super) left: i32,
    pub(super) top: i32,
    pub(super) right: i32,
    pub(super) bottom: i32,
}

/// A picture that is drawn on.
pub(super) struct Canvas {
    picture: Picture,
    width: i32,
    height: i32,
}

// === impl Rect ===

impl Rect {
    /// The pixels nearest to a box that was cut to the picture; at least one a side.
    pub(super) fn around(bbox: &BoundingBox) -> Self {
        let whole = |edge: f32| edge.round().clamp(0.0, MAX_SIDE as f32) as i32;
        let (left, top) = (whole(bbox.x_min), whole(bbox.y_min));
        Self {
            left,
            top,
            right: whole(bbox.x_max).max(left + 1),
            bottom: whole(bbox.y_max).max(top + 1),
        }
    }
}

// === impl Canvas ===

impl Canvas {
    pub(super) fn new(picture: Picture) -> Self {
        // MAX_SIDE is far below what an i32 holds.
        let (width, height) = (picture.size().width as i32, picture.size().height as i32);
        Self {
            picture,
            width,
            height,
        }
    }

    pub(super) fn into_picture(self) -> Picture {
        self.picture
    }

    /// Draws the edge of `rect`, inwards.
    pub(super) fn outline(&mut self, rect: Rect, thickness: i32, color: [u8; 3]) {
        let Rect {
            left,
            top,
            right,
            bottom,
        } = rect;
        let upper = (top + thickness).min(bottom);
        let lower = (bottom - thickness).max(upper);
        self.fill(
            Rect {
                bottom: upper,
                ..rect
            },
            color,
        );
        self.fill(Rect { top: lower, ..rect }, color);
        let sides = Rect {
            top: upper,
            bottom: lower,
            ..rect
        };
        let right_of_left = (left + thickness).min(right);
        self.fill(
            Rect {
                right: right_of_left,
                ..sides
            },
            color,
        );
        let left_of_right = (right - thickness).max(right_of_left);
        self.fill(
            Rect {
                left: left_of_right,
                ..sides
            },
            color,
        );
    }

    /// Writes `text` on a plate that sits on the upper edge of `rect`, or hangs from it where there is no
    /// room above, moved so that it stays in the picture as far as it fits.
    pub(super) fn label(
        &mut self,
        rect: Rect,
        margin: i32,
        color: [u8; 3],
        lettering: &Lettering,
        text: &str,
    ) {
        let glyphs = lettering.lay_out(text);
        let width = glyphs.width() + 2 * margin;
        let height = lettering.line_height() + margin;
        let left = rect.left.min(self.width - width).max(0);
        let top = if rect.top >= height {
            rect.top - height
        } else {
            rect.top
        };
        let plate = Rect {
            left,
            top,
            right: left + width,
            bottom: top + height,
        };
        self.fill(plate, color);
        let ink = ink_on(color);
        glyphs.draw(left + margin, top + margin / 2, |x, y, coverage| {
            self.blend(x, y, ink, coverage);
        });
    }

    fn fill(&mut self, rect: Rect, color: [u8; 3]) {
        let (left, right) = (
            rect.left.clamp(0, self.width),
            rect.right.clamp(0, self.width),
        );
        let (top, bottom) = (
            rect.top.clamp(0, self.height),
            rect.bottom.clamp(0, self.height),
        );
        if left >= right || top >= bottom {
            return;
        }
        let width = self.width as usize;
        let rows = self.pixels().chunks_exact_mut(width);
        for row in rows.take(bottom as usize).skip(top as usize) {
            row[left as usize..right as usize].fill(color);
        }
    }

    /// Lays `ink` over a pixel; `coverage` is from 0 to 1. Outside the picture nothing happens.
    fn blend(&mut self, x: i32, y: i32, ink: [u8; 3], coverage: f32) {
        if !(0..self.width).contains(&x) || !(0..self.height).contains(&y) {
            return;
        }
        let at = y as usize * self.width as usize + x as usize;
        let pixel = &mut self.pixels()[at];
        for (under, over) in pixel.iter_mut().zip(ink) {
            let mixed = f32::from(*under) + (f32::from(over) - f32::from(*under)) * coverage;
            *under = mixed.round() as u8;
        }
    }

    fn pixels(&mut self) -> &mut [[u8; 3]] {
        self.picture.pixels_mut().as_chunks_mut().0
    }
}

/// Black on light plates, white on dark ones.
fn ink_on([red, green, blue]: [u8; 3]) -> [u8; 3] {
    let luma = 299 * u32::from(red) + 587 * u32::from(green) + 114 * u32::from(blue);
    if luma > 140 * 1000 { [0; 3] } else { [255; 3] }
}
