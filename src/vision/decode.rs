//! Encoded bytes to an upright picture.
//!
//! The magic bytes decide the format; names and content types are never asked. JPEG and PNG are read.
//! What is refused is refused with a reason that the sender can act on ([`DecodeError`]).
//!
//! What comes out:
//! - always RGB, 8 bits a channel. Gray is repeated to three channels, 16 bits are rounded to 8, CMYK
//!   and YCCK are converted without a profile. Colour profiles are ignored.
//! - alpha is *dropped*, not blended: the colours under transparent pixels are what the file says.
//! - upright: the EXIF orientation is applied, and the size is that of the upright picture. An
//!   orientation that does not exist counts as none.
//! - the first picture only, of files that hold several (MPO, animated PNG).
//!
//! A picture that was cut off is refused, never filled up with gray. A *baseline* JPEG that lacks only
//! its end marker has all its pixels and is accepted; a progressive one is not, as nothing else tells
//! that its last scan was the last. A JPEG cut in the middle and closed with an end marker is
//! not noticed.
//!
//! The limit on pixels is checked on the header, before any memory of the picture's size is asked for.
//! At its peak a decode holds 9 bytes for each pixel of a JPEG in several scans (progressive; 11 when CMYK),
//! 8 for each pixel of a 16-bit RGBA PNG, 6 for one that is laid on its side, and 3 to 5 for all others.
//! The input's bytes, and up to 32 MiB of a PNG's metadata, come on top.
//!
//! The decoders are written with care for hostile input, but they are large: the caller should run them
//! where a panic costs one request only.

mod jpeg;
mod jpeg_header;
mod png;
mod sniff;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use super::image_size::ImageSize;
pub use super::picture::{MAX_SIDE, Picture};

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
    /// The bytes are not a JPEG or PNG of a kind that is read here.
    #[error("unsupported image format: {hint}")]
    UnsupportedFormat {
        /// What the bytes seem to be.
        hint: &'static str,
    },
    /// The bytes break the rules of their format.
    #[error("corrupt image: {detail}")]
    Corrupt {
        /// What the decoder stumbled over.
        detail: String,
    },
    /// The bytes end before the picture does.
    #[error("truncated image: the data ends before the picture does")]
    Truncated,
    /// The header says more pixels than are allowed, or a longer side.
    #[error(
        "image too large: {size} is above the limit of {max_pixels} pixels (and {MAX_SIDE} a side)"
    )]
    TooLarge {
        /// The size that the header says, before orientation.
        size: ImageSize,
        /// The limit on pixels.
        max_pixels: u64,
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
    match sniff::sniff(bytes) {
        sniff::Format::Jpeg => jpeg::decode(bytes, limits),
        sniff::Format::Png => png::decode(bytes, limits),
        sniff::Format::Other(hint) => Err(DecodeError::UnsupportedFormat { hint }),
    }
}

// === impl DecodeLimits ===

impl DecodeLimits {
    /// Refuses a size that no picture has, or that is too large.
    fn check(&self, size: ImageSize) -> Result<(), DecodeError> {
        if size.is_empty() {
            return Err(DecodeError::corrupt("the header gives no width or height"));
        }
        if size.pixels() > self.max_pixels || size.width > MAX_SIDE || size.height > MAX_SIDE {
            return Err(DecodeError::TooLarge {
                size,
                max_pixels: self.max_pixels,
            });
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
    fn corrupt(detail: impl std::fmt::Display) -> Self {
        Self::Corrupt {
            detail: detail.to_string(),
        }
    }
}
