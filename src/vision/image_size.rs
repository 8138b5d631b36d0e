//! The size of a picture.

use std::fmt;

use serde::Deserialize;

/// The width and height of a picture in pixels.
///
/// In a model card it is written `[width, height]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(from = "[u32; 2]")]
pub struct ImageSize {
    /// Pixels in a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

/// A part of a picture, in whole pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PixelRect {
    /// Pixels of the picture left of the part.
    pub left: u32,
    /// Pixels of the picture above it.
    pub top: u32,
    /// Its own size.
    pub size: ImageSize,
}

// === impl PixelRect ===

impl PixelRect {
    /// All of a picture of this size.
    pub const fn whole(size: ImageSize) -> Self {
        Self {
            left: 0,
            top: 0,
            size,
        }
    }

    /// Whether the part has pixels, all of which a picture of `size` has too.
    pub fn is_within(self, size: ImageSize) -> bool {
        let fits = |start: u32, len: u32, end: u32| {
            len > 0 && start.checked_add(len).is_some_and(|past| past <= end)
        };
        fits(self.left, self.size.width, size.width)
            && fits(self.top, self.size.height, size.height)
    }
}

// === impl ImageSize ===

impl ImageSize {
    /// Makes a size of a width and a height in pixels.
    pub const fn new(width: u32, height: u32) -> Self {
        Self { width, height }
    }

    /// How many pixels a picture of this size has.
    pub const fn pixels(self) -> u64 {
        self.width as u64 * self.height as u64
    }

    /// Whether there is no pixel in it.
    pub const fn is_empty(self) -> bool {
        self.width == 0 || self.height == 0
    }

    /// The size of the picture laid on its side.
    #[must_use]
    pub const fn transposed(self) -> Self {
        Self::new(self.height, self.width)
    }
}

impl From<[u32; 2]> for ImageSize {
    fn from([width, height]: [u32; 2]) -> Self {
        Self { width, height }
    }
}

impl fmt::Display for ImageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.width, self.height)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_of_the_largest_size_do_not_overflow() {
        let size = ImageSize::new(u32::MAX, u32::MAX);
        assert_eq!(size.pixels(), u64::from(u32::MAX) * u64::from(u32::MAX));
    }

    #[test]
    fn a_size_reads_width_first() {
        assert_eq!(ImageSize::from([640, 480]).to_string(), "640x480");
    }
}
