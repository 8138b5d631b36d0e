//! Where a frame's planes lie in its bytes.
//!
//! Every number here is the sender's. Sides are at most [`MAX_SIDE`] once the limits have been checked and
//! strides have 32 bits, so a plane's extent fits 64 bits with ease; only the offsets can make a sum
//! overflow, and that sum is checked.

use super::super::decode::{DecodeError, DecodeLimits};
use super::{PixelFormat, RawLayout};
#[cfg(doc)]
use crate::vision::picture::MAX_SIDE;

/// The most planes that a format has.
const MAX_PLANES: usize = 3;

/// A plane whose rows all lie in the bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plane<'a> {
    /// From the plane's first byte on.
    data: &'a [u8],
    stride: usize,
    row_bytes: usize,
}

/// What a format asks of a plane.
#[derive(Debug, Clone, Copy)]
struct Shape {
    row_bytes: u64,
    rows: u64,
}

// === impl Plane ===

impl<'a> Plane<'a> {
    /// The bytes of row `index`, without padding.
    ///
    /// # Panics
    /// When the plane has no such row.
    pub(super) fn row(&self, index: usize) -> &'a [u8] {
        &self.data[index * self.stride..][..self.row_bytes]
    }
}

/// Finds the planes, or says what is wrong with the frame.
pub(super) fn planes<'a>(
    layout: &RawLayout,
    data: &'a [u8],
    limits: &DecodeLimits,
) -> Result<Vec<Plane<'a>>, DecodeError> {
    let size = layout.size;
    for (field, side) in [
        ("image.raw.width", size.width),
        ("image.raw.height", size.height),
    ] {
        if side == 0 {
            return Err(invalid(field, "0 is not at least 1".to_owned()));
        }
    }
    limits.check(size)?;
    let shapes = shapes(layout);
    let count = shapes.len();
    check_count("image.raw.strides", layout.strides.len(), count)?;
    check_count("image.raw.plane_offsets", layout.plane_offsets.len(), count)?;

    let mut places = Vec::with_capacity(MAX_PLANES);
    // Behind the planes so far, without and with the padding of the last row.
    let (mut least, mut most) = (0u64, 0u64);
    for (index, shape) in shapes.iter().enumerate() {
        let stride = layout
            .strides
            .get(index)
            .map_or(shape.row_bytes, |stride| u64::from(*stride));
        if stride < shape.row_bytes {
            return Err(invalid(
                "image.raw.strides",
                format!(
                    "plane {index}: {stride} is shorter than a row of {} bytes",
                    shape.row_bytes
                ),
            ));
        }
        let offset = layout.plane_offsets.get(index).copied().unwrap_or(most);
        let unpadded = stride * (shape.rows - 1) + shape.row_bytes;
        // Beyond 64 bits is beyond any bytes there are.
        least = least.max(offset.saturating_add(unpadded));
        most = most.max(offset.saturating_add(stride * shape.rows));
        places.push((offset, stride, shape.row_bytes));
    }
    let got = data.len() as u64;
    if got < least {
        return Err(DecodeError::FrameSizeMismatch {
            expected: least,
            got,
        });
    }
    if got > most && layout.plane_offsets.is_empty() {
        return Err(DecodeError::FrameSizeMismatch {
            expected: most,
            got,
        });
    }
    const INSIDE: &str = "it is at most the bytes' length";
    let planes = places.into_iter().map(|(offset, stride, row_bytes)| Plane {
        data: &data[usize::try_from(offset).expect(INSIDE)..],
        // The stride of a single row may be larger than the bytes, and is never used.
        stride: usize::try_from(stride).expect("a stride has 32 bits"),
        row_bytes: usize::try_from(row_bytes).expect(INSIDE),
    });
    Ok(planes.collect())
}

/// What the format asks of each of its planes.
fn shapes(layout: &RawLayout) -> Vec<Shape> {
    let (width, height) = (u64::from(layout.size.width), u64::from(layout.size.height));
    let (pairs, half_rows) = (width.div_ceil(2), height.div_ceil(2));
    let packed = |row_bytes| {
        vec![Shape {
            row_bytes,
            rows: height,
        }]
    };
    let luma = Shape {
        row_bytes: width,
        rows: height,
    };
    let chroma = |row_bytes| Shape {
        row_bytes,
        rows: half_rows,
    };
    match layout.format {
        PixelFormat::Rgb24 | PixelFormat::Bgr24 => packed(width * 3),
        PixelFormat::Rgba32 | PixelFormat::Bgra32 => packed(width * 4),
        PixelFormat::Gray8 => packed(width),
        PixelFormat::Yuyv => packed(pairs * 4),
        PixelFormat::Nv12 | PixelFormat::Nv21 => vec![luma, chroma(pairs * 2)],
        PixelFormat::I420 => vec![luma, chroma(pairs), chroma(pairs)],
    }
}

fn check_count(field: &'static str, got: usize, planes: usize) -> Result<(), DecodeError> {
    if got == 0 || got == planes {
        return Ok(());
    }
    Err(invalid(
        field,
        format!("{got} values, but the format has {planes} planes"),
    ))
}

fn invalid(field: &'static str, detail: String) -> DecodeError {
    DecodeError::InvalidFrame { field, detail }
}
