//! Boxes and labels on a copy of a picture, for people to look at.
//!
//! Lines and letters grow with the picture. Whatever reaches over an edge is cut there. The letters are
//! those of DejaVu Sans Bold (its licence lies beside the font): `draw/DejaVuSans-Bold-Latin1.ttf` is version
//! 2.37 cut down to Latin-1 by fonttools 4.68.0,
//!
//! ```text
//! pyftsubset DejaVuSans-Bold.ttf --unicodes=U+0020-007E,U+00A0-00FF --no-hinting --layout-features=''
//! ```
//!
//! Letters beyond Latin-1 are drawn as a question mark.

mod canvas;
mod text;

use image::ExtendedColorType;
use image::codecs::jpeg::JpegEncoder;

use super::bbox::BoundingBox;
use super::picture::Picture;
use canvas::{Canvas, Rect};
use text::Lettering;

/// A box to draw.
#[derive(Debug, Clone, PartialEq)]
pub struct Annotation {
    /// Where, in pixels of the picture.
    pub bbox: BoundingBox,
    /// What to write at it, such as `person 0.87`; empty for a box without a plate.
    pub label: String,
    /// Which colour: those of a short list, over and over. Usually the class.
    pub color_index: usize,
}

/// Why a picture could not be encoded.
#[derive(Debug, thiserror::Error)]
#[error("the picture could not be encoded as JPEG: {0}")]
pub struct EncodeError(#[from] image::ImageError);

/// The colours of boxes: far apart from one another, and bright enough for most photos.
const PALETTE: [[u8; 3]; 16] = [
    [230, 25, 75],
    [60, 180, 75],
    [255, 225, 25],
    [0, 130, 200],
    [245, 130, 48],
    [145, 30, 180],
    [70, 240, 240],
    [240, 50, 230],
    [210, 245, 60],
    [250, 190, 212],
    [0, 128, 128],
    [220, 190, 255],
    [170, 110, 40],
    [170, 255, 195],
    [128, 0, 0],
    [0, 0, 160],
];

/// Returns a copy of `picture` with `boxes` drawn on it, the first lowest.
///
/// A box that lies outside the picture, or whose edges are not numbers, is left out.
pub fn annotate(picture: &Picture, boxes: &[Annotation]) -> Picture {
    let size = picture.size();
    // One part in 300 of the shorter side: 2 pixels up to 750, 3 at 1080, 7 at 2160.
    let thickness = (size.width.min(size.height) as f32 / 300.0)
        .round()
        .max(2.0) as i32;
    let lettering = Lettering::of_height(6.5 * thickness as f32);
    let mut canvas = Canvas::new(picture.clone());

    let visible = || {
        boxes
            .iter()
            .filter_map(|one| Some((one, one.bbox.clip(size)?)))
    };
    for (one, bbox) in visible() {
        canvas.outline(Rect::around(&bbox), thickness, color(one));
    }
    // Above all boxes, so that each can be read.
    for (one, bbox) in visible() {
        if !one.label.is_empty() {
            let place = Rect::around(&bbox);
            canvas.label(place, thickness, color(one), &lettering, &one.label);
        }
    }
    canvas.into_picture()
}

/// Encodes a picture as JPEG; `quality` is from 1 to 100, and what lies beyond counts as the nearest.
///
/// # Errors
/// [`EncodeError`] when the encoder refuses it.
pub fn encode_jpeg(picture: &Picture, quality: u8) -> Result<Vec<u8>, EncodeError> {
    let size = picture.size();
    let mut bytes = Vec::new();
    JpegEncoder::new_with_quality(&mut bytes, quality.clamp(1, 100)).encode(
        picture.pixels(),
        size.width,
        size.height,
        ExtendedColorType::Rgb8,
    )?;
    Ok(bytes)
}

fn color(annotation: &Annotation) -> [u8; 3] {
    PALETTE[annotation.color_index % PALETTE.len()]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::decode::{DecodeLimits, decode};
    use super::super::image_size::ImageSize;
    use super::*;

    fn gray(width: u32, height: u32) -> Picture {
        let size = ImageSize::new(width, height);
        Picture::from_rgb8(size, vec![90; size.pixels() as usize * 3]).unwrap()
    }

    fn annotation(bbox: [f32; 4], label: &str) -> Annotation {
        let [x_min, y_min, x_max, y_max] = bbox;
        Annotation {
            bbox: BoundingBox::new(x_min, y_min, x_max, y_max),
            label: label.to_owned(),
            color_index: 0,
        }
    }

    fn pixel(picture: &Picture, x: u32, y: u32) -> [u8; 3] {
        let at = (y * picture.size().width + x) as usize * 3;
        picture.pixels()[at..at + 3].try_into().unwrap()
    }

    #[test]
    fn a_box_is_drawn_on_its_edges_and_nowhere_else() {
        let drawn = annotate(&gray(100, 80), &[annotation([20.0, 30.0, 60.0, 70.0], "")]);
        for (x, y) in [(20, 30), (59, 30), (20, 69), (59, 69), (40, 31), (21, 50)] {
            assert_eq!(pixel(&drawn, x, y), PALETTE[0], "{x} {y}");
        }
        for (x, y) in [(19, 30), (60, 50), (40, 50), (22, 32), (40, 70)] {
            assert_eq!(pixel(&drawn, x, y), [90; 3], "{x} {y}");
        }
    }

    #[test]
    fn a_label_is_written_in_a_plate_above_the_box_or_inside_where_there_is_no_room() {
        for (top, plate) in [(60.0, 50), (0.0, 8)] {
            let box_there = annotation([20.0, top, 180.0, 150.0], "Person 0.87");
            let drawn = annotate(&gray(200, 160), &[box_there]);
            let row = (0..200).map(|x| pixel(&drawn, x, plate));
            let plate_pixels = row.clone().filter(|color| *color == PALETTE[0]).count();
            let letter_pixels = row
                .filter(|color| *color != PALETTE[0] && *color != [90; 3])
                .count();
            assert!(plate_pixels > 20, "{plate_pixels}");
            assert!(letter_pixels > 10, "{letter_pixels}");
        }
    }

    #[test]
    fn letters_beyond_the_font_do_no_harm() {
        let text = "Größe ½ \u{65e5}\u{672c} \u{1f600}\n\t";
        let drawn = annotate(
            &gray(300, 100),
            &[annotation([5.0, 40.0, 90.0, 90.0], text)],
        );
        assert_ne!(drawn, gray(300, 100));
    }

    #[test]
    fn boxes_that_are_not_there_leave_the_picture_alone() {
        let drawn = annotate(
            &gray(50, 50),
            &[
                annotation([60.0, 60.0, 90.0, 90.0], "outside"),
                annotation([f32::NAN, 0.0, 9.0, 9.0], "nan"),
                annotation([30.0, 30.0, 10.0, 10.0], "reversed"),
            ],
        );
        assert_eq!(drawn, gray(50, 50));
    }

    #[test]
    fn an_encoded_picture_decodes_to_nearly_the_same() {
        let picture = gray(33, 17);
        for quality in [0, 50, 255] {
            let bytes = encode_jpeg(&picture, quality).unwrap();
            let decoded = decode(&bytes, &DecodeLimits::default()).unwrap();
            assert_eq!(decoded.size(), picture.size());
            assert!(decoded.pixels().iter().all(|value| value.abs_diff(90) < 20));
        }
    }

    proptest! {
        #[test]
        fn nothing_that_is_drawn_panics_or_moves_the_size(
            (width, height) in (1u32..60, 1u32..60),
            edges in prop::array::uniform4(prop_oneof![
                -100.0f32..160.0,
                Just(f32::INFINITY),
                Just(f32::NEG_INFINITY),
                Just(f32::NAN),
                Just(f32::MAX),
            ]),
            label in ".{0,40}",
        ) {
            let drawn = annotate(&gray(width, height), &[annotation(edges, &label)]);
            prop_assert_eq!(drawn.size(), ImageSize::new(width, height));
        }
    }
}
