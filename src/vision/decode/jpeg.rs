//! JPEG to a picture.

use image::metadata::Orientation;
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;
use zune_jpeg::errors::DecodeErrors;

use super::super::image_size::ImageSize;
use super::super::orient::upright;
use super::super::picture::{MAX_SIDE, Picture};
use super::{DecodeError, DecodeLimits, jpeg_header};

/// Decodes a JPEG into an upright picture.
pub(super) fn decode(bytes: &[u8], limits: &DecodeLimits) -> Result<Picture, DecodeError> {
    if let Some(header) = jpeg_header::frame_header(bytes) {
        if let Some(hint) = header.unsupported() {
            return Err(DecodeError::UnsupportedFormat { hint });
        }
        limits.check(header.size)?;
    }

    let mut decoder = open(bytes);
    let refused = |error| refusal(&error, bytes);
    decoder.decode_headers().map_err(refused)?;
    let (Some((width, height)), Some(len)) = (decoder.dimensions(), decoder.output_buffer_size())
    else {
        return Err(DecodeError::corrupt("no frame header"));
    };
    // A JPEG's sides are 16-bit numbers.
    let size = ImageSize::new(width as u32, height as u32);
    limits.check(size)?;
    let orientation = decoder
        .exif()
        .and_then(|exif| Orientation::from_exif_chunk(exif))
        .unwrap_or(Orientation::NoTransforms);

    let mut pixels = vec![0; len];
    read_scans(&mut decoder, &mut pixels).map_err(refused)?;
    if !jpeg_header::has_end(bytes) && !is_whole(bytes, &pixels) {
        return Err(DecodeError::Truncated);
    }
    let picture = Picture::from_rgb8(size, pixels).map_err(DecodeError::corrupt)?;
    Ok(upright(picture, orientation))
}

/// Makes a decoder that reads headers as leniently as others do: garbage between segments is common and
/// harmless.
fn open(bytes: &[u8]) -> JpegDecoder<ZCursor<&[u8]>> {
    let options = DecoderOptions::default()
        .set_strict_mode(false)
        // The limits are ours; the decoder's own would refuse legal shapes such as 60000x1.
        .set_max_width(MAX_SIDE as usize)
        .set_max_height(MAX_SIDE as usize)
        .jpeg_set_out_colorspace(ColorSpace::RGB);
    JpegDecoder::new_with_options(ZCursor::new(bytes), options)
}

/// Reads the scans strictly: without that, what is missing comes out gray.
fn read_scans(
    decoder: &mut JpegDecoder<ZCursor<&[u8]>>,
    pixels: &mut [u8],
) -> Result<(), DecodeErrors> {
    decoder.set_options(decoder.options().set_strict_mode(true));
    decoder.decode_into(pixels)
}

/// Whether a JPEG without an end marker lacks nothing else.
///
/// The decoder reads zeros past the end, so that of the last few bytes none are missed by it. Other
/// bits in their place make another picture, unless nothing was to be read from them. That costs a
/// second decode of a kind of file that is rare.
fn is_whole(bytes: &[u8], pixels: &[u8]) -> bool {
    // Half an end marker would make a marker of what is put behind it.
    let len = bytes.iter().rposition(|&byte| byte != 0xff).unwrap_or(0) + 1;
    let continued = [&bytes[..len], &[0xfe; 16]].concat();
    let mut decoder = open(&continued);
    let mut others = vec![0; pixels.len()];
    decoder.decode_headers().is_ok()
        && read_scans(&mut decoder, &mut others).is_ok()
        && others == pixels
}

/// Tells a JPEG that ends too early from one that is broken within.
fn refusal(error: &DecodeErrors, bytes: &[u8]) -> DecodeError {
    // The decoder's words differ with the place where it ran out of bytes; the missing end does not.
    if !jpeg_header::has_end(bytes) && !matches!(error, DecodeErrors::ZeroError) {
        return DecodeError::Truncated;
    }
    DecodeError::corrupt(error)
}
