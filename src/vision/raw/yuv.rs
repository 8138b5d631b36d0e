//! Y, U and V to R, G and B.
//!
//! Fixed point with 16 bits behind the point: within one level of the exact formula for every input.

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

/// What chroma adds to red, green and blue, rounding included.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chroma {
    red: i32,
    green: i32,
    blue: i32,
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

    pub(super) fn chroma(&self, u: u8, v: u8) -> Chroma {
        const HALF: i32 = 1 << (BITS - 1);
        let (u, v) = (i32::from(u) - 128, i32::from(v) - 128);
        Chroma {
            red: self.red_v * v + HALF,
            green: HALF - self.green_u * u - self.green_v * v,
            blue: self.blue_u * u + HALF,
        }
    }

    pub(super) fn pixel(&self, y: u8, chroma: Chroma) -> [u8; 3] {
        let y = (i32::from(y) - self.black) * self.y;
        [chroma.red, chroma.green, chroma.blue].map(|part| ((y + part) >> BITS).clamp(0, 255) as u8)
    }

    /// Converts a row of Y with a pair of U, V for each two of them.
    pub(super) fn row(
        &self,
        luma: &[u8],
        chroma: impl Iterator<Item = (u8, u8)>,
        out: &mut [[u8; 3]],
    ) {
        for ((pixels, luma), (u, v)) in out.chunks_mut(2).zip(luma.chunks(2)).zip(chroma) {
            let chroma = self.chroma(u, v);
            for (pixel, y) in pixels.iter_mut().zip(luma) {
                *pixel = self.pixel(*y, chroma);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn black_white_and_gray_have_no_tint() {
        for (space, black, white) in [
            (ColorSpace::Bt601Limited, 16, 235),
            (ColorSpace::Bt709Limited, 16, 235),
            (ColorSpace::Bt601Full, 0, 255),
            (ColorSpace::Bt709Full, 0, 255),
        ] {
            let matrix = Matrix::of(space);
            let gray = |y| matrix.pixel(y, matrix.chroma(128, 128));
            assert_eq!(gray(black), [0; 3], "{space:?}");
            assert_eq!(gray(white), [255; 3], "{space:?}");
            for y in 0..=255 {
                let [r, g, b] = gray(y);
                assert!(r == g && g == b, "{space:?} {y}");
            }
        }
    }

    #[test]
    fn every_input_is_within_a_level_of_the_exact_formula() {
        // The standards' own form: R = Y + 2(1-Kr)V, B = Y + 2(1-Kb)U, G from Y = Kr R + Kg G + Kb B.
        for (space, kr, kb, limited) in [
            (ColorSpace::Bt601Limited, 0.299, 0.114, true),
            (ColorSpace::Bt601Full, 0.299, 0.114, false),
            (ColorSpace::Bt709Limited, 0.2126, 0.0722, true),
            (ColorSpace::Bt709Full, 0.2126, 0.0722, false),
        ] {
            let matrix = Matrix::of(space);
            for y in 0..=255u8 {
                for u in (0..=255u8).step_by(5) {
                    for v in (0..=255u8).step_by(3) {
                        let part =
                            |value: u8, zero: f64, range: f64| (f64::from(value) - zero) / range;
                        let (luma, pb, pr) = if limited {
                            (
                                part(y, 16.0, 219.0),
                                part(u, 128.0, 224.0),
                                part(v, 128.0, 224.0),
                            )
                        } else {
                            (
                                part(y, 0.0, 255.0),
                                part(u, 128.0, 255.0),
                                part(v, 128.0, 255.0),
                            )
                        };
                        let red = luma + 2.0 * (1.0 - kr) * pr;
                        let blue = luma + 2.0 * (1.0 - kb) * pb;
                        let green = (luma - kr * red - kb * blue) / (1.0 - kr - kb);
                        let exact =
                            [red, green, blue].map(|value| (value * 255.0).clamp(0.0, 255.0));
                        let found = matrix.pixel(y, matrix.chroma(u, v));
                        for (found, exact) in found.iter().zip(exact) {
                            assert!(
                                (f64::from(*found) - exact).abs() < 1.0,
                                "{space:?} {y} {u} {v}"
                            );
                        }
                    }
                }
            }
        }
    }
}
