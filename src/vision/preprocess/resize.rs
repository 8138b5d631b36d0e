//! The antialiasing resize, and the buffers that it uses again.

use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};

use super::super::image_size::ImageSize;
use super::super::picture::Picture;

/// Bytes of the resizer's own buffer that a thread keeps. What the usual photos take (a 4000 pixel
/// wide one at 1280 rows) stays; what a sliver of 65535 pixels took is given back.
const MAX_KEPT_BYTES: usize = 16 << 20;

/// What one thread needs to resize pictures.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    resizer: Resizer,
    /// The picture resized; or, of two passes, the first one's result.
    first: Vec<u8>,
    second: Vec<u8>,
}

// === impl Scratch ===

impl Scratch {
    /// Returns the pixels of `picture` resized to `size`: those of the picture itself when it has that size.
    pub(super) fn resize<'a>(&'a mut self, picture: &'a Picture, size: ImageSize) -> &'a [u8] {
        let source = picture.size();
        if source == size {
            return picture.pixels();
        }
        // The resizer works on columns first and holds `source.width x size.height` between its passes.
        // Where that is larger than both pictures, rows first is the way to stay small.
        if size.height > source.height && size.width < source.width {
            let narrow = ImageSize::new(size.width, source.height);
            pass(
                &mut self.resizer,
                picture.pixels(),
                source,
                &mut self.first,
                narrow,
            );
            pass(
                &mut self.resizer,
                &self.first,
                narrow,
                &mut self.second,
                size,
            );
            return &self.second;
        }
        pass(
            &mut self.resizer,
            picture.pixels(),
            source,
            &mut self.first,
            size,
        );
        &self.first
    }

    /// Bytes held for the next picture.
    #[cfg(test)]
    pub(super) fn kept_bytes(&self) -> usize {
        self.first.capacity() + self.second.capacity() + self.resizer.size_of_internal_buffers()
    }
}

fn pass(
    resizer: &mut Resizer,
    source: &[u8],
    source_size: ImageSize,
    target: &mut Vec<u8>,
    target_size: ImageSize,
) {
    const FITS: &str = "both buffers hold three bytes for each pixel of their sizes";
    target.resize(target_size.pixels() as usize * 3, 0);
    let source = ImageRef::new(
        source_size.width,
        source_size.height,
        source,
        PixelType::U8x3,
    );
    let mut target = Image::from_slice_u8(
        target_size.width,
        target_size.height,
        target,
        PixelType::U8x3,
    )
    .expect(FITS);
    let options = ResizeOptions::new()
        .resize_alg(ResizeAlg::Convolution(FilterType::Bilinear))
        .use_alpha(false);
    resizer
        .resize(&source.expect(FITS), &mut target, &options)
        .expect("source and target are of the same pixel type, and nothing is cropped");
    if resizer.size_of_internal_buffers() > MAX_KEPT_BYTES {
        resizer.reset_internal_buffers();
    }
}
