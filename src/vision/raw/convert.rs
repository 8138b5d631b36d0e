//! Rows of any format to R, G, B.

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
            PixelFormat::Yuyv => packed_pairs(first, out, &matrix),
            PixelFormat::Nv12 => {
                let chroma = planes[1].row(index / 2).as_chunks::<2>().0;
                matrix.row(first, chroma.iter().map(|&[u, v]| (u, v)), out);
            }
            PixelFormat::Nv21 => {
                let chroma = planes[1].row(index / 2).as_chunks::<2>().0;
                matrix.row(first, chroma.iter().map(|&[v, u]| (u, v)), out);
            }
            PixelFormat::I420 => {
                let (u, v) = (planes[1].row(index / 2), planes[2].row(index / 2));
                matrix.row(first, u.iter().copied().zip(v.iter().copied()), out);
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

/// Converts Y, U, Y, V. Of an odd width the last pair's second pixel is not there.
fn packed_pairs(row: &[u8], out: &mut [[u8; 3]], matrix: &Matrix) {
    let pairs = row.as_chunks::<4>().0;
    for (pixels, &[left, u, right, v]) in out.chunks_mut(2).zip(pairs) {
        let chroma = matrix.chroma(u, v);
        for (pixel, y) in pixels.iter_mut().zip([left, right]) {
            *pixel = matrix.pixel(y, chroma);
        }
    }
}
