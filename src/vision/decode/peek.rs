//! A picture's size, from its first bytes alone: for estimates, not for refusals.

use super::super::image_size::ImageSize;
use super::{bmp, gif, jpeg_header, png, sniff};

/// How much of a JPEG is looked at: profiles and previews that stand before its header rarely take more.
const JPEG_PREFIX: usize = 1 << 20;

/// The size that a picture's header says, as the picture is stored, in microseconds. `None` where it cannot be told so
/// cheaply, and for what is no picture. Nothing of it is checked: [`super::decode`] may refuse it, or turn it.
pub fn stored_size(bytes: &[u8]) -> Option<ImageSize> {
    match sniff::sniff(bytes) {
        sniff::Format::Jpeg => {
            let prefix = &bytes[..bytes.len().min(JPEG_PREFIX)];
            jpeg_header::frame_header(prefix).map(|frame| frame.size)
        }
        sniff::Format::Png => png::header_size(bytes).ok(),
        sniff::Format::Gif => gif::canvas(bytes).ok(),
        sniff::Format::Bmp => bmp::header_size(bytes).ok(),
        sniff::Format::WebP => webp_size(bytes),
        sniff::Format::Other(_) => None,
    }
}

/// Of the first chunk: the canvas, or the picture itself.
fn webp_size(bytes: &[u8]) -> Option<ImageSize> {
    let content = bytes.get(20..)?;
    match bytes.get(12..16)? {
        b"VP8X" => {
            let side = |at: usize| {
                let &[a, b, c] = content.get(at..)?.first_chunk()?;
                Some(u32::from_le_bytes([a, b, c, 0]) + 1)
            };
            Some(ImageSize::new(side(4)?, side(7)?))
        }
        b"VP8L" => {
            let bits = u32::from_le_bytes(*content.get(1..)?.first_chunk()?);
            let (width, height) = (bits & 0x3fff, bits >> 14 & 0x3fff);
            Some(ImageSize::new(width + 1, height + 1))
        }
        b"VP8 " => {
            let &[w0, w1, h0, h1] = content.get(6..)?.first_chunk()?;
            let side = |bytes| u32::from(u16::from_le_bytes(bytes) & 0x3fff);
            Some(ImageSize::new(side([w0, w1]), side([h0, h1])))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::super::{DecodeLimits, decode};
    use super::*;

    #[test]
    fn what_is_told_from_the_header_is_what_is_decoded_or_its_transpose() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        let mut told = [0; 5];
        for folder in ["vision", "cases"] {
            for entry in std::fs::read_dir(golden.join(folder)).unwrap() {
                let bytes = std::fs::read(entry.unwrap().path()).unwrap();
                let Ok(picture) = decode(&bytes, &DecodeLimits::default()) else {
                    continue;
                };
                let stored = stored_size(&bytes).unwrap();
                assert!([stored, stored.transposed()].contains(&picture.size()));
                let first = [0xff, 0x89, b'R', b'G', b'B'].map(|first| first == bytes[0]);
                let format = first.iter().position(|is| *is).unwrap();
                told[format] += 1;
            }
        }
        assert!(told.iter().all(|count| *count > 0), "{told:?}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_looked_at_without_harm(
            start in prop::sample::select(vec![
                &b"\xff\xd8\xff"[..], b"\x89PNG\r\n\x1a\n", b"GIF89a", b"BM", b"RIFF\0\0\0\0WEBPVP8X",
                b"RIFF\0\0\0\0WEBPVP8L", b"RIFF\0\0\0\0WEBPVP8 ", b"",
            ]),
            rest in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            let _ = stored_size(&[start, &rest[..]].concat());
        }
    }
}
