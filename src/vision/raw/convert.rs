//! Rows of any format to R, G, B.

use std::ops::Range;

use super::super::image_size::ImageSize;
use super::layout::Plane;
use super::yuv::Matrix;
use super::{ColorSpace, PixelFormat};

/// Converts a frame, row by row, into R, G, B without padding.
///
/// `planes` are those of `format` at `size`.
pub(super) fn to_rgb8(
    format: PixelFormat,
    size: ImageSize,
    planes: &[Plane<'_>],
    color_space: ColorSpace,
) -> Vec<u8> {
    let mut pixels = vec![0; size.pixels() as usize * 3];
    let matrix = Matrix::of(color_space);
    let rows = pixels.chunks_exact_mut(size.width as usize * 3);
    for (index, out) in rows.enumerate() {
        let out = out.as_chunks_mut::<3>().0;
        let first = planes[0].row(index);
        match format {
            PixelFormat::Rgb24 => out.as_flattened_mut().copy_from_slice(first),
            PixelFormat::Bgr24 => packed(first, out, |&[b, g, r]| [r, g, b]),
            PixelFormat::Rgba32 => packed(first, out, |&[r, g, b, _]| [r, g, b]),
            PixelFormat::Bgra32 => packed(first, out, |&[b, g, r, _]| [r, g, b]),
            PixelFormat::Gray8 => packed(first, out, |&[v]| [v; 3]),
            PixelFormat::Yuyv => {
                let pairs = first.as_chunks::<4>().0;
                matrix.row(out, |block, start, len| {
                    let (luma, _) = block.y.as_chunks_mut::<2>();
                    let chroma = block.u.iter_mut().zip(&mut block.v);
                    let pairs = &pairs[halves(start, len)];
                    for ((y, (u, v)), pair) in luma.iter_mut().zip(chroma).zip(pairs) {
                        ([y[0], y[1]], *u, *v) = ([pair[0], pair[2]], pair[1], pair[3]);
                    }
                });
            }
            PixelFormat::Nv12 => {
                let chroma = planes[1].row(index / 2).as_chunks::<2>().0;
                matrix.row(out, |block, start, len| {
                    block.y[..len].copy_from_slice(&first[start..start + len]);
                    split(&chroma[halves(start, len)], &mut block.u, &mut block.v);
                });
            }
            PixelFormat::Nv21 => {
                let chroma = planes[1].row(index / 2).as_chunks::<2>().0;
                matrix.row(out, |block, start, len| {
                    block.y[..len].copy_from_slice(&first[start..start + len]);
                    split(&chroma[halves(start, len)], &mut block.v, &mut block.u);
                });
            }
            PixelFormat::I420 => {
                let (u, v) = (planes[1].row(index / 2), planes[2].row(index / 2));
                matrix.row(out, |block, start, len| {
                    block.y[..len].copy_from_slice(&first[start..start + len]);
                    let halves = halves(start, len);
                    block.u[..halves.len()].copy_from_slice(&u[halves.clone()]);
                    block.v[..halves.len()].copy_from_slice(&v[halves]);
                });
            }
        }
    }
    pixels
}

/// Converts pixels of `N` bytes that lie side by side.
fn packed<const N: usize>(row: &[u8], out: &mut [[u8; 3]], convert: impl Fn(&[u8; N]) -> [u8; 3]) {
    for (pixel, source) in out.iter_mut().zip(row.as_chunks::<N>().0) {
        *pixel = convert(source);
    }
}

/// Where the chroma of `len` pixels from `start` on lies; of an odd width the last has one of its own.
fn halves(start: usize, len: usize) -> Range<usize> {
    start / 2..(start + len).div_ceil(2)
}

/// Takes samples that lie in turn apart.
fn split(pairs: &[[u8; 2]], first: &mut [u8], second: &mut [u8]) {
    for ((first, second), pair) in first.iter_mut().zip(second).zip(pairs) {
        [*first, *second] = *pair;
    }
}
