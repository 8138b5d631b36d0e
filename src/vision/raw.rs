//! Raw frames to upright pictures: what cameras and video decoders hold, without an encoding around it.
//!
//! Rows are converted straight from the sender's bytes into the picture. A frame's numbers come from the
//! sender and are believed only after [`RawFrame::validate`] has placed every plane inside the bytes.
//!
//! - A row may be followed by padding (its *stride* is longer than it is), except that the last row of a
//!   plane needs none. Planes may lie anywhere in the bytes and may overlap: they are only read.
//! - Tightly packed frames have exactly the bytes that their size asks for; of frames with strides each
//!   plane may have its last row padded or not. Where plane offsets are given, what lies between and behind the
//!   planes is not looked at.
//! - Chroma covers 2 x 2 luma samples (NV12, NV21, I420) or 2 x 1 (YUYV), rounded up at odd sizes, and is
//!   repeated, not interpolated.
//! - Alpha is dropped.

mod convert;
mod layout;
#[cfg(test)]
mod tests;
mod yuv;

use super::decode::{DecodeError, DecodeLimits};
use super::image_size::ImageSize;
use super::orient::{Orientation, upright};
use super::picture::Picture;

/// How pixels lie in the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PixelFormat {
    /// R, G, B.
    Rgb24,
    /// B, G, R.
    Bgr24,
    /// R, G, B, A.
    Rgba32,
    /// B, G, R, A.
    Bgra32,
    /// One byte of brightness.
    Gray8,
    /// A plane of Y, then one of U, V in turn.
    Nv12,
    /// A plane of Y, then one of U, then one of V.
    I420,
    /// A plane of Y, then one of V, U in turn.
    Nv21,
    /// Y, U, Y, V for two pixels side by side.
    Yuyv,
}

/// What Y, U and V mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColorSpace {
    /// Standard definition, Y in 16..=235.
    Bt601Limited,
    /// Standard definition, Y in 0..=255; JPEG's.
    Bt601Full,
    /// High definition, Y in 16..=235.
    Bt709Limited,
    /// High definition, Y in 0..=255.
    Bt709Full,
}

/// The clockwise turn that makes a frame upright.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Rotation {
    /// None: it is upright.
    #[default]
    None,
    /// A quarter turn.
    Clockwise90,
    /// Half a turn.
    Clockwise180,
    /// Three quarter turns.
    Clockwise270,
}

/// What a sender says of a frame. Nothing of it is checked yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawLayout {
    /// How pixels lie in the bytes.
    pub format: PixelFormat,
    /// Pixels of the frame as it is stored.
    pub size: ImageSize,
    /// Bytes from a row to the next, for each plane; empty is tightly packed.
    pub strides: Vec<u32>,
    /// Where each plane begins in the bytes; empty is each behind the last.
    pub plane_offsets: Vec<u64>,
    /// How the frame is turned to be upright.
    pub rotation: Rotation,
    /// What Y, U and V mean; `None` is as the frame's height suggests ([`ColorSpace::of_rows`]).
    pub color_space: Option<ColorSpace>,
}

/// A frame: the sender's bytes and what they are said to be.
#[derive(Debug, Clone, Copy)]
pub struct RawFrame<'a> {
    /// What they are said to be.
    pub layout: &'a RawLayout,
    /// The bytes.
    pub data: &'a [u8],
}

// === impl RawFrame ===

impl RawFrame<'_> {
    /// Checks the numbers, the limits, and that every plane lies in the bytes.
    ///
    /// # Errors
    /// - [`DecodeError::InvalidFrame`] names the field that cannot be: a side of zero, a count of strides or
    ///   offsets that is not the count of planes, a stride shorter than a row.
    /// - [`DecodeError::TooLarge`], by the stored size.
    /// - [`DecodeError::FrameSizeMismatch`] when the bytes are too few, or more than a frame without plane
    ///   offsets has.
    pub fn validate(&self, limits: &DecodeLimits) -> Result<(), DecodeError> {
        self.planes(limits).map(drop)
    }

    /// Converts the frame into an upright picture.
    ///
    /// # Errors
    /// As [`validate`](Self::validate).
    pub fn to_picture(&self, limits: &DecodeLimits) -> Result<Picture, DecodeError> {
        let planes = self.planes(limits)?;
        let RawLayout { format, size, .. } = *self.layout;
        let color_space = self
            .layout
            .color_space
            .unwrap_or(ColorSpace::of_rows(size.height));
        let pixels = convert::to_rgb8(format, size, &planes, color_space);
        let picture = Picture::from_rgb8(size, pixels).map_err(DecodeError::corrupt)?;
        Ok(upright(picture, self.layout.rotation.into()))
    }

    fn planes(&self, limits: &DecodeLimits) -> Result<Vec<layout::Plane<'_>>, DecodeError> {
        layout::planes(self.layout, self.data, limits)
    }
}

// === impl ColorSpace ===

impl ColorSpace {
    /// What is meant when nothing is said: standard definition up to 576 rows, high definition above, both
    /// in limited range. Rows are counted as the frame is stored.
    pub fn of_rows(rows: u32) -> Self {
        if rows <= 576 {
            Self::Bt601Limited
        } else {
            Self::Bt709Limited
        }
    }
}

// === impl Rotation ===

impl From<Rotation> for Orientation {
    fn from(rotation: Rotation) -> Self {
        match rotation {
            Rotation::None => Self::NoTransforms,
            Rotation::Clockwise90 => Self::Rotate90,
            Rotation::Clockwise180 => Self::Rotate180,
            Rotation::Clockwise270 => Self::Rotate270,
        }
    }
}
