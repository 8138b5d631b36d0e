//! Bytes to numbers, in the tensor's order and type, filling included.
//!
//! A pixel has 256 values, so each channel has a table of the numbers they become: exact, one loop for
//! all types, and no slower than arithmetic that the baseline instruction set can do on interleaved bytes.

use half::f16;

use super::super::image_size::ImageSize;
use super::spec::{InputSpec, Layout, Resize, SpecError};
use crate::tensor::{DType, Element, Tensor};

/// A resized picture and its place in the input.
pub(super) struct Placed<'a> {
    /// R, G, B, rows tightly packed.
    pub(super) pixels: &'a [u8],
    pub(super) size: ImageSize,
    pub(super) left: usize,
    pub(super) top: usize,
}

/// Writes placed pictures into tensors.
#[derive(Debug)]
pub(super) enum Normaliser {
    F32(Box<Tables<f32>>),
    F16(Box<Tables<f16>>),
    U8(Box<Tables<u8>>),
}

/// What each byte becomes.
#[derive(Debug)]
pub(super) struct Tables<T> {
    /// For each channel of the tensor.
    values: [[T; 256]; 3],
    /// For each channel of the tensor, which of R, G, B it is.
    sources: [usize; 3],
    /// The filling, for each channel of the tensor.
    pad: [T; 3],
    width: usize,
    layout: Layout,
}

// === impl Normaliser ===

impl Normaliser {
    pub(super) fn new(spec: &InputSpec, dtype: DType) -> Result<Self, SpecError> {
        let out_of_range = SpecError::OutOfRange { dtype };
        match dtype {
            DType::F32 => Tables::new(spec, |value| value.is_finite().then_some(value))
                .map(|tables| Self::F32(tables.into()))
                .ok_or(out_of_range),
            DType::F16 => Tables::new(spec, |value| {
                Some(f16::from_f32(value)).filter(|value| value.is_finite())
            })
            .map(|tables| Self::F16(tables.into()))
            .ok_or(out_of_range),
            DType::U8 if spec.scale != 1.0 || spec.mean != [0.0; 3] || spec.std != [1.0; 3] => {
                Err(SpecError::NormalisedBytes)
            }
            DType::U8 => Tables::new(spec, |value| Some(value as u8))
                .map(|tables| Self::U8(tables.into()))
                .ok_or(out_of_range),
            DType::I32 | DType::I64 => Err(SpecError::DType { dtype }),
        }
    }

    pub(super) fn write(&self, placed: &Placed<'_>, out: &mut Tensor) {
        match self {
            Self::F32(tables) => tables.write(placed, elements(out)),
            Self::F16(tables) => tables.write(placed, elements(out)),
            Self::U8(tables) => tables.write(placed, elements(out)),
        }
    }
}

fn elements<T: Element>(out: &mut Tensor) -> &mut [T] {
    out.as_mut_slice()
        .expect("the tensor is owned and of the preprocessor's element type")
}

// === impl Tables ===

impl<T: Copy> Tables<T> {
    /// `None` when `convert` finds a number that it cannot hold.
    fn new(spec: &InputSpec, convert: impl Fn(f32) -> Option<T>) -> Option<Self> {
        let sources = spec.color.sources();
        let number = |channel: usize, byte: u8| {
            convert((f32::from(byte) * spec.scale - spec.mean[channel]) / spec.std[channel])
        };
        let pad = match spec.resize {
            Resize::Letterbox { pad, .. } => pad,
            Resize::Stretch => [0; 3],
        };
        let mut tables = Self {
            values: [[number(0, 0)?; 256]; 3],
            sources,
            pad: [number(0, 0)?; 3],
            width: spec.size.width as usize,
            layout: spec.layout,
        };
        for channel in 0..3 {
            for byte in 0..=u8::MAX {
                tables.values[channel][usize::from(byte)] = number(channel, byte)?;
            }
            tables.pad[channel] = number(channel, pad[sources[channel]])?;
        }
        Some(tables)
    }

    fn write(&self, placed: &Placed<'_>, out: &mut [T]) {
        match self.layout {
            Layout::Nchw => {
                let plane_len = out.len() / 3;
                for (channel, plane) in out.chunks_exact_mut(plane_len).enumerate() {
                    self.write_plane(channel, placed, plane);
                }
            }
            Layout::Nhwc => self.write_interleaved(placed, out),
        }
    }

    /// Writes one channel's plane. Three walks over the picture, but each with one table and one
    /// stream out.
    fn write_plane(&self, channel: usize, placed: &Placed<'_>, plane: &mut [T]) {
        let (values, pad) = (&self.values[channel], self.pad[channel]);
        let source = self.sources[channel];
        let (rows, right) = self.frame(placed);
        for (y, row) in plane.chunks_exact_mut(self.width).enumerate() {
            let Some(pixels) = rows.row(y) else {
                row.fill(pad);
                continue;
            };
            row[..placed.left].fill(pad);
            row[right..].fill(pad);
            for (number, pixel) in row[placed.left..right].iter_mut().zip(pixels) {
                *number = values[usize::from(pixel[source])];
            }
        }
    }

    fn write_interleaved(&self, placed: &Placed<'_>, out: &mut [T]) {
        let [first, second, third] = &self.values;
        let [a, b, c] = self.sources;
        let (rows, right) = self.frame(placed);
        let out = out.as_chunks_mut::<3>().0;
        for (y, row) in out.chunks_exact_mut(self.width).enumerate() {
            let Some(pixels) = rows.row(y) else {
                row.fill(self.pad);
                continue;
            };
            row[..placed.left].fill(self.pad);
            row[right..].fill(self.pad);
            for (numbers, pixel) in row[placed.left..right].iter_mut().zip(pixels) {
                *numbers = [
                    first[usize::from(pixel[a])],
                    second[usize::from(pixel[b])],
                    third[usize::from(pixel[c])],
                ];
            }
        }
    }

    /// The content by rows of the input, and the column at which it ends.
    fn frame<'a>(&self, placed: &Placed<'a>) -> (Rows<'a>, usize) {
        let width = placed.size.width as usize;
        let rows = Rows {
            pixels: placed.pixels.as_chunks().0,
            width,
            top: placed.top,
        };
        (rows, placed.left + width)
    }
}

/// A placed picture's rows by their place in the input.
struct Rows<'a> {
    pixels: &'a [[u8; 3]],
    width: usize,
    top: usize,
}

// === impl Rows ===

impl<'a> Rows<'a> {
    /// The pixels in the input's row `y`; `None` above and below the picture.
    fn row(&self, y: usize) -> Option<&'a [[u8; 3]]> {
        let start = y.checked_sub(self.top)? * self.width;
        self.pixels.get(start..start + self.width)
    }
}
