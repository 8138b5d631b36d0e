//! A picture to a network's input.
//!
//! A [`Preprocessor`] is made once for a model and used by any number of threads. It resizes with an
//! antialiasing bilinear filter (as Pillow does; a filter without antialiasing costs boxes), places the
//! content, fills the rest, and writes `(pixel * scale - mean) / std` in the tensor's order and type.
//! Where the content lies is told by the [`LetterboxTransform`] it returns.

mod normalise;
mod resize;
mod spec;
#[cfg(test)]
mod tests;

use std::cell::RefCell;

pub use spec::{ColorOrder, InputSpec, Layout, Resize, SpecError};

use super::image_size::PixelRect;
use super::letterbox::LetterboxTransform;
use super::picture::Picture;
use crate::tensor::{DType, Tensor};
use normalise::{Normaliser, Placed};
use resize::Scratch;

thread_local! {
    /// Buffers that each thread uses again for its next picture. Nothing of a picture is read from them
    /// later: they are overwritten as far as they are used.
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Writes pictures into tensors as one model wants them.
#[derive(Debug)]
pub struct Preprocessor {
    spec: InputSpec,
    dtype: DType,
    normaliser: Normaliser,
}

// === impl Preprocessor ===

impl Preprocessor {
    /// Makes a preprocessor that writes tensors of `dtype`.
    ///
    /// # Errors
    /// [`SpecError`] when the spec is not [valid](InputSpec::validate), the type is none of `f32`, `f16`
    /// and `u8`, a value does not fit it, or normalisation is asked of `u8`, which takes pixels as they are.
    pub fn new(spec: InputSpec, dtype: DType) -> Result<Self, SpecError> {
        spec.validate()?;
        let normaliser = Normaliser::new(&spec, dtype)?;
        Ok(Self {
            spec,
            dtype,
            normaliser,
        })
    }

    /// What it was made from.
    pub fn spec(&self) -> &InputSpec {
        &self.spec
    }

    /// The element type of the tensors it writes.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The shape of one picture's tensor: `[3, H, W]` or `[H, W, 3]`.
    pub fn tensor_shape(&self) -> Vec<usize> {
        self.spec.tensor_shape()
    }

    /// Where in the input a picture of `source` pixels lies.
    pub fn placement(&self, source: super::ImageSize) -> LetterboxTransform {
        match self.spec.resize {
            Resize::Letterbox { anchor, .. } => {
                LetterboxTransform::letterbox(source, self.spec.size, anchor)
            }
            Resize::Stretch => LetterboxTransform::stretch(source, self.spec.size),
        }
    }

    /// Writes `picture` into `out`, all of it, and says where the picture lies in it.
    ///
    /// `out` has this preprocessor's element type and as many elements as its
    /// [`tensor_shape`](Self::tensor_shape); what it held before does not matter. No memory of the
    /// picture's size is taken, and after a thread's first few pictures none at all but the resize
    /// filter's weights.
    ///
    /// # Panics
    /// When `out` is shared or of another type or size: who calls this made both.
    pub fn run(&self, picture: &Picture, out: &mut Tensor) -> LetterboxTransform {
        self.run_on(picture, PixelRect::whole(picture.size()), out)
    }

    /// Does the same for a part of `picture` alone: what lies outside of it does not show in `out`, not even
    /// at its edges. The part is not copied. The transform's coordinates are those of the whole picture.
    ///
    /// # Panics
    /// As [`run`](Self::run), and when the part is not [within](PixelRect::is_within) the picture.
    pub fn run_on(
        &self,
        picture: &Picture,
        part: PixelRect,
        out: &mut Tensor,
    ) -> LetterboxTransform {
        assert!(
            part.is_within(picture.size()),
            "{part:?} is a part of {picture:?}"
        );
        let transform = self.placement(part.size).of_part(part.left, part.top);
        SCRATCH.with_borrow_mut(|scratch| {
            let content = scratch.resize(picture, part, transform.content);
            let placed = Placed {
                pixels: content,
                size: transform.content,
                left: transform.left as usize,
                top: transform.top as usize,
            };
            self.normaliser.write(&placed, out);
        });
        transform
    }
}
