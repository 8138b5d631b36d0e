//! Decoding, against golden pictures and pictures made wrong.

mod formats;
mod jpeg;

use std::io::Cursor;
use std::path::Path;

use image::codecs::png::PngEncoder;
use image::{ExtendedColorType, ImageEncoder};
use proptest::prelude::*;

use super::super::draw::encode_jpeg;
use super::*;

fn golden(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/vision");
    std::fs::read(folder.join(name)).unwrap()
}

fn decode_any(bytes: &[u8]) -> Result<Picture, DecodeError> {
    decode(bytes, &DecodeLimits::default())
}

/// A picture with detail everywhere, so that all of its scan data matters.
fn noisy(width: u32, height: u32) -> Picture {
    let size = ImageSize::new(width, height);
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    let pixels = (0..size.pixels() * 3).map(|_| next()).collect();
    Picture::from_rgb8(size, pixels).unwrap()
}

fn encode_png(picture: &Picture) -> Vec<u8> {
    let mut bytes = Vec::new();
    let size = picture.size();
    PngEncoder::new(Cursor::new(&mut bytes))
        .write_image(
            picture.pixels(),
            size.width,
            size.height,
            ExtendedColorType::Rgb8,
        )
        .unwrap();
    bytes
}

/// Changes the size in a header and leaves all else.
fn with_size(bytes: &[u8], width: u32, height: u32) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if bytes.starts_with(b"\x89PNG") {
        bytes[16..20].copy_from_slice(&width.to_be_bytes());
        bytes[20..24].copy_from_slice(&height.to_be_bytes());
        return bytes;
    }
    let frame = bytes
        .windows(4)
        .position(|window| matches!(window, [0xff, 0xc0 | 0xc2, 0, 11 | 17 | 20]))
        .unwrap();
    bytes[frame + 5..frame + 7].copy_from_slice(&(height as u16).to_be_bytes());
    bytes[frame + 7..frame + 9].copy_from_slice(&(width as u16).to_be_bytes());
    bytes
}

#[test]
fn no_bytes_are_told_from_wrong_ones() {
    assert_eq!(decode_any(b""), Err(DecodeError::Empty));
    assert!(matches!(
        decode_any(b"%PDF-1.7"),
        Err(DecodeError::UnsupportedFormat { hint }) if hint.contains("PDF")
    ));
}

#[test]
fn a_png_is_refused_at_each_length_short_of_its_pixels() {
    for bytes in [
        golden("exif6.png"),
        golden("rgba16.png"),
        encode_png(&noisy(20, 20)),
    ] {
        // the end chunk, and the checksum of the last pixels before it
        let rest = 12 + 4;
        for len in 8..bytes.len() - rest {
            let cut = decode_any(&bytes[..len]);
            assert_eq!(cut, Err(DecodeError::Truncated), "{len} of {}", bytes.len());
        }
    }
}

#[test]
fn a_header_alone_is_refused_for_its_size_before_anything_else() {
    let limits = DecodeLimits { max_pixels: 999 };
    for name in ["exif1.jpg", "progressive.jpg", "exif1.png", "gray16.png"] {
        for (width, height) in [(40, 25), (1000, 1), (60_000, 60_000), (1, 1000)] {
            let bytes = with_size(&golden(name), width, height);
            let size = ImageSize::new(width, height);
            let refused = DecodeError::TooLarge {
                size,
                max_pixels: 999,
            };
            assert_eq!(decode(&bytes, &limits), Err(refused), "{name}");
        }
        for (width, height) in [(0, 25), (40, 0)] {
            let bytes = with_size(&golden(name), width, height);
            let refused = decode(&bytes, &limits);
            assert!(
                matches!(refused, Err(DecodeError::Corrupt { .. })),
                "{name}"
            );
        }
    }
}

#[test]
fn a_picture_of_just_the_limit_is_decoded() {
    let bytes = golden("exif6.jpg");
    let limits = |max_pixels| DecodeLimits { max_pixels };
    assert!(decode(&bytes, &limits(48 * 32)).is_ok());
    assert!(decode(&bytes, &limits(48 * 32 - 1)).is_err());
}

#[test]
fn a_side_beyond_any_jpegs_is_refused_in_a_png_too() {
    let bytes = with_size(&golden("exif1.png"), 65_536, 1);
    let refused = decode_any(&bytes).unwrap_err();
    let size = ImageSize::new(65_536, 1);
    assert_eq!(refused, DecodeError::SideTooLong { size });
    assert!(
        refused
            .to_string()
            .contains("a side above the limit of 65535")
    );
}

#[test]
fn slivers_are_decoded() {
    for (width, height) in [(60_000, 1), (1, 60_000), (65_535, 1), (1, 1)] {
        let bytes = encode_jpeg(&noisy(width, height), 80).unwrap();
        let size = decode_any(&bytes).unwrap().size();
        assert_eq!(size, ImageSize::new(width, height));
    }
}

#[test]
fn what_follows_the_end_is_ignored() {
    for name in ["sampling420.jpg", "progressive.jpg", "exif6.png"] {
        let bytes = golden(name);
        let padded = [&bytes[..], b"PK\x03\x04 and more \xff\xd8\xff\xc0"].concat();
        assert_eq!(decode_any(&padded), decode_any(&bytes), "{name}");
    }
}

#[test]
fn a_lossless_picture_comes_back_as_it_was() {
    let picture = noisy(31, 7);
    assert_eq!(decode_any(&encode_png(&picture)).unwrap(), picture);
}

proptest! {
    /// No assertion on what comes out: a flipped byte may well be another picture.
    #[test]
    fn damaged_bytes_do_no_harm(
        name in prop::sample::select(vec![
            "exif6.jpg", "progressive.jpg", "cmyk.jpg", "sampling422.jpg", "gray.jpg", "exif6.png",
            "rgba16.png", "palette_transparent.png",
        ]),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = golden(name);
        for (place, value) in damage {
            let at = place.index(bytes.len());
            bytes[at] = value;
        }
        let limits = DecodeLimits { max_pixels: 1 << 20 };
        if let Ok(picture) = decode(&bytes, &limits) {
            prop_assert!(picture.size().pixels() <= limits.max_pixels);
        }
    }
}
