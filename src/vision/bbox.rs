//! Boxes: plain axis-aligned rectangles, in whatever frame the caller says.
//!
//! What a box shows and where it came from is the business of others ([`super::nms`], the heads).

pub use super::image_size::{ImageSize, PixelRect};

/// An axis-aligned rectangle in pixels: origin top left, y down, continuous coordinates.
///
/// Nothing is promised about the order of its corners or whether they are numbers: it may hold what a
/// network put out. [`BoundingBox::clip`] is the way to a box that keeps `0 <= min < max <= side`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct BoundingBox {
    /// The left edge.
    pub x_min: f32,
    /// The upper edge.
    pub y_min: f32,
    /// The right edge.
    pub x_max: f32,
    /// The lower edge.
    pub y_max: f32,
}

/// The number of a class in its model's label map, counted from zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub u32);

/// A box as a head puts it out, before suppression.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScoredBox {
    /// Where, in the frame of whoever made it.
    pub bbox: BoundingBox,
    /// How sure, usually in `[0, 1]`.
    pub score: f32,
    /// What.
    pub class: ClassId,
}

// === impl BoundingBox ===

impl BoundingBox {
    /// Makes a box of its left, upper, right and lower edge.
    pub const fn new(x_min: f32, y_min: f32, x_max: f32, y_max: f32) -> Self {
        Self {
            x_min,
            y_min,
            x_max,
            y_max,
        }
    }

    /// The horizontal extent; zero when the edges are reversed or not numbers.
    pub fn width(&self) -> f32 {
        (self.x_max - self.x_min).max(0.0)
    }

    /// The vertical extent; zero when the edges are reversed or not numbers.
    pub fn height(&self) -> f32 {
        (self.y_max - self.y_min).max(0.0)
    }

    /// The area in square pixels, never negative.
    pub fn area(&self) -> f32 {
        self.width() * self.height()
    }

    /// The area that both boxes cover over the area that either covers, in `[0, 1]`.
    ///
    /// Zero when they are disjoint, merely touch, or one of them has no area or no numbers.
    pub fn iou(&self, other: &BoundingBox) -> f32 {
        let shared = BoundingBox {
            x_min: self.x_min.max(other.x_min),
            y_min: self.y_min.max(other.y_min),
            x_max: self.x_max.min(other.x_max),
            y_max: self.y_max.min(other.y_max),
        }
        .area();
        let (own, others) = (self.area(), other.area());
        let iou = shared / (own + others - shared);
        // `max` and `min` pass over an edge that is no number, so `shared` alone does not tell; and
        // an unbounded box gives inf/inf.
        if own == 0.0 || others == 0.0 || iou.is_nan() {
            return 0.0;
        }
        iou.clamp(0.0, 1.0)
    }

    /// The part of the box that lies in a picture of `size`.
    ///
    /// `None` when nothing is left of it, its edges are reversed, or one of them is not a number. Edges
    /// at infinity are cut like any other.
    pub fn clip(&self, size: ImageSize) -> Option<BoundingBox> {
        self.clip_to(&BoundingBox::new(
            0.0,
            0.0,
            size.width as f32,
            size.height as f32,
        ))
    }

    /// The part of the box that lies in `other`, whose edges are numbers in their order.
    ///
    /// `None` as [`clip`](Self::clip) says.
    pub fn clip_to(&self, other: &BoundingBox) -> Option<BoundingBox> {
        let edges = [self.x_min, self.y_min, self.x_max, self.y_max];
        if edges.iter().any(|edge| edge.is_nan()) {
            return None;
        }
        // `clamp` panics where its bounds are reversed; these only find nothing.
        let x = |edge: f32| edge.max(other.x_min).min(other.x_max);
        let y = |edge: f32| edge.max(other.y_min).min(other.y_max);
        let clipped = BoundingBox {
            x_min: x(self.x_min),
            y_min: y(self.y_min),
            x_max: x(self.x_max),
            y_max: y(self.y_max),
        };
        (clipped.x_min < clipped.x_max && clipped.y_min < clipped.y_max).then_some(clipped)
    }

    /// The box of a part of a picture.
    pub fn of(part: PixelRect) -> Self {
        let (left, top) = (part.left as f32, part.top as f32);
        Self::new(
            left,
            top,
            left + part.size.width as f32,
            top + part.size.height as f32,
        )
    }

    /// The pixels that a box touches which lies in a picture, as [`clip`](Self::clip) leaves it.
    pub fn pixels(&self) -> PixelRect {
        // Edges of a clipped box are neither negative nor above a side, so nothing is cut off here.
        let (left, top) = (self.x_min.floor() as u32, self.y_min.floor() as u32);
        let (right, bottom) = (self.x_max.ceil() as u32, self.y_max.ceil() as u32);
        PixelRect {
            left,
            top,
            size: ImageSize::new(right.saturating_sub(left), bottom.saturating_sub(top)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_box() -> impl Strategy<Value = BoundingBox> {
        (-50.0f32..50.0, -50.0f32..50.0, 0.0f32..50.0, 0.0f32..50.0)
            .prop_map(|(x, y, w, h)| BoundingBox::new(x, y, x + w, y + h))
    }

    #[test]
    fn half_a_box_overlaps_by_a_third() {
        let a = BoundingBox::new(0.0, 0.0, 2.0, 2.0);
        let b = BoundingBox::new(1.0, 0.0, 3.0, 2.0);
        assert!((a.iou(&b) - 1.0 / 3.0).abs() < 1e-6);
    }

    #[test]
    fn degenerate_boxes_have_no_area_and_no_overlap() {
        let whole = BoundingBox::new(0.0, 0.0, 10.0, 10.0);
        let nan = f32::NAN;
        let inf = f32::INFINITY;
        for odd in [
            BoundingBox::new(5.0, 5.0, 5.0, 5.0),
            BoundingBox::new(8.0, 2.0, 2.0, 8.0),
            BoundingBox::new(8.0, 8.0, 2.0, 2.0),
            BoundingBox::new(nan, nan, nan, nan),
        ] {
            assert_eq!(odd.area(), 0.0, "{odd:?}");
            assert_eq!(odd.iou(&whole), 0.0, "{odd:?}");
            assert_eq!(odd.iou(&odd), 0.0, "{odd:?}");
        }
        let unbounded = BoundingBox::new(-inf, -inf, inf, inf);
        assert_eq!(unbounded.iou(&unbounded), 0.0);
    }

    #[test]
    fn touching_boxes_do_not_overlap() {
        let a = BoundingBox::new(0.0, 0.0, 2.0, 2.0);
        let b = BoundingBox::new(2.0, 0.0, 4.0, 2.0);
        assert_eq!(a.iou(&b), 0.0);
    }

    #[test]
    fn clipping_leaves_nothing_of_a_box_outside_reversed_or_without_numbers() {
        let size = ImageSize::new(10, 20);
        for gone in [
            BoundingBox::new(-5.0, 0.0, 0.0, 5.0),
            BoundingBox::new(10.0, 0.0, 15.0, 5.0),
            BoundingBox::new(0.0, 20.0, 5.0, 25.0),
            BoundingBox::new(5.0, 5.0, 5.0, 6.0),
            BoundingBox::new(6.0, 5.0, 5.0, 6.0),
            BoundingBox::new(f32::NAN, 0.0, 5.0, 5.0),
            BoundingBox::new(0.0, 0.0, 5.0, f32::NAN),
        ] {
            assert_eq!(gone.clip(size), None, "{gone:?}");
        }
    }

    #[test]
    fn clipping_cuts_at_each_edge() {
        let inf = f32::INFINITY;
        let clipped = BoundingBox::new(-inf, -1.0, inf, 21.0).clip(ImageSize::new(10, 20));
        assert_eq!(clipped, Some(BoundingBox::new(0.0, 0.0, 10.0, 20.0)));
    }

    proptest! {
        #[test]
        fn overlap_is_symmetric_and_within_bounds(a in any_box(), b in any_box()) {
            let iou = a.iou(&b);
            prop_assert_eq!(iou, b.iou(&a));
            prop_assert!((0.0..=1.0).contains(&iou));
        }

        #[test]
        fn a_box_covers_itself(a in any_box()) {
            prop_assume!(a.area() > 0.01);
            prop_assert!((a.iou(&a) - 1.0).abs() < 1e-4);
        }

        #[test]
        fn a_clipped_box_lies_in_the_picture_and_in_the_box(a in any_box()) {
            let size = ImageSize::new(20, 30);
            if let Some(clipped) = a.clip(size) {
                prop_assert!(0.0 <= clipped.x_min && clipped.x_min < clipped.x_max && clipped.x_max <= 20.0);
                prop_assert!(0.0 <= clipped.y_min && clipped.y_min < clipped.y_max && clipped.y_max <= 30.0);
                prop_assert!(clipped.x_min >= a.x_min && clipped.x_max <= a.x_max);
                prop_assert!(clipped.y_min >= a.y_min && clipped.y_max <= a.y_max);
                prop_assert_eq!(clipped.clip(size), Some(clipped));
                let pixels = clipped.pixels();
                prop_assert!(pixels.is_within(size));
                prop_assert!(pixels.left as f32 <= clipped.x_min && pixels.top as f32 <= clipped.y_min);
                prop_assert!((pixels.left + pixels.size.width) as f32 >= clipped.x_max);
                prop_assert!((pixels.top + pixels.size.height) as f32 >= clipped.y_max);
            }
        }
    }
}
