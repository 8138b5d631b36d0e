//! PNG to a picture.

use std::io::{Cursor, ErrorKind};

use image::codecs::png::PngDecoder;
use image::{ColorType, ImageDecoder, ImageError, Limits};

use super::super::image_size::ImageSize;
use super::super::orient::upright;
use super::super::picture::Picture;
use super::samples::{shrink, spread};
use super::{DecodeError, DecodeLimits};

/// What metadata (profiles, texts) may unpack to. The decoder counts rows into it too, so it must
/// hold a few of the widest; the picture itself is bounded by its pixels.
const MAX_METADATA_BYTES: u64 = 32 << 20;

/// Decodes a PNG into an upright picture.
pub(super) fn decode(bytes: &[u8], limits: &DecodeLimits) -> Result<Picture, DecodeError> {
    let size = header_size(bytes)?;
    limits.check(size)?;

    let mut metadata_limits = Limits::no_limits();
    metadata_limits.max_alloc = Some(MAX_METADATA_BYTES);
    let mut decoder =
        PngDecoder::with_limits(Cursor::new(bytes), metadata_limits).map_err(refusal)?;
    let orientation = decoder.orientation().map_err(refusal)?;
    let color = decoder.color_type();
    // `size` was read from the same bytes, but memory is asked for by what the decoder says.
    let (width, height) = decoder.dimensions();
    limits.check(ImageSize::new(width, height))?;
    let len = usize::try_from(decoder.total_bytes()).map_err(DecodeError::corrupt)?;
    let mut samples = vec![0; len];
    decoder.read_image(&mut samples).map_err(refusal)?;

    let pixels = to_rgb8(samples, color)?;
    let picture = Picture::from_rgb8(size, pixels).map_err(DecodeError::corrupt)?;
    Ok(upright(picture, orientation))
}

/// Reads the size out of the header chunk, which always comes first and at the same place.
pub(super) fn header_size(bytes: &[u8]) -> Result<ImageSize, DecodeError> {
    let Some(header) = bytes.get(8..24) else {
        return Err(DecodeError::Truncated);
    };
    if header[4..8] != *b"IHDR" {
        return Err(DecodeError::corrupt(
            "the PNG does not start with its header",
        ));
    }
    let number = |at: usize| {
        u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    Ok(ImageSize::new(number(8), number(12)))
}

fn refusal(error: ImageError) -> DecodeError {
    match error {
        ImageError::IoError(error) if error.kind() == ErrorKind::UnexpectedEof => {
            DecodeError::Truncated
        }
        ImageError::Limits(_) => DecodeError::corrupt("the PNG's metadata is too large"),
        error => DecodeError::corrupt(error),
    }
}

/// Makes RGB of samples as the decoder gives them: gray repeated, alpha dropped, 16 bits rounded to 8.
fn to_rgb8(samples: Vec<u8>, color: ColorType) -> Result<Vec<u8>, DecodeError> {
    let gray = |value: u8| [value; 3];
    Ok(match color {
        ColorType::Rgb8 => samples,
        ColorType::Rgba8 => shrink(samples, |&[r, g, b, _]| [r, g, b]),
        ColorType::Rgb16 => shrink(samples, |&[r1, r0, g1, g0, b1, b0]| {
            [byte([r1, r0]), byte([g1, g0]), byte([b1, b0])]
        }),
        ColorType::Rgba16 => shrink(samples, |&[r1, r0, g1, g0, b1, b0, _, _]| {
            [byte([r1, r0]), byte([g1, g0]), byte([b1, b0])]
        }),
        ColorType::La16 => shrink(samples, |&[v1, v0, _, _]| gray(byte([v1, v0]))),
        ColorType::L8 => spread(&samples, |&[v]| gray(v)),
        ColorType::La8 => spread(&samples, |&[v, _]| gray(v)),
        ColorType::L16 => spread(&samples, |&[v1, v0]| gray(byte([v1, v0]))),
        other => {
            return Err(DecodeError::corrupt(format!(
                "unexpected colour type {other:?}"
            )));
        }
    })
}

/// The 16-bit sample in the machine's order, rounded to 8 bits: 257 is what 1 becomes in 16 bits.
fn byte(sample: [u8; 2]) -> u8 {
    ((u32::from(u16::from_ne_bytes(sample)) + 128) / 257) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_bits_are_rounded_to_eight_over_the_whole_range() {
        for value in 0..=u16::MAX {
            let exact = f64::from(value) / 257.0;
            assert_eq!(byte(value.to_ne_bytes()), exact.round() as u8, "{value}");
        }
    }

    #[test]
    fn pixels_are_converted_where_they_lie() {
        let rgba = vec![1, 2, 3, 200, 4, 5, 6, 0, 7, 8, 9, 255];
        assert_eq!(
            to_rgb8(rgba, ColorType::Rgba8).unwrap(),
            [1, 2, 3, 4, 5, 6, 7, 8, 9]
        );
    }
}
