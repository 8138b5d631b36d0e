//! GIF to a picture: the first frame, on a black canvas where it does not cover it.

use std::io::Cursor;

use image::codecs::gif::GifDecoder;
use image::{ImageDecoder, ImageError};

use super::super::image_size::ImageSize;
use super::super::picture::Picture;
use super::{DecodeError, DecodeLimits, samples};

/// Decodes a GIF's first frame into a picture of its canvas.
pub(super) fn decode(bytes: &[u8], limits: &DecodeLimits) -> Result<Picture, DecodeError> {
    let canvas = canvas(bytes)?;
    limits.check(canvas)?;
    // The frame has a size of its own, and is decoded whole however little of it lies on the canvas.
    let frame = first_frame(bytes)?;
    limits.check(size_at(bytes, frame + 5)?)?;
    check_whole(bytes, frame)?;

    let decoder = GifDecoder::new(Cursor::new(bytes)).map_err(refusal)?;
    let (width, height) = decoder.dimensions();
    if ImageSize::new(width, height) != canvas {
        return Err(DecodeError::corrupt("the GIF's sizes disagree"));
    }
    let len = usize::try_from(decoder.total_bytes()).map_err(DecodeError::corrupt)?;
    let mut rgba = vec![0; len];
    decoder.read_image(&mut rgba).map_err(refusal)?;
    let pixels = samples::shrink(rgba, |&[r, g, b, _]| [r, g, b]);
    Picture::from_rgb8(canvas, pixels).map_err(DecodeError::corrupt)
}

/// The size of all of it.
pub(super) fn canvas(bytes: &[u8]) -> Result<ImageSize, DecodeError> {
    size_at(bytes, 6)
}

/// Where the first frame begins, found by walking what stands before it.
///
/// There: a mark, then left, top, width and height of two bytes each, then flags.
fn first_frame(bytes: &[u8]) -> Result<usize, DecodeError> {
    const EXTENSION: u8 = 0x21;
    const IMAGE: u8 = 0x2c;
    const TRAILER: u8 = 0x3b;
    let mut at = 13 + colors_len(byte_at(bytes, 10)?);
    loop {
        match byte_at(bytes, at)? {
            IMAGE => return Ok(at),
            EXTENSION => at = blocks_end(bytes, at + 2)?,
            // Between blocks; other readers pass over it as well.
            0 => at += 1,
            TRAILER => return Err(DecodeError::corrupt("there is no picture in the GIF")),
            other => {
                return Err(DecodeError::corrupt(format!(
                    "a GIF has no block of kind {other:#04x}"
                )));
            }
        }
    }
}

/// Refuses a frame whose data has no end.
fn check_whole(bytes: &[u8], frame: usize) -> Result<(), DecodeError> {
    let colors = colors_len(byte_at(bytes, frame + 9)?);
    // The byte before the data says how long its codes are.
    blocks_end(bytes, frame + 10 + colors + 1).map(drop)
}

/// The bytes of the colour table that flags announce.
fn colors_len(flags: u8) -> usize {
    if flags & 0x80 == 0 {
        0
    } else {
        3 << ((flags & 7) + 1)
    }
}

/// Where blocks end that each begin with their length, the last of which is empty.
fn blocks_end(bytes: &[u8], mut at: usize) -> Result<usize, DecodeError> {
    loop {
        let len = byte_at(bytes, at)?;
        at += 1 + usize::from(len);
        if len == 0 {
            return Ok(at);
        }
    }
}

fn byte_at(bytes: &[u8], at: usize) -> Result<u8, DecodeError> {
    bytes.get(at).copied().ok_or(DecodeError::Truncated)
}

fn size_at(bytes: &[u8], at: usize) -> Result<ImageSize, DecodeError> {
    let Some(&[w0, w1, h0, h1]) = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>()) else {
        return Err(DecodeError::Truncated);
    };
    Ok(ImageSize::new(
        u16::from_le_bytes([w0, w1]).into(),
        u16::from_le_bytes([h0, h1]).into(),
    ))
}

/// The frame's data had its end: what the decoder misses is missing within.
fn refusal(error: ImageError) -> DecodeError {
    DecodeError::corrupt(error)
}
