//! Where a picture lies in a network's input, and the way back.
//!
//! A letterbox keeps the picture's proportions and fills what is left over; a stretch does not. Both
//! come out as whole pixels, so the two axes are scaled by slightly different factors. The transform
//! holds the *applied* sizes, never the factor that was aimed at: with that alone a box of a wide
//! picture comes back pixels away from its object.

use serde::Deserialize;

use super::bbox::BoundingBox;
use super::image_size::{ImageSize, PixelRect};

/// Where in the input a letterboxed picture lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Anchor {
    /// In the middle; of an odd remainder the larger half is right or below.
    Center,
    /// At the top left, all the filling is right or below.
    TopLeft,
}

/// The map between a picture, or a part of it, and the part of a network's input that it fills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LetterboxTransform {
    /// What of the picture is mapped; all of it unless it was [cropped](Self::of_part).
    pub source: PixelRect,
    /// The size of the resized picture within the input.
    pub content: ImageSize,
    /// Input pixels left of the content.
    pub left: u32,
    /// Input pixels above the content.
    pub top: u32,
}

// === impl LetterboxTransform ===

impl LetterboxTransform {
    /// Fits `source` into `input`, proportions kept.
    ///
    /// With `r = min(input.width / source.width, input.height / source.height)` the content is
    /// `floor(width * r)` by `floor(height * r)`, computed in double precision as the training code of
    /// such models does, and at least one pixel a side.
    pub fn letterbox(source: ImageSize, input: ImageSize, anchor: Anchor) -> Self {
        let ratio = |input: u32, source: u32| f64::from(input) / f64::from(source.max(1));
        let scale = ratio(input.width, source.width).min(ratio(input.height, source.height));
        let fit =
            |source: u32, input: u32| ((f64::from(source) * scale) as u32).clamp(1, input.max(1));
        let content = ImageSize {
            width: fit(source.width, input.width),
            height: fit(source.height, input.height),
        };
        let (left, top) = match anchor {
            Anchor::TopLeft => (0, 0),
            Anchor::Center => (
                input.width.saturating_sub(content.width) / 2,
                input.height.saturating_sub(content.height) / 2,
            ),
        };
        Self {
            source: PixelRect::whole(source),
            content,
            left,
            top,
        }
    }

    /// Fills all of `input` with `source`, whatever becomes of its proportions.
    pub fn stretch(source: ImageSize, input: ImageSize) -> Self {
        Self {
            source: PixelRect::whole(source),
            content: input,
            left: 0,
            top: 0,
        }
    }

    /// The same map for a source that is itself a part of a picture: `left` and `top` are the picture's
    /// pixels before it, and coordinates of the *picture* go in and come out.
    #[must_use]
    pub fn of_part(mut self, left: u32, top: u32) -> Self {
        (self.source.left, self.source.top) = (left, top);
        self
    }

    /// Maps a point of the picture to the input.
    pub fn forward(&self, x: f32, y: f32) -> (f32, f32) {
        (
            map(
                x,
                self.source.left,
                self.source.size.width,
                self.left,
                self.content.width,
            ),
            map(
                y,
                self.source.top,
                self.source.size.height,
                self.top,
                self.content.height,
            ),
        )
    }

    /// Maps a box of the input to the picture. It is not clipped: it may reach over the picture's edges.
    pub fn invert(&self, bbox: BoundingBox) -> BoundingBox {
        let PixelRect { left, top, size } = self.source;
        let x = |x| map(x, self.left, self.content.width, left, size.width);
        let y = |y| map(y, self.top, self.content.height, top, size.height);
        BoundingBox {
            x_min: x(bbox.x_min),
            y_min: y(bbox.y_min),
            x_max: x(bbox.x_max),
            y_max: y(bbox.y_max),
        }
    }
}

/// Maps the span that starts at `from` and is `from_len` long onto the one at `to`, `to_len` long.
///
/// In double precision: a coordinate of a large picture times a large side eats up a float's 24 bits.
fn map(value: f32, from: u32, from_len: u32, to: u32, to_len: u32) -> f32 {
    let scale = f64::from(to_len) / f64::from(from_len.max(1));
    ((f64::from(value) - f64::from(from)) * scale + f64::from(to)) as f32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn size(width: u32, height: u32) -> ImageSize {
        ImageSize::new(width, height)
    }

    #[test]
    fn a_wide_picture_fills_the_width_and_is_rounded_down() {
        let top_left =
            LetterboxTransform::letterbox(size(1280, 720), size(416, 416), Anchor::TopLeft);
        assert_eq!(top_left.content, size(416, 234));
        assert_eq!((top_left.left, top_left.top), (0, 0));
        let center = LetterboxTransform::letterbox(size(1280, 720), size(416, 416), Anchor::Center);
        assert_eq!((center.left, center.top), (0, 91));
        let odd = LetterboxTransform::letterbox(size(3775, 1571), size(1280, 1280), Anchor::Center);
        assert_eq!((odd.content, odd.top), (size(1280, 532), 374));
    }

    #[test]
    fn a_sliver_keeps_one_pixel_of_its_short_side() {
        for (source, content) in [
            (size(60_000, 1), size(416, 1)),
            (size(1, 60_000), size(1, 416)),
            (size(1, 1), size(416, 416)),
        ] {
            let transform = LetterboxTransform::letterbox(source, size(416, 416), Anchor::Center);
            assert_eq!(transform.content, content);
        }
    }

    #[test]
    fn the_content_as_a_box_maps_to_the_whole_picture() {
        let source = size(3775, 1571);
        let transform = LetterboxTransform::letterbox(source, size(1280, 1280), Anchor::Center);
        let content = BoundingBox::new(0.0, 374.0, 1280.0, 374.0 + 532.0);
        assert_eq!(
            transform.invert(content),
            BoundingBox::new(0.0, 0.0, 3775.0, 1571.0)
        );
    }

    #[test]
    fn the_axes_are_scaled_apart() {
        // Aimed at: 0.339 on both. Applied: 532 of 1571 rows, so one factor for both is a pixel off.
        let transform =
            LetterboxTransform::letterbox(size(3775, 1571), size(1280, 1280), Anchor::TopLeft);
        let (_, y) = transform.forward(0.0, 1571.0);
        assert_eq!(y, 532.0);
        assert!((1571.0 * 1280.0 / 3775.0 - y).abs() > 0.5);
    }

    #[test]
    fn a_part_maps_to_its_place_in_the_picture() {
        let part = LetterboxTransform::letterbox(size(200, 100), size(416, 416), Anchor::Center)
            .of_part(300, 50);
        assert_eq!(
            part.invert(BoundingBox::new(0.0, 104.0, 416.0, 312.0)),
            BoundingBox::new(300.0, 50.0, 500.0, 150.0)
        );
        assert_eq!(part.forward(300.0, 50.0), (0.0, 104.0));
    }

    proptest! {
        #[test]
        fn forward_and_back_is_the_same_place(
            (width, height) in (1u32..5000, 1u32..5000),
            (input_width, input_height) in (1u32..1500, 1u32..1500),
            (fx, fy) in (0.0f32..1.0, 0.0f32..1.0),
            mode in 0..3,
        ) {
            let (source, input) = (size(width, height), size(input_width, input_height));
            let transform = match mode {
                0 => LetterboxTransform::letterbox(source, input, Anchor::Center),
                1 => LetterboxTransform::letterbox(source, input, Anchor::TopLeft),
                _ => LetterboxTransform::stretch(source, input),
            };
            prop_assert!(transform.left + transform.content.width <= input.width);
            prop_assert!(transform.top + transform.content.height <= input.height);

            let (x, y) = (fx * width as f32, fy * height as f32);
            let (input_x, input_y) = transform.forward(x, y);
            prop_assert!((0.0..=input.width as f32).contains(&input_x));
            prop_assert!((0.0..=input.height as f32).contains(&input_y));
            let back = transform.invert(BoundingBox::new(input_x, input_y, input_x, input_y));
            // The float that carries an input coordinate has 24 bits; blown up by source/input.
            prop_assert!((back.x_min - x).abs() < 0.01 + width as f32 / transform.content.width as f32 * 1e-4);
            prop_assert!((back.y_max - y).abs() < 0.01 + height as f32 / transform.content.height as f32 * 1e-4);
        }
    }
}
