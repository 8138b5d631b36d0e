//! The antialiasing resize, and the buffers that it uses again.

use fast_image_resize::images::{CroppedImage, Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};

use super::super::image_size::{ImageSize, PixelRect};
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

/// Pixels to read: a part of a picture's.
#[derive(Clone, Copy)]
struct Source<'a> {
    pixels: &'a [u8],
    /// Of the whole picture.
    size: ImageSize,
    part: PixelRect,
}

// === impl Scratch ===

impl Scratch {
    /// Returns the pixels of a part of `picture` resized to `size`: those of the picture itself when all of it
    /// is wanted in the size that it has. `part` lies within the picture.
    pub(super) fn resize<'a>(
        &'a mut self,
        picture: &'a Picture,
        part: PixelRect,
        size: ImageSize,
    ) -> &'a [u8] {
        if part == PixelRect::whole(size) && picture.size() == size {
            return picture.pixels();
        }
        let source = Source {
            pixels: picture.pixels(),
            size: picture.size(),
            part,
        };
        if part.size == size {
            source.copy(&mut self.first);
            return &self.first;
        }
        // The resizer works on columns first and holds `part.width x size.height` between its passes.
        // Where that is larger than both pictures, rows first is the way to stay small.
        if size.height > part.size.height && size.width < part.size.width {
            let narrow = ImageSize::new(size.width, part.size.height);
            pass(&mut self.resizer, source, &mut self.first, narrow);
            let source = Source {
                pixels: &self.first,
                size: narrow,
                part: PixelRect::whole(narrow),
            };
            pass(&mut self.resizer, source, &mut self.second, size);
            return &self.second;
        }
        pass(&mut self.resizer, source, &mut self.first, size);
        &self.first
    }

    /// Bytes held for the next picture.
    #[cfg(test)]
    pub(super) fn kept_bytes(&self) -> usize {
        self.first.capacity() + self.second.capacity() + self.resizer.size_of_internal_buffers()
    }
}

// === impl Source ===

impl Source<'_> {
    /// Copies the part's rows.
    fn copy(self, target: &mut Vec<u8>) {
        let PixelRect { left, top, size } = self.part;
        target.clear();
        let rows = self.pixels.chunks_exact(self.size.width as usize * 3);
        for row in rows.skip(top as usize).take(size.height as usize) {
            target.extend_from_slice(&row[left as usize * 3..][..size.width as usize * 3]);
        }
    }
}

fn pass(resizer: &mut Resizer, source: Source<'_>, target: &mut Vec<u8>, target_size: ImageSize) {
    const FITS: &str = "both buffers hold three bytes for each pixel of their sizes";
    target.resize(target_size.pixels() as usize * 3, 0);
    let whole = ImageRef::new(
        source.size.width,
        source.size.height,
        source.pixels,
        PixelType::U8x3,
    )
    .expect(FITS);
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
    // A view of the part, rather than the resizer's own crop: the filter would reach over its edges.
    let PixelRect { left, top, size } = source.part;
    let part = CroppedImage::new(&whole, left, top, size.width, size.height)
        .expect("the part lies within the picture");
    resizer
        .resize(&part, &mut target, &options)
        .expect("source and target are of the same pixel type, and nothing is cropped");
    if resizer.size_of_internal_buffers() > MAX_KEPT_BYTES {
        resizer.reset_internal_buffers();
    }
}
