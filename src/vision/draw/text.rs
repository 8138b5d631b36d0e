//! Letters: their places in a line and their shapes.

use ab_glyph::{Font, FontRef, Glyph, PxScale, PxScaleFont, ScaleFont, point};

static FONT: &[u8] = include_bytes!("DejaVuSans-Bold-Latin1.ttf");

/// The most letters of one label that are drawn. A label map's names are shorter; more would not fit on
/// a picture and only cost time.
const MAX_LETTERS: usize = 120;

/// A font at one size.
pub(super) struct Lettering {
    font: PxScaleFont<FontRef<'static>>,
}

/// A line of letters.
pub(super) struct Line<'a> {
    lettering: &'a Lettering,
    /// Positions are those of the letters' origins, from the line's upper left corner.
    glyphs: Vec<Glyph>,
    width: f32,
}

// === impl Lettering ===

impl Lettering {
    /// Letters whose line is `pixels` high, at least as high as can be read.
    pub(super) fn of_height(pixels: f32) -> Self {
        let font = FontRef::try_from_slice(FONT)
            .expect("the font in this crate is whole; each test that draws reads it");
        let scale = PxScale::from(pixels.max(13.0));
        Self {
            font: font.into_scaled(scale),
        }
    }

    /// Pixels from the top of a line to its bottom.
    pub(super) fn line_height(&self) -> i32 {
        self.font.height().ceil() as i32
    }

    pub(super) fn lay_out(&self, text: &str) -> Line<'_> {
        let mut width = 0.0;
        let mut glyphs = Vec::new();
        for letter in text.chars().take(MAX_LETTERS) {
            let id = match self.font.glyph_id(letter) {
                // the glyph of what the font does not have
                id if id.0 == 0 => self.font.glyph_id('?'),
                id => id,
            };
            let place = point(width, self.font.ascent());
            glyphs.push(id.with_scale_and_position(self.font.scale(), place));
            width += self.font.h_advance(id);
        }
        Line {
            lettering: self,
            glyphs,
            width,
        }
    }
}

// === impl Line ===

impl Line<'_> {
    pub(super) fn width(&self) -> i32 {
        self.width.ceil() as i32
    }

    /// Calls `ink` with each pixel that a letter covers and by how much, the line's upper left corner being at
    /// `(left, top)`.
    pub(super) fn draw(self, left: i32, top: i32, mut ink: impl FnMut(i32, i32, f32)) {
        for glyph in self.glyphs {
            let Some(shape) = self.lettering.font.outline_glyph(glyph) else {
                continue;
            };
            let corner = shape.px_bounds().min;
            let (x0, y0) = (left + corner.x as i32, top + corner.y as i32);
            shape.draw(|x, y, coverage| ink(x0 + x as i32, y0 + y as i32, coverage.min(1.0)));
        }
    }
}
