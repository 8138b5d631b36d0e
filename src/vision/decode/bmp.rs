//! BMP to a picture.

use std::io::{Cursor, ErrorKind};

use image::codecs::bmp::BmpDecoder;
use image::{ColorType, ImageDecoder, ImageError};

use super::super::image_size::ImageSize;
use super::super::picture::Picture;
use super::{DecodeError, DecodeLimits, samples};

/// The bytes before the header that says what the picture is.
const FILE_HEADER: usize = 14;

/// The shortest of those headers, the only one with sides of 16 bits.
const CORE_HEADER: u32 = 12;

/// Decodes a BMP.
pub(super) fn decode(bytes: &[u8], limits: &DecodeLimits) -> Result<Picture, DecodeError> {
    let size = header_size(bytes)?;
    limits.check(size)?;
    if let Some(hint) = unsupported(bytes) {
        return Err(DecodeError::UnsupportedFormat { hint });
    }
    let decoder = BmpDecoder::new(Cursor::new(bytes)).map_err(refusal)?;
    let (width, height) = decoder.dimensions();
    if ImageSize::new(width, height) != size {
        return Err(DecodeError::corrupt("the BMP's sizes disagree"));
    }
    let color = decoder.color_type();
    let len = usize::try_from(decoder.total_bytes()).map_err(DecodeError::corrupt)?;
    let mut pixels = vec![0; len];
    decoder.read_image(&mut pixels).map_err(refusal)?;
    let pixels = match color {
        ColorType::Rgba8 => samples::shrink(pixels, |&[r, g, b, _]| [r, g, b]),
        _ => pixels,
    };
    Picture::from_rgb8(size, pixels).map_err(DecodeError::corrupt)
}

/// The size; a negative height only says that the rows come from the top.
pub(super) fn header_size(bytes: &[u8]) -> Result<ImageSize, DecodeError> {
    let header = number(bytes, FILE_HEADER)?;
    let (width, height) = (
        number(bytes, FILE_HEADER + 4)?,
        number(bytes, FILE_HEADER + 8).unwrap_or(0),
    );
    if header == CORE_HEADER {
        return Ok(ImageSize::new(width & 0xffff, width >> 16));
    }
    number(bytes, FILE_HEADER + 8)?;
    if width.cast_signed() < 0 {
        return Err(DecodeError::corrupt("the BMP's width is negative"));
    }
    Ok(ImageSize::new(width, height.cast_signed().unsigned_abs()))
}

/// The name of a kind of BMP that is not read here.
fn unsupported(bytes: &[u8]) -> Option<&'static str> {
    if number(bytes, FILE_HEADER) == Ok(CORE_HEADER) {
        return None;
    }
    match number(bytes, FILE_HEADER + 16).ok()? {
        4 => Some("BMP that holds a JPEG; send the JPEG itself"),
        5 => Some("BMP that holds a PNG; send the PNG itself"),
        11..=13 => Some("CMYK BMP; send RGB"),
        _ => None,
    }
}

fn number(bytes: &[u8], at: usize) -> Result<u32, DecodeError> {
    let bytes = bytes.get(at..).and_then(|rest| rest.first_chunk());
    bytes
        .map(|bytes| u32::from_le_bytes(*bytes))
        .ok_or(DecodeError::Truncated)
}

fn refusal(error: ImageError) -> DecodeError {
    match error {
        ImageError::IoError(error) if error.kind() == ErrorKind::UnexpectedEof => {
            DecodeError::Truncated
        }
        ImageError::Unsupported(_) => DecodeError::UnsupportedFormat {
            hint: "BMP of a rare kind; send 24-bit BMP, JPEG, PNG, WebP or GIF",
        },
        error => DecodeError::corrupt(error),
    }
}
