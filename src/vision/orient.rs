//! Turns and mirrors a picture into its upright position.
//!
//! The orientation is given in the terms of EXIF: what has to be done to the stored rows to see the
//! picture as the camera's user did.

pub use image::metadata::Orientation;

use super::picture::Picture;

/// Pixels on the side of the squares in which a picture is turned on its side. A square's rows, of the
/// picture read and of the one written, stay in the first-level cache: 2 x 32 x 32 x 3 bytes.
const TILE: usize = 32;

/// Applies `orientation` to a picture as it was stored.
///
/// Half turns and mirrorings are done in place; quarter turns need a second picture's memory.
pub fn upright(mut picture: Picture, orientation: Orientation) -> Picture {
    let width = picture.size().width as usize;
    let pixels = picture.pixels_mut().as_chunks_mut::<3>().0;
    match orientation {
        Orientation::NoTransforms => picture,
        Orientation::FlipHorizontal => {
            pixels.chunks_exact_mut(width).for_each(<[_]>::reverse);
            picture
        }
        Orientation::Rotate180 => {
            pixels.reverse();
            picture
        }
        Orientation::FlipVertical => {
            flip_vertical(pixels, width);
            picture
        }
        Orientation::Rotate90FlipH => transpose(&picture, Ends::default()),
        Orientation::Rotate90 => transpose(
            &picture,
            Ends {
                rows: true,
                columns: false,
            },
        ),
        Orientation::Rotate270 => transpose(
            &picture,
            Ends {
                rows: false,
                columns: true,
            },
        ),
        Orientation::Rotate270FlipH => transpose(
            &picture,
            Ends {
                rows: true,
                columns: true,
            },
        ),
    }
}

/// From which end the stored picture is read.
#[derive(Default)]
struct Ends {
    /// From the lowest row up.
    rows: bool,
    /// From the rightmost column leftwards.
    columns: bool,
}

fn flip_vertical(pixels: &mut [[u8; 3]], width: usize) {
    let mut rows = pixels.chunks_exact_mut(width);
    while let (Some(upper), Some(lower)) = (rows.next(), rows.next_back()) {
        upper.swap_with_slice(lower);
    }
}

/// Makes rows of the columns.
fn transpose(stored: &Picture, from_end: Ends) -> Picture {
    let (width, height) = (stored.size().width as usize, stored.size().height as usize);
    let source = stored.pixels().as_chunks::<3>().0;
    let mut turned = vec![0u8; source.len() * 3];
    let target = turned.as_chunks_mut::<3>().0;

    // (x, y) is a place in the upright picture, whose rows are `height` long.
    for y_tile in (0..width).step_by(TILE) {
        for x_tile in (0..height).step_by(TILE) {
            for y in y_tile..(y_tile + TILE).min(width) {
                let column = if from_end.columns { width - 1 - y } else { y };
                let x_end = (x_tile + TILE).min(height);
                let row = &mut target[y * height..][x_tile..x_end];
                for (x, pixel) in (x_tile..x_end).zip(row) {
                    let source_row = if from_end.rows { height - 1 - x } else { x };
                    *pixel = source[source_row * width + column];
                }
            }
        }
    }
    Picture::from_rgb8(stored.size().transposed(), turned)
        .expect("a turned picture has the sides and the pixels of the stored one")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::image_size::ImageSize;
    use super::*;

    fn numbered(width: u32, height: u32) -> Picture {
        let pixels = (0..width * height)
            .flat_map(|n| [n as u8, (n >> 8) as u8, 7])
            .collect();
        Picture::from_rgb8(ImageSize::new(width, height), pixels).unwrap()
    }

    #[test]
    fn each_orientation_puts_the_corner_where_exif_says() {
        // Of a 3x2 picture numbered 0..6, the rows that a viewer must see.
        let expected: [(u8, &[&[u8]]); 8] = [
            (1, &[&[0, 1, 2], &[3, 4, 5]]),
            (2, &[&[2, 1, 0], &[5, 4, 3]]),
            (3, &[&[5, 4, 3], &[2, 1, 0]]),
            (4, &[&[3, 4, 5], &[0, 1, 2]]),
            (5, &[&[0, 3], &[1, 4], &[2, 5]]),
            (6, &[&[3, 0], &[4, 1], &[5, 2]]),
            (7, &[&[5, 2], &[4, 1], &[3, 0]]),
            (8, &[&[2, 5], &[1, 4], &[0, 3]]),
        ];
        for (exif, rows) in expected {
            let orientation = Orientation::from_exif(exif).unwrap();
            let seen = upright(numbered(3, 2), orientation);
            let numbers: Vec<u8> = seen.pixels().iter().copied().step_by(3).collect();
            assert_eq!(seen.size().width as usize, rows[0].len(), "EXIF {exif}");
            assert_eq!(numbers, rows.concat(), "EXIF {exif}");
        }
    }

    proptest! {
        #[test]
        fn four_quarter_turns_lead_back(width in 1u32..80, height in 1u32..80) {
            let start = numbered(width, height);
            let mut turned = start.clone();
            for step in 1..=4 {
                turned = upright(turned, Orientation::Rotate90);
                if step == 2 {
                    prop_assert_eq!(&turned, &upright(start.clone(), Orientation::Rotate180));
                }
            }
            prop_assert_eq!(turned, start);
        }

        #[test]
        fn each_mirroring_undoes_itself(width in 1u32..80, height in 1u32..80, exif in 2u8..8) {
            prop_assume!(exif != 6);
            let orientation = Orientation::from_exif(exif).unwrap();
            let start = numbered(width, height);
            let twice = upright(upright(start.clone(), orientation), orientation);
            prop_assert_eq!(twice, start);
        }
    }
}
