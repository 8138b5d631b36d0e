//! A decoded, upright picture.
//!
//! [`Picture`] owns its pixels and upholds what the rest of the room relies on: at least one pixel, no
//! side above [`MAX_SIDE`], and exactly as many bytes as its size says. It knows nothing of formats.

use super::image_size::ImageSize;

/// The longest side of a picture in pixels: what a JPEG can say.
///
/// Work and memory of a resize grow with the longest *side*, not with the pixels alone (a filter has a
/// weight for each source row), so that a limit on pixels does not bound them for a picture one pixel wide.
pub const MAX_SIDE: u32 = 65_535;

/// An upright RGB picture, 8 bits a channel, rows tightly packed from the top.
#[derive(Clone, PartialEq, Eq)]
pub struct Picture {
    size: ImageSize,
    pixels: Vec<u8>,
}

/// Why bytes are not the pixels of a picture.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PictureError {
    /// A picture has at least one pixel.
    #[error("a picture of {size} has no pixels")]
    Empty {
        /// The size asked for.
        size: ImageSize,
    },
    /// A side is above [`MAX_SIDE`].
    #[error("a picture of {size} has a side above {MAX_SIDE} pixels")]
    SideTooLong {
        /// The size asked for.
        size: ImageSize,
    },
    /// The bytes are not three for each pixel.
    #[error("{got} bytes are not the pixels of an RGB picture of {size}")]
    WrongLength {
        /// The size asked for.
        size: ImageSize,
        /// How many bytes were given.
        got: usize,
    },
}

// === impl Picture ===

impl Picture {
    /// What a picture takes, in bytes a pixel.
    pub const BYTES_PER_PIXEL: u64 = 3;

    /// Makes a picture of `pixels`: R, G, B of each pixel, row by row from the top, without padding.
    ///
    /// # Errors
    /// [`PictureError`] when the size is not one of a picture or not that of the bytes.
    pub fn from_rgb8(size: ImageSize, pixels: Vec<u8>) -> Result<Self, PictureError> {
        if size.is_empty() {
            return Err(PictureError::Empty { size });
        }
        if size.width > MAX_SIDE || size.height > MAX_SIDE {
            return Err(PictureError::SideTooLong { size });
        }
        if pixels.len() as u64 != size.pixels() * Self::BYTES_PER_PIXEL {
            let got = pixels.len();
            return Err(PictureError::WrongLength { size, got });
        }
        Ok(Self { size, pixels })
    }

    /// The size in pixels, of the upright picture.
    pub fn size(&self) -> ImageSize {
        self.size
    }

    /// R, G, B of each pixel, row by row from the top, without padding.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// The same pixels for writing.
    pub fn pixels_mut(&mut self) -> &mut [u8] {
        &mut self.pixels
    }

    /// Gives up the picture for its pixels.
    pub fn into_pixels(self) -> Vec<u8> {
        self.pixels
    }
}

impl std::fmt::Debug for Picture {
    /// Names the size; the pixels would fill a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Picture({})", self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_three_bytes_a_pixel() {
        let size = ImageSize::new(2, 3);
        assert!(Picture::from_rgb8(size, vec![0; 18]).is_ok());
        for got in [0, 6, 17, 19, 24] {
            let error = Picture::from_rgb8(size, vec![0; got]).unwrap_err();
            assert_eq!(error, PictureError::WrongLength { size, got });
        }
    }

    #[test]
    fn a_picture_without_pixels_or_with_a_huge_side_is_refused() {
        let empty = ImageSize::new(0, 3);
        let long = ImageSize::new(1, MAX_SIDE + 1);
        assert_eq!(
            Picture::from_rgb8(empty, vec![]),
            Err(PictureError::Empty { size: empty })
        );
        assert_eq!(
            Picture::from_rgb8(long, vec![0; 3 * (MAX_SIDE as usize + 1)]),
            Err(PictureError::SideTooLong { size: long })
        );
    }
}
