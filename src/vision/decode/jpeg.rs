//! JPEG to a picture.

use image::metadata::Orientation;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;
use zune_jpeg::errors::DecodeErrors;

use super::super::image_size::ImageSize;
use super::super::orient::upright;
use super::super::picture::{MAX_SIDE, Picture};
use super::jpeg_scans::Scans;
use super::jpeg_source::{Filling, Reading, Source};
use super::{DecodeError, DecodeLimits, jpeg_header};

/// A JPEG, and what it says of itself.
struct Jpeg<'a> {
    bytes: &'a [u8],
    scans: Scans,
}

/// Decodes a JPEG into an upright picture.
pub(super) fn decode(bytes: &[u8], limits: &DecodeLimits) -> Result<Picture, DecodeError> {
    let Some(frame) = jpeg_header::frame_header(bytes) else {
        return Err(without_frame(bytes));
    };
    if let Some(hint) = frame.unsupported() {
        return Err(DecodeError::UnsupportedFormat { hint });
    }
    limits.check(frame.size)?;
    let scans = Scans::of(bytes, &frame);
    // The decoder mixes up the rows of most of these.
    let has_scan = scans
        .list
        .first()
        .is_some_and(|scan| scan.start < bytes.len());
    if has_scan && !frame.is_progressive() && scans.lack_components() {
        let hint = "sequential JPEG in several scans; send it in one scan, or progressive";
        return Err(DecodeError::UnsupportedFormat { hint });
    }
    let jpeg = Jpeg { bytes, scans };

    let reading = Reading::default();
    let mut decoder = jpeg.decoder(Filling::Ones, &reading);
    let refused = |error| jpeg.refusal(&error, &reading);
    decoder.decode_headers().map_err(refused)?;
    // Without an end marker, only that all has been sent tells that no scan is missing.
    if !jpeg.scans.show_something() || !jpeg.scans.has_end && !jpeg.scans.are_all() {
        return Err(DecodeError::Truncated);
    }
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
    drop(decoder);
    if reading.ran_out() || !jpeg.scans.has_end && !jpeg.is_whole(&pixels) {
        return Err(DecodeError::Truncated);
    }
    let picture = Picture::from_rgb8(size, pixels).map_err(DecodeError::corrupt)?;
    Ok(upright(picture, orientation))
}

/// What is wrong with bytes in which no frame header was found.
fn without_frame(bytes: &[u8]) -> DecodeError {
    if jpeg_header::has_scan(bytes) {
        return DecodeError::corrupt("a scan comes before the frame header");
    }
    DecodeError::Truncated
}

/// Reads the scans strictly: without that, what is missing comes out gray.
fn read_scans(
    decoder: &mut JpegDecoder<Source<'_>>,
    pixels: &mut [u8],
) -> Result<(), DecodeErrors> {
    decoder.set_options(decoder.options().set_strict_mode(true));
    decoder.decode_into(pixels)
}

// === impl Jpeg ===

impl<'a> Jpeg<'a> {
    /// Makes a decoder that reads headers as leniently as others do: garbage between segments is common and
    /// harmless.
    fn decoder<'b>(&'b self, filling: Filling, reading: &'b Reading) -> JpegDecoder<Source<'b>>
    where
        'a: 'b,
    {
        let options = DecoderOptions::default()
            .set_strict_mode(false)
            // The limits are ours; the decoder's own would refuse legal shapes such as 60000x1.
            .set_max_width(MAX_SIDE as usize)
            .set_max_height(MAX_SIDE as usize)
            .jpeg_set_out_colorspace(ColorSpace::RGB);
        let source = Source::new(self.bytes, &self.scans, filling, reading);
        JpegDecoder::new_with_options(source, options)
    }

    /// Whether a JPEG without an end marker lacks nothing else.
    ///
    /// Of the last few bits none are missed, as long as what is read in their place is a code. Other bits in
    /// their place make another picture, unless nothing was to be read from them. That costs a second
    /// decode of a kind of file that is rare.
    fn is_whole(&self, pixels: &[u8]) -> bool {
        let reading = Reading::default();
        let mut decoder = self.decoder(Filling::Zeros, &reading);
        let mut others = vec![0; pixels.len()];
        decoder.decode_headers().is_ok()
            && read_scans(&mut decoder, &mut others).is_ok()
            && others == pixels
    }

    /// Tells a JPEG that ends too early from one that is broken within.
    fn refusal(&self, error: &DecodeErrors, reading: &Reading) -> DecodeError {
        // The decoder's words differ with the place where it ran out of bytes.
        if !self.scans.has_end || reading.reached_end() || reading.ran_out() {
            return DecodeError::Truncated;
        }
        // The decoder puts its own words in quotation marks.
        match error {
            DecodeErrors::Format(words) => DecodeError::corrupt(words),
            DecodeErrors::FormatStatic(words) => DecodeError::corrupt(words),
            other => DecodeError::corrupt(other),
        }
    }
}
