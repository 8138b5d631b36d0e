//! Y, U and V to R, G and B.
//!
//! Fixed point with 16 bits behind the point: within one level of the exact formula for every input.

use std::array::from_fn;

use super::ColorSpace;

/// Bits behind the point.
const BITS: u32 = 16;

/// The factors of one colour space.
#[derive(Debug, Clone, Copy)]
pub(super) struct Matrix {
    /// What Y is at black.
    black: i32,
    y: i32,
    red_v: i32,
    green_u: i32,
    green_v: i32,
    blue_u: i32,
}

/// Pixels of a row that are converted at once. Over arrays of a fixed length the compiler uses vector
/// instructions; one by one, the clamps become branches, and detail makes those four times as slow.
pub(super) const BLOCK: usize = 16;

/// Samples of [`BLOCK`] pixels; each two share their chroma.
#[derive(Debug, Default)]
pub(super) struct Block {
    pub(super) y: [u8; BLOCK],
    pub(super) u: [u8; BLOCK / 2],
    pub(super) v: [u8; BLOCK / 2],
}

// === impl Matrix ===

impl Matrix {
    /// Works the factors out from a standard's shares of red and blue in brightness, and its ranges.
    pub(super) fn of(color_space: ColorSpace) -> Self {
        let (red, blue) = match color_space {
            ColorSpace::Bt601Limited | ColorSpace::Bt601Full => (0.299, 0.114),
            ColorSpace::Bt709Limited | ColorSpace::Bt709Full => (0.2126, 0.0722),
        };
        let (black, y_range, chroma_range) = match color_space {
            ColorSpace::Bt601Limited | ColorSpace::Bt709Limited => (16, 219.0, 224.0),
            ColorSpace::Bt601Full | ColorSpace::Bt709Full => (0, 255.0, 255.0),
        };
        let green = 1.0 - red - blue;
        let chroma = 2.0 * 255.0 / chroma_range;
        let fixed = |factor: f64| (factor * f64::from(1 << BITS)).round() as i32;
        Self {
            black,
            y: fixed(255.0 / y_range),
            red_v: fixed((1.0 - red) * chroma),
            green_u: fixed((1.0 - blue) * chroma * blue / green),
            green_v: fixed((1.0 - red) * chroma * red / green),
            blue_u: fixed((1.0 - blue) * chroma),
        }
    }

    /// Converts a row. `fill` puts the samples of so many pixels, from the given one on (an even number), into
    /// a block; what it leaves alone does not show.
    pub(super) fn row(&self, out: &mut [[u8; 3]], fill: impl Fn(&mut Block, usize, usize)) {
        let mut block = Block::default();
        let (blocks, rest) = out.as_chunks_mut::<BLOCK>();
        let whole = blocks.len() * BLOCK;
        for (index, pixels) in blocks.iter_mut().enumerate() {
            fill(&mut block, index * BLOCK, BLOCK);
            self.convert(&block, pixels);
        }
        if !rest.is_empty() {
            let mut pixels = [[0; 3]; BLOCK];
            fill(&mut block, whole, rest.len());
            self.convert(&block, &mut pixels);
            rest.copy_from_slice(&pixels[..rest.len()]);
        }
    }

    /// One array after another: in a single loop over all of it the compiler does not find the vectors.
    fn convert(&self, block: &Block, pixels: &mut [[u8; 3]; BLOCK]) {
        const HALF: i32 = 1 << (BITS - 1);
        let y = block.y.map(|y| (i32::from(y) - self.black) * self.y + HALF);
        let u: [i32; BLOCK] = from_fn(|at| i32::from(block.u[at / 2]) - 128);
        let v: [i32; BLOCK] = from_fn(|at| i32::from(block.v[at / 2]) - 128);
        let level = |value: i32| (value >> BITS).clamp(0, 255) as u8;
        let red: [u8; BLOCK] = from_fn(|at| level(y[at] + self.red_v * v[at]));
        let green: [u8; BLOCK] =
            from_fn(|at| level(y[at] - self.green_u * u[at] - self.green_v * v[at]));
        let blue: [u8; BLOCK] = from_fn(|at| level(y[at] + self.blue_u * u[at]));
        for (at, pixel) in pixels.iter_mut().enumerate() {
            *pixel = [red[at], green[at], blue[at]];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pixels of sixteen Y from `first` on.
    fn sixteen(matrix: &Matrix, first: u8, u: u8, v: u8) -> [[u8; 3]; BLOCK] {
        let mut pixels = [[0; 3]; BLOCK];
        let block = Block {
            y: from_fn(|at| first + at as u8),
            u: [u; BLOCK / 2],
            v: [v; BLOCK / 2],
        };
        matrix.convert(&block, &mut pixels);
        pixels
    }

    #[test]
    fn black_white_and_gray_have_no_tint() {
        for (space, black, white) in [
            (ColorSpace::Bt601Limited, 16, 235),
            (ColorSpace::Bt709Limited, 16, 235),
            (ColorSpace::Bt601Full, 0, 255),
            (ColorSpace::Bt709Full, 0, 255),
        ] {
            let matrix = Matrix::of(space);
            let gray = |y: u8| sixteen(&matrix, y & 0xf0, 128, 128)[usize::from(y & 0xf)];
            assert_eq!(gray(black), [0; 3], "{space:?}");
            assert_eq!(gray(white), [255; 3], "{space:?}");
            for y in 0..=255 {
                let [r, g, b] = gray(y);
                assert!(r == g && g == b, "{space:?} {y}");
            }
        }
    }

    /// The standards' own form: R = Y + 2(1-Kr)V, B = Y + 2(1-Kb)U, G from Y = Kr R + Kg G + Kb B.
    fn exact(y: u8, u: u8, v: u8, kr: f64, kb: f64, limited: bool) -> [f64; 3] {
        let part = |value: u8, zero: f64, range: f64| (f64::from(value) - zero) / range;
        let (black, y_range, range) = if limited {
            (16.0, 219.0, 224.0)
        } else {
            (0.0, 255.0, 255.0)
        };
        let luma = part(y, black, y_range);
        let red = luma + 2.0 * (1.0 - kr) * part(v, 128.0, range);
        let blue = luma + 2.0 * (1.0 - kb) * part(u, 128.0, range);
        let green = (luma - kr * red - kb * blue) / (1.0 - kr - kb);
        [red, green, blue].map(|value| (value * 255.0).clamp(0.0, 255.0))
    }

    #[test]
    fn every_input_is_within_a_level_of_the_exact_formula() {
        for (space, kr, kb, limited) in [
            (ColorSpace::Bt601Limited, 0.299, 0.114, true),
            (ColorSpace::Bt601Full, 0.299, 0.114, false),
            (ColorSpace::Bt709Limited, 0.2126, 0.0722, true),
            (ColorSpace::Bt709Full, 0.2126, 0.0722, false),
        ] {
            let matrix = Matrix::of(space);
            for first in (0..=255u8).step_by(BLOCK) {
                for u in (0..=255u8).step_by(5) {
                    for v in (0..=255u8).step_by(3) {
                        for (y, found) in (first..=255).zip(sixteen(&matrix, first, u, v)) {
                            let exact = exact(y, u, v, kr, kb, limited);
                            for (found, exact) in found.iter().zip(exact) {
                                let apart = (f64::from(*found) - exact).abs();
                                assert!(apart < 1.0, "{space:?} {y} {u} {v}");
                            }
                        }
                    }
                }
            }
        }
    }
}
