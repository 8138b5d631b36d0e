//! Encoded bytes to an upright picture.
//!
//! The magic bytes decide the format; names and content types are never asked. JPEG, PNG, WebP, GIF and
//! BMP are read. What is refused is refused with a reason that the sender can act on ([`DecodeError`]).
//!
//! What comes out:
//! - always RGB, 8 bits a channel. Gray is repeated to three channels, 16 bits are rounded to 8, CMYK
//!   and YCCK are converted without a profile. Colour profiles are ignored.
//! - alpha is *dropped*, not blended: the colours under transparent pixels are what the file says.
//! - upright: the EXIF orientation of a JPEG, PNG or WebP is applied, and the size is that of the upright
//!   picture. An orientation that does not exist counts as none.
//! - the first picture only, of files that hold several: MPO, animated GIF and WebP, and of an animated
//!   PNG the picture that viewers without animation show. Where the first frame of a GIF or WebP does not
//!   cover its canvas, the rest is black.
//!
//! A picture that was cut off is refused, never filled up with gray, and so is a JPEG that was cut and
//! closed with an end marker. A JPEG that lacks only its end marker is accepted, a *progressive* one where
//! every coefficient has been sent to its last bit: nothing else tells that its last scan was the last. With an end
//! marker, one with fewer scans is a legal file and is decoded, so that a cut between two scans (or in the
//! last bytes of one) is not noticed. A hole within a JPEG's data is noticed where too few blocks are left;
//! behind it the codes fall into step again, and may make up for those that are gone. Of an animated GIF only
//! the first frame has to be whole, and of an animated WebP all that its header announces.
//!
//! The limit on pixels is checked on the header, before any memory of the picture's size is asked for;
//! where a file says several sizes (a canvas and its frame) each of them is. What a decode holds at its
//! peak is [`PEAK_BYTES_PER_PIXEL`] and [`PEAK_FIXED_BYTES`].
//!
//! The decoders are written with care for hostile input, but they are large: the caller should run them
//! where a panic costs one request only.

mod bmp;
mod gif;
mod jpeg;
mod jpeg_header;
mod jpeg_scans;
mod jpeg_source;
mod peek;
mod png;
mod samples;
mod sniff;
#[cfg(test)]
mod tests;
mod webp;
mod webp_container;
mod webp_lossless;

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::{Deserialize, Serialize};

use super::image_size::ImageSize;
pub use super::picture::{MAX_SIDE, Picture};
pub use peek::stored_size;

/// The most that a decode holds for each pixel, the decoded picture itself included, in bytes.
///
/// | kind | bytes a pixel | what they are |
/// |---|---|---|
/// | JPEG in several scans, CMYK | 11 | four coefficients of two bytes, three of the picture |
/// | JPEG in several scans, colour | 9 | three coefficients, the picture |
/// | GIF whose frame is not as wide as its canvas | 8 | canvas and frame of four channels |
/// | PNG, 16-bit RGBA | 8 | the samples, converted where they lie |
/// | any that is laid on its side | 6 | before and after the turn |
/// | WebP, lossless | 5 | four channels, some tenths of transforms and groups |
/// | WebP, lossy | 4.5 | the planes, the picture |
/// | all others, raw frames | 3 to 5 | the picture |
///
/// Chroma of an odd shape or a JPEG of a few rows rounds up to whole blocks; that is within
/// [`PEAK_FIXED_BYTES`].
pub const PEAK_BYTES_PER_PIXEL: u64 = 11;

/// The most that a decode holds whatever the picture's size, in bytes: the code tables of a lossless WebP.
/// A PNG's metadata (32 MiB) is less. A WebP's encoded bytes are held twice, which the limit on messages bounds.
pub const PEAK_FIXED_BYTES: u64 = webp_lossless::MAX_TABLE_BYTES as u64;

/// What a picture may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecodeLimits {
    /// The most pixels that a picture may have. [`MAX_SIDE`] bounds its sides besides.
    pub max_pixels: u64,
}

/// Why bytes did not become a picture. All of these are the sender's to mend.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// There were no bytes.
    #[error("the image is empty")]
    Empty,
    /// The bytes are no picture of a kind that is read here.
    #[error("unsupported image format: {hint}")]
    UnsupportedFormat {
        /// What the bytes seem to be, and behind a semicolon what to send instead.
        hint: &'static str,
    },
    /// The bytes break the rules of their format.
    #[error("corrupt image: {detail}")]
    Corrupt {
        /// What the decoder stumbled over.
        detail: String,
    },
    /// The decoder gave up on it in a way that it should not have. A fault of the decoder's, which the panic hook has
    /// logged, about a picture that no camera makes.
    #[error("corrupt image: the decoder gave up on it")]
    DecoderPanicked,
    /// The bytes end before the picture does.
    #[error("truncated image: the data ends before the picture does")]
    Truncated,
    /// A raw frame's bytes are not as many as its size, strides and offsets ask for.
    #[error("the raw frame has {got} bytes where its size and strides ask for {expected}")]
    FrameSizeMismatch {
        /// Bytes asked for: the least there must be, or the most there may be, whichever was not kept.
        expected: u64,
        /// Bytes there are.
        got: u64,
    },
    /// A raw frame is described by numbers that cannot be.
    #[error("{field}: {detail}")]
    InvalidFrame {
        /// The field, by its path in the contract's message.
        field: &'static str,
        /// What is wrong with it.
        detail: String,
    },
    /// The header says more pixels than are allowed.
    #[error("image too large: {size} is {} pixels, above the limit of {max_pixels}; send a smaller one", size.pixels())]
    TooLarge {
        /// The size that the header says, before orientation.
        size: ImageSize,
        /// The limit on pixels.
        max_pixels: u64,
    },
    /// The header says a longer side than any picture may have, [`MAX_SIDE`].
    #[error(
        "image too large: {size} has a side above the limit of {MAX_SIDE} pixels; send a smaller one"
    )]
    SideTooLong {
        /// The size that the header says, before orientation.
        size: ImageSize,
    },
}

/// Decodes `bytes` into an upright picture.
///
/// # Errors
/// [`DecodeError`], each variant as it says.
pub fn decode(bytes: &[u8], limits: &DecodeLimits) -> Result<Picture, DecodeError> {
    if bytes.is_empty() {
        return Err(DecodeError::Empty);
    }
    contained(|| match sniff::sniff(bytes) {
        sniff::Format::Jpeg => jpeg::decode(bytes, limits),
        sniff::Format::Png => png::decode(bytes, limits),
        sniff::Format::WebP => webp::decode(bytes, limits),
        sniff::Format::Gif => gif::decode(bytes, limits),
        sniff::Format::Bmp => bmp::decode(bytes, limits),
        sniff::Format::Other(hint) => Err(DecodeError::UnsupportedFormat { hint }),
    })
}

/// What a decoder says, also when it panics: the libraries that decode are others', and what they meet is anybody's.
fn contained(
    decode: impl FnOnce() -> Result<Picture, DecodeError>,
) -> Result<Picture, DecodeError> {
    // Whatever it was building goes with it.
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or(Err(DecodeError::DecoderPanicked))
}

// === impl DecodeLimits ===

impl DecodeLimits {
    /// Refuses a size that no picture has, or that is too large.
    pub(super) fn check(&self, size: ImageSize) -> Result<(), DecodeError> {
        if size.is_empty() {
            return Err(DecodeError::corrupt("the header gives no width or height"));
        }
        if size.pixels() > self.max_pixels {
            return Err(DecodeError::TooLarge {
                size,
                max_pixels: self.max_pixels,
            });
        }
        if size.width > MAX_SIDE || size.height > MAX_SIDE {
            return Err(DecodeError::SideTooLong { size });
        }
        Ok(())
    }
}

impl Default for DecodeLimits {
    /// 50 megapixels: what the cameras of today's phones put out in their common modes, and 150 MB decoded.
    fn default() -> Self {
        Self {
            max_pixels: 50_000_000,
        }
    }
}

// === impl DecodeError ===

impl DecodeError {
    pub(super) fn corrupt(detail: impl std::fmt::Display) -> Self {
        Self::Corrupt {
            detail: detail.to_string(),
        }
    }
}
