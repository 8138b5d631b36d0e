//! WebP to a picture: lossy, lossless, and the first frame of an animation.
//!
//! Only one bitstream is decoded, the one that holds the colours: alpha comes in a chunk of its own or in
//! a channel that is dropped. What an animation's first frame leaves free of its canvas is black.

use std::io::Cursor;

use image::codecs::webp::WebPDecoder;
use image::metadata::Orientation;
use image::{ColorType, ImageDecoder, ImageError};

use super::super::image_size::ImageSize;
use super::super::orient::upright;
use super::super::picture::Picture;
use super::webp_container::{Bitstream, Container, Kind};
use super::{DecodeError, DecodeLimits, samples, webp_lossless};

/// The container's own header in front of the one chunk: `RIFF`, a length, `WEBP`, the chunk's name and length.
const HEADER_BYTES: usize = 20;

/// Decodes a WebP into an upright picture.
pub(super) fn decode(bytes: &[u8], limits: &DecodeLimits) -> Result<Picture, DecodeError> {
    let container = Container::read(bytes, limits)?;
    let orientation = container
        .exif
        .and_then(Orientation::from_exif_chunk)
        .unwrap_or(Orientation::NoTransforms);
    let frame = container.frame;
    let pixels = pixels(&frame.bitstream)?;
    let pixels = if frame.bitstream.size == container.canvas {
        pixels
    } else {
        placed(
            &pixels,
            frame.bitstream.size,
            (frame.left, frame.top),
            container.canvas,
        )
    };
    let picture = Picture::from_rgb8(container.canvas, pixels).map_err(DecodeError::corrupt)?;
    Ok(upright(picture, orientation))
}

/// R, G, B of each pixel of a bitstream.
fn pixels(bitstream: &Bitstream<'_>) -> Result<Vec<u8>, DecodeError> {
    if bitstream.kind == Kind::Lossless {
        webp_lossless::check(bitstream.payload)?;
    }
    let alone = alone(bitstream);
    let decoder = WebPDecoder::new(Cursor::new(&alone)).map_err(refusal)?;
    // Memory is asked for by what the decoder says, and was allowed for what we read.
    let (width, height) = decoder.dimensions();
    if ImageSize::new(width, height) != bitstream.size {
        return Err(DecodeError::corrupt("the WebP's sizes disagree"));
    }
    let color = decoder.color_type();
    let len = usize::try_from(decoder.total_bytes()).map_err(DecodeError::corrupt)?;
    let mut pixels = vec![0; len];
    decoder.read_image(&mut pixels).map_err(refusal)?;
    match color {
        ColorType::Rgba8 => Ok(samples::shrink(pixels, |&[r, g, b, _]| [r, g, b])),
        _ => Ok(pixels),
    }
}

/// The bitstream as a file of its own, in the form that has nothing else in it.
///
/// That costs a copy of the encoded bytes. It spares a second buffer of pixels, and none of the other
/// chunks' lengths and sizes reaches the decoder.
fn alone(bitstream: &Bitstream<'_>) -> Vec<u8> {
    let payload = bitstream.payload;
    let padded = payload.len().next_multiple_of(2);
    let length = |len: usize| u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes();
    let mut file = Vec::with_capacity(HEADER_BYTES + padded);
    file.extend_from_slice(b"RIFF");
    file.extend_from_slice(&length(HEADER_BYTES - 8 + padded));
    file.extend_from_slice(b"WEBP");
    file.extend_from_slice(bitstream.kind.fourcc());
    file.extend_from_slice(&length(payload.len()));
    file.extend_from_slice(payload);
    file.resize(HEADER_BYTES + padded, 0);
    if bitstream.kind == Kind::Lossless {
        // Says that alpha is used: then the decoder writes its four channels where we ask it to, rather
        // than into a buffer of its own and from there into ours.
        file[HEADER_BYTES + 4] |= 1 << 4;
    }
    file
}

/// The frame on a black canvas that holds it whole.
fn placed(
    frame: &[u8],
    size: ImageSize,
    (left, top): (u32, u32),
    canvas_size: ImageSize,
) -> Vec<u8> {
    let stride = canvas_size.width as usize * 3;
    let mut canvas = vec![0; canvas_size.pixels() as usize * 3];
    let rows = canvas.chunks_exact_mut(stride).skip(top as usize);
    let row_bytes = size.width as usize * 3;
    for (row, source) in rows.zip(frame.chunks_exact(row_bytes)) {
        row[left as usize * 3..][..row_bytes].copy_from_slice(source);
    }
    canvas
}

/// The container was whole: what the decoder misses is missing within.
fn refusal(error: ImageError) -> DecodeError {
    DecodeError::corrupt(error)
}
