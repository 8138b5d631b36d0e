//! Tiling: a large picture is looked at in pieces, so that small objects in it are not shrunk away.
//!
//! A [`Tiling`] cuts a picture, or a part of one, into overlapping [`View`]s: all of it first, for the objects that are
//! too large for a tile, then the tiles, row by row. What was found in the views is put together by [`merge`].
//!
//! Tiles are of one size and lie evenly, so that each shares at least the wanted overlap with its neighbours and
//! none reaches over the picture's edge. So any object no larger than the overlap lies in some tile whole. A box at
//! a border that its tile has inside of the picture is taken for a piece of an object ([`View::sight`]).

mod merge;

pub use merge::{Merging, SAME_OBJECT, Sight, TileBox, keep_surest, merge};

use super::bbox::BoundingBox;
use super::image_size::{ImageSize, PixelRect};

/// The most views of one picture, the one of all of it included.
///
/// Twice what the largest picture that is let in by default (50 megapixels) has at a tile of 416 and the default overlap.
/// What a call may ask of the devices is bounded by it.
pub const MAX_VIEWS: u64 = 1_024;

/// The largest overlap of neighbours, as a share of a tile's side.
pub const MAX_OVERLAP: f32 = 0.9;

/// What neighbours share when nothing is said.
pub const DEFAULT_OVERLAP: f32 = 0.2;

/// A box this close to a tile's border is cut by it, as a share of the tile's side: networks do not draw to the pixel.
const MARGIN: f32 = 1.0 / 64.0;

/// How a picture is cut into tiles.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tiling {
    /// A tile's size in pixels of the picture, at least one a side.
    pub tile: ImageSize,
    /// What neighbours share at least, as a share of a tile's side, in `[0, 0.9]`. Rounded down to whole pixels.
    pub overlap: f32,
}

/// A part of a picture that a network looks at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct View {
    /// The part.
    pub part: PixelRect,
    /// Where a whole object's box ends at the latest: nearer to the part's edge it may be a piece.
    inner: BoundingBox,
    /// A box no larger is seen better by another view. Zero for a tile.
    coarse: (f32, f32),
}

/// More views than a picture may have.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error(
    "tiles of {} with an overlap of {} cut {size} into {count} pieces, above the limit of {MAX_VIEWS}; tiles of {enough} \
     pixels a side would do",
    tiling.tile, tiling.overlap
)]
pub struct TooManyTiles {
    /// What was asked for.
    pub tiling: Tiling,
    /// The size of what was to be cut.
    pub size: ImageSize,
    /// How many views that makes.
    pub count: u64,
    /// The smallest side of a square tile that makes few enough, at the same overlap.
    pub enough: u32,
}

// === impl Tiling ===

impl Tiling {
    /// How many views [`Tiling::views`] gives of a part of this size: one where a tile holds all of it.
    pub fn count(&self, size: ImageSize) -> u64 {
        let tiles = self.along(size.width, self.tile.width).count
            * self.along(size.height, self.tile.height).count;
        match tiles {
            1 => 1,
            tiles => 1 + tiles,
        }
    }

    /// The views of a part of a picture: all of it, then the tiles, row by row from the top left. A single one where a
    /// tile holds all of it.
    ///
    /// # Errors
    /// [`TooManyTiles`] for more than [`MAX_VIEWS`].
    pub fn views(&self, part: PixelRect) -> Result<Vec<View>, TooManyTiles> {
        let count = self.count(part.size);
        if count > MAX_VIEWS {
            return Err(TooManyTiles {
                tiling: *self,
                size: part.size,
                count,
                enough: self.enough(part.size),
            });
        }
        let mut whole = View::all_of(part);
        if count == 1 {
            return Ok(vec![whole]);
        }
        let columns = self.along(part.size.width, self.tile.width);
        let rows = self.along(part.size.height, self.tile.height);
        whole.coarse = (columns.sure(), rows.sure());
        let tiles = (0..rows.count).flat_map(|row| {
            let (top, height) = rows.span(row);
            (0..columns.count).map(move |column| {
                let (left, width) = columns.span(column);
                let tile = PixelRect {
                    left: part.left + left,
                    top: part.top + top,
                    size: ImageSize::new(width, height),
                };
                View::tile(tile, part)
            })
        });
        Ok(std::iter::once(whole).chain(tiles).collect())
    }

    fn along(&self, len: u32, tile: u32) -> Axis {
        let tile = tile.max(1);
        let shared = (f64::from(tile) * f64::from(self.overlap.clamp(0.0, MAX_OVERLAP))) as u32;
        let step = u64::from(tile - shared.min(tile - 1));
        let count = match len.checked_sub(tile) {
            None | Some(0) => 1,
            Some(rest) => 1 + u64::from(rest).div_ceil(step),
        };
        Axis {
            len,
            tile: tile.min(len),
            shared,
            count,
        }
    }

    /// The smallest square tile that makes few enough views.
    fn enough(&self, size: ImageSize) -> u32 {
        // Larger tiles never make more of them, and one as large as the picture makes one.
        let (mut low, mut high) = (0, size.width.max(size.height).max(1));
        while high - low > 1 {
            let side = low + (high - low) / 2;
            let tile = ImageSize::new(side, side);
            match (Self { tile, ..*self }).count(size) <= MAX_VIEWS {
                true => high = side,
                false => low = side,
            }
        }
        high
    }
}

/// One direction of a tiling.
#[derive(Debug, Clone, Copy)]
struct Axis {
    len: u32,
    tile: u32,
    /// What neighbours share at least.
    shared: u32,
    count: u64,
}

impl Axis {
    /// Where the tile with this number begins, and how long it is.
    fn span(&self, number: u64) -> (u32, u32) {
        let last = u64::from(self.len - self.tile);
        // Even steps: none is longer than a tile less the overlap.
        let start = (last * number)
            .checked_div(self.count - 1)
            .unwrap_or_default();
        // It is no more than the last one's.
        (start as u32, self.tile)
    }

    /// An object no longer than this is seen whole by some tile, with a margin.
    fn sure(&self) -> f32 {
        match self.count {
            1 => f32::INFINITY,
            _ => (self.shared as f32 - 2.0 * margin(self.tile)).max(0.0),
        }
    }
}

fn margin(side: u32) -> f32 {
    (side as f32 * MARGIN).max(1.0)
}

// === impl View ===

impl View {
    /// All of `part`; none of its edges cuts anything.
    fn all_of(part: PixelRect) -> Self {
        let far = f32::INFINITY;
        Self {
            part,
            inner: BoundingBox::new(-far, -far, far, far),
            coarse: (0.0, 0.0),
        }
    }

    /// A tile of `whole`.
    fn tile(part: PixelRect, whole: PixelRect) -> Self {
        let (x, y) = (margin(part.size.width), margin(part.size.height));
        let (own, all) = (BoundingBox::of(part), BoundingBox::of(whole));
        let far = f32::INFINITY;
        let low = |own: f32, all: f32, margin: f32| if own > all { own + margin } else { -far };
        let high = |own: f32, all: f32, margin: f32| if own < all { own - margin } else { far };
        Self {
            part,
            inner: BoundingBox {
                x_min: low(own.x_min, all.x_min, x),
                y_min: low(own.y_min, all.y_min, y),
                x_max: high(own.x_max, all.x_max, x),
                y_max: high(own.y_max, all.y_max, y),
            },
            coarse: (0.0, 0.0),
        }
    }

    /// How well the view sees the object of a box that was found in it, in the picture's pixels.
    pub fn sight(&self, bbox: &BoundingBox) -> Sight {
        let cut = bbox.x_min <= self.inner.x_min
            || bbox.y_min <= self.inner.y_min
            || bbox.x_max >= self.inner.x_max
            || bbox.y_max >= self.inner.y_max;
        if cut {
            Sight::Piece
        } else if bbox.width() <= self.coarse.0 && bbox.height() <= self.coarse.1 {
            Sight::Coarse
        } else {
            Sight::Whole
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn square(side: u32, overlap: f32) -> Tiling {
        Tiling {
            tile: ImageSize::new(side, side),
            overlap,
        }
    }

    fn views(tiling: Tiling, width: u32, height: u32) -> Vec<PixelRect> {
        let whole = PixelRect::whole(ImageSize::new(width, height));
        let views = tiling.views(whole).unwrap();
        views.into_iter().map(|view| view.part).collect()
    }

    fn rect(left: u32, top: u32, width: u32, height: u32) -> PixelRect {
        PixelRect {
            left,
            top,
            size: ImageSize::new(width, height),
        }
    }

    #[test]
    fn a_picture_is_seen_whole_and_then_in_tiles_row_by_row() {
        assert_eq!(
            views(square(10, 0.2), 26, 18),
            [
                rect(0, 0, 26, 18),
                rect(0, 0, 10, 10),
                rect(8, 0, 10, 10),
                rect(16, 0, 10, 10),
                rect(0, 8, 10, 10),
                rect(8, 8, 10, 10),
                rect(16, 8, 10, 10),
            ]
        );
    }

    #[test]
    fn a_picture_no_larger_than_a_tile_is_seen_once() {
        for (width, height) in [(10, 10), (1, 1), (9, 10)] {
            let seen = views(square(10, 0.5), width, height);
            assert_eq!(seen, [rect(0, 0, width, height)]);
        }
        // One that is lower than a tile is cut along its width alone.
        let low = views(square(10, 0.0), 20, 4);
        assert_eq!(low[1..], [rect(0, 0, 10, 4), rect(10, 0, 10, 4)]);
    }

    #[test]
    fn a_part_is_cut_where_it_lies() {
        let part = rect(100, 50, 20, 10);
        let views = square(10, 0.0).views(part).unwrap();
        let parts: Vec<PixelRect> = views.iter().map(|view| view.part).collect();
        assert_eq!(parts, [part, rect(100, 50, 10, 10), rect(110, 50, 10, 10)]);
    }

    #[test]
    fn too_many_tiles_are_refused_with_a_size_that_would_do() {
        let tiling = square(64, 0.2);
        let size = ImageSize::new(4_000, 3_000);
        let error = tiling.views(PixelRect::whole(size)).unwrap_err();
        assert_eq!(error.count, 4_467);
        assert!(square(error.enough, 0.2).count(size) <= MAX_VIEWS);
        assert!(square(error.enough - 1, 0.2).count(size) > MAX_VIEWS);
        let text = error.to_string();
        assert!(text.contains("64x64") && text.contains(&error.enough.to_string()));
        // The largest of all, by the pixel.
        let huge = ImageSize::new(65_535, 65_535);
        let error = square(1, 0.9).views(PixelRect::whole(huge)).unwrap_err();
        assert_eq!(error.count, 1 + huge.pixels());
    }

    #[test]
    fn the_usual_pictures_and_tiles_are_within_the_limit() {
        let usual = square(416, 0.2);
        assert_eq!(usual.count(ImageSize::new(4_000, 3_000)), 109);
        assert!(usual.count(ImageSize::new(8_165, 6_123)) <= MAX_VIEWS / 2);
    }

    #[test]
    fn a_box_at_an_inner_border_is_a_piece_and_one_at_the_pictures_edge_is_not() {
        let views = square(64, 0.25).views(rect(0, 0, 112, 64)).unwrap();
        let [all, left, right] = &views[..] else {
            panic!("{views:?}");
        };
        let at = |x_min, x_max| BoundingBox::new(x_min, 0.0, x_max, 64.0);
        assert_eq!(left.sight(&at(0.0, 62.0)), Sight::Whole);
        assert_eq!(left.sight(&at(40.0, 63.5)), Sight::Piece);
        assert_eq!(right.sight(&at(50.0, 112.0)), Sight::Whole);
        assert_eq!(right.sight(&at(48.0, 70.0)), Sight::Piece);
        // What the view of all may have missed the details of: smaller than what any two tiles share.
        assert_eq!(all.sight(&at(40.0, 60.0)), Sight::Whole);
        assert_eq!(all.sight(&at(40.0, 52.0)), Sight::Coarse);
    }

    fn any_tiling() -> impl Strategy<Value = (Tiling, PixelRect)> {
        let tile = (1..90u32, 1..90u32).prop_map(|(width, height)| ImageSize { width, height });
        let part = (0..50u32, 0..50u32, 1..400u32, 1..400u32)
            .prop_map(|(left, top, width, height)| rect(left, top, width, height));
        (tile, 0.0..=MAX_OVERLAP, part)
            .prop_map(|(tile, overlap, part)| (Tiling { tile, overlap }, part))
    }

    fn inside(inner: PixelRect, outer: PixelRect) -> bool {
        inner.left >= outer.left
            && inner.top >= outer.top
            && inner.left + inner.size.width <= outer.left + outer.size.width
            && inner.top + inner.size.height <= outer.top + outer.size.height
            && !inner.size.is_empty()
    }

    proptest! {
        #[test]
        fn tiles_lie_inside_in_order_of_one_size_and_as_many_as_counted((tiling, part) in any_tiling()) {
            let count = tiling.count(part.size);
            let Ok(views) = tiling.views(part) else {
                prop_assert!(count > MAX_VIEWS);
                return Ok(());
            };
            prop_assert_eq!(views.len() as u64, count);
            prop_assert_eq!(views[0].part, part);
            let size = ImageSize {
                width: tiling.tile.width.min(part.size.width),
                height: tiling.tile.height.min(part.size.height),
            };
            for view in &views[1..] {
                prop_assert!(inside(view.part, part));
                prop_assert_eq!(view.part.size, size);
            }
            let rank = |view: &View| (view.part.top, view.part.left);
            prop_assert!(views[1..].is_sorted_by(|a, b| rank(a) < rank(b)));
        }

        #[test]
        fn whatever_is_no_larger_than_the_overlap_lies_in_some_tile_whole(
            (tiling, part) in any_tiling(),
            (x, y, width, height) in (0.0..1.0f64, 0.0..1.0f64, 0.0..1.0f64, 0.0..1.0f64),
        ) {
            let Ok(views) = tiling.views(part) else { return Ok(()) };
            // At least a pixel: so this is that every pixel is covered, too.
            let length = |tile: u32, all: u32, share: f64| {
                let most = (f64::from(tile) * f64::from(tiling.overlap)) as u32;
                1 + (f64::from(most.clamp(1, all) - 1) * share) as u32
            };
            let size = ImageSize {
                width: length(tiling.tile.width, part.size.width, width),
                height: length(tiling.tile.height, part.size.height, height),
            };
            let object = PixelRect {
                left: part.left + (f64::from(part.size.width - size.width) * x) as u32,
                top: part.top + (f64::from(part.size.height - size.height) * y) as u32,
                size,
            };
            let tiles = if views.len() > 1 { &views[1..] } else { &views[..] };
            prop_assert!(tiles.iter().any(|view| inside(object, view.part)));
        }

        #[test]
        fn what_the_view_of_all_leaves_to_the_tiles_is_seen_whole_by_one(
            (tiling, part) in any_tiling(),
            (x, y, width, height) in (0.0..1.0f32, 0.0..1.0f32, 0.01..1.0f32, 0.01..1.0f32),
        ) {
            let Ok(views) = tiling.views(part) else { return Ok(()) };
            let all = BoundingBox::of(part);
            let (width, height) = (width * all.width() / 4.0, height * all.height() / 4.0);
            let x = all.x_min + x * (all.width() - width);
            let y = all.y_min + y * (all.height() - height);
            let object = BoundingBox::new(x, y, x + width, y + height);
            let whole = |view: &View| {
                let within = object.clip_to(&BoundingBox::of(view.part)) == Some(object);
                within && view.sight(&object) == Sight::Whole
            };
            prop_assert!(views.iter().any(whole));
        }
    }
}
