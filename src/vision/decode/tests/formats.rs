//! WebP, GIF, BMP and animated PNG: cut short, lying about their sizes, asking for more than they show.

use super::*;

fn case(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/cases");
    std::fs::read(folder.join(name)).unwrap()
}

fn patched(bytes: &[u8], at: usize, new: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at..at + new.len()].copy_from_slice(new);
    bytes
}

fn find(bytes: &[u8], word: &[u8]) -> usize {
    let found = bytes.windows(word.len()).position(|window| window == word);
    found.unwrap()
}

fn is_corrupt(bytes: &[u8]) -> bool {
    matches!(decode_any(bytes), Err(DecodeError::Corrupt { .. }))
}

fn is_too_large(bytes: &[u8]) -> bool {
    matches!(decode_any(bytes), Err(DecodeError::TooLarge { .. }))
}

/// A chunk of a WebP, padded.
fn chunk(name: &[u8; 4], content: &[u8]) -> Vec<u8> {
    let len = (content.len() as u32).to_le_bytes();
    let padding = &[0][..content.len() % 2];
    [name, &len[..], content, padding].concat()
}

fn webp(chunks: &[Vec<u8>]) -> Vec<u8> {
    let content = [b"WEBP".to_vec(), chunks.concat()].concat();
    chunk(b"RIFF", &content)
}

fn three_bytes(number: u32) -> [u8; 3] {
    let [a, b, c, _] = number.to_le_bytes();
    [a, b, c]
}

/// The header of a WebP that has more than a bitstream.
fn extended(flags: u8, width: u32, height: u32) -> Vec<u8> {
    let sides = [three_bytes(width - 1), three_bytes(height - 1)].concat();
    chunk(b"VP8X", &[&[flags, 0, 0, 0][..], &sides].concat())
}

fn frame(left: u32, top: u32, width: u32, height: u32, bitstream: &[u8]) -> Vec<u8> {
    let fields = [left / 2, top / 2, width - 1, height - 1, 90].map(three_bytes);
    chunk(b"ANMF", &[&fields.concat()[..], &[0], bitstream].concat())
}

/// The chunk with the picture of a simple WebP.
fn bitstream(webp: &[u8]) -> Vec<u8> {
    let len = u32::from_le_bytes(*webp[16..].first_chunk().unwrap()) as usize;
    webp[12..(20 + len).next_multiple_of(2)].to_vec()
}

#[test]
fn a_webp_is_refused_at_each_length_short_of_its_end() {
    for name in [
        "exif1_lossy.webp",
        "exif6_lossless.webp",
        "alpha_lossy.webp",
        "animated.webp",
        "animated_larger_canvas.webp",
    ] {
        let bytes = case(name);
        for len in 12..bytes.len() - 1 {
            let cut = decode_any(&bytes[..len]);
            assert_eq!(cut, Err(DecodeError::Truncated), "{len} of {name}");
        }
    }
}

#[test]
fn a_gif_is_refused_at_each_length_short_of_its_first_frame() {
    for name in ["animated.gif", "interlaced.gif"] {
        let bytes = case(name);
        let whole = decode_any(&bytes).unwrap();
        let enough = (6..bytes.len())
            .find(|len| decode_any(&bytes[..*len]).is_ok())
            .unwrap();
        for len in 6..enough {
            let cut = decode_any(&bytes[..len]);
            assert_eq!(cut, Err(DecodeError::Truncated), "{len} of {name}");
        }
        for len in enough..bytes.len() {
            let cut = decode_any(&bytes[..len]);
            assert_eq!(cut.as_ref(), Ok(&whole), "{len} of {name}");
        }
    }
}

#[test]
fn a_bmp_is_refused_at_each_length_short_of_its_end() {
    // Fewer bytes are not known to be a BMP's.
    const KNOWN: usize = 18;
    for name in ["rgb24.bmp", "palette.bmp", "bits1.bmp", "rgba32.bmp"] {
        let bytes = case(name);
        for len in KNOWN..bytes.len() {
            let cut = decode_any(&bytes[..len]);
            assert_eq!(cut, Err(DecodeError::Truncated), "{len} of {name}");
        }
    }
}

#[test]
fn what_follows_the_end_of_other_formats_is_ignored() {
    for name in ["exif6_lossy.webp", "animated.gif", "rgb24.bmp"] {
        let bytes = case(name);
        let padded = [&bytes[..], b"PK\x03\x04 and more"].concat();
        assert_eq!(decode_any(&padded), decode_any(&bytes), "{name}");
    }
}

#[test]
fn a_frame_larger_than_its_canvas_does_not_pass_by_the_limit() {
    // A bitstream of 16383 x 16383 on a canvas of 4 x 4, still and animated.
    let bomb = bitstream(&case("bomb_16383x16383.webp"));
    assert!(is_too_large(&webp(&[extended(0, 4, 4), bomb.clone()])));
    let animated = [extended(2, 4, 4), frame(0, 0, 4, 4, &bomb)];
    assert!(is_too_large(&webp(&animated)));
    let lossy = inner("exif1_lossy.webp", b"VP8 ");
    let large = patched(&lossy, 14, &[0xff, 0x3f, 0xff, 0x3f]);
    assert!(is_too_large(&webp(&[extended(0, 4, 4), large])));
    assert!(is_too_large(&case("bomb_frame.gif")));
}

/// The chunk with the picture of a WebP that has metadata too.
fn inner(name: &str, kind: &[u8; 4]) -> Vec<u8> {
    let bytes = case(name);
    let at = find(&bytes, kind);
    bitstream(&[&bytes[..12], &bytes[at..]].concat())
}

#[test]
fn a_canvas_is_limited_as_a_frame_is() {
    let small = bitstream(&case("bomb_16383x16383.webp"));
    let small = patched(&small, 9, &[0, 0, 0, 0]);
    assert!(decode_any(&webp(std::slice::from_ref(&small))).is_ok());
    assert!(is_too_large(&webp(&[
        extended(2, 1 << 24, 1 << 24),
        frame(0, 0, 1, 1, &small)
    ])));
    assert!(is_too_large(&case("bomb_65535x65535.gif")));
}

#[test]
fn sizes_that_disagree_are_corrupt() {
    let (lossless, size) = (inner("exif1_lossless.webp", b"VP8L"), (48, 32));
    let animated =
        |x, y, width, height| webp(&[extended(2, 60, 50), frame(x, y, width, height, &lossless)]);
    assert!(decode_any(&animated(12, 18, size.0, size.1)).is_ok());
    assert!(is_corrupt(&animated(0, 0, size.0 - 1, size.1)));
    assert!(is_corrupt(&animated(14, 0, size.0, size.1)));
    assert!(is_corrupt(&animated(0, 20, size.0, size.1)));
    assert!(is_corrupt(&animated(1 << 24, 0, size.0, size.1)));
    assert!(is_corrupt(&webp(&[extended(2, 60, 50)])));
    assert!(is_corrupt(&webp(&[chunk(b"JUNK", b"nothing")])));
}

#[test]
fn a_still_webp_smaller_than_its_canvas_lies_in_its_corner() {
    let lossy = inner("exif1_lossy.webp", b"VP8 ");
    let alone = decode_any(&webp(std::slice::from_ref(&lossy))).unwrap();
    let placed = decode_any(&webp(&[extended(0, 50, 40), lossy])).unwrap();
    assert_eq!(placed.size(), ImageSize::new(50, 40));
    assert_eq!(placed.pixels()[..48 * 3], alone.pixels()[..48 * 3]);
    assert_eq!(placed.pixels()[48 * 3..50 * 3], [0; 6]);
}

#[test]
fn an_animated_pngs_frame_sizes_do_not_matter() {
    let bytes = case("animated.png");
    let control = find(&bytes, b"fcTL");
    for side in [1u32, 47, 100_000, u32::MAX] {
        let mut lying = patched(&bytes, control + 8, &side.to_be_bytes());
        let sum = crc32(&lying[control..control + 30]);
        lying[control + 30..control + 34].copy_from_slice(&sum.to_be_bytes());
        match decode_any(&lying) {
            Ok(picture) => assert_eq!(picture.size(), ImageSize::new(48, 32), "{side}"),
            Err(error) => assert!(
                matches!(error, DecodeError::Corrupt { .. }),
                "{side}: {error}"
            ),
        }
    }
}

/// The checksum of a PNG's chunks.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg())
        })
    })
}

#[test]
fn kinds_of_bmp_that_are_not_decoded_are_named() {
    let bytes = case("rgb24.bmp");
    for (compression, name) in [(4, "JPEG"), (5, "PNG"), (11, "CMYK")] {
        let other = patched(&bytes, 30, &[compression]);
        assert!(matches!(
            decode_any(&other),
            Err(DecodeError::UnsupportedFormat { hint }) if hint.contains(name)
        ));
    }
}

/// Bits as a lossless WebP has them.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    len: usize,
}

impl Bits {
    fn write(&mut self, value: u32, count: usize) {
        for place in 0..count {
            if self.len.is_multiple_of(8) {
                self.bytes.push(0);
            }
            let last = self.bytes.last_mut().unwrap();
            *last |= ((value >> place & 1) as u8) << (self.len % 8);
            self.len += 1;
        }
    }

    /// A code with a single symbol.
    fn write_single(&mut self, symbol: u32) {
        let wide = symbol > 1;
        self.write(1, 1);
        self.write(0, 1);
        self.write(wide.into(), 1);
        self.write(symbol, if wide { 8 } else { 1 });
    }
}

/// A lossless WebP of 4 x 4 pixels in so many groups, each with a code of 2048 symbols of 11 bits.
fn grouped(groups: u32) -> Vec<u8> {
    let mut bits = Bits::default();
    bits.write(0x2f, 8);
    bits.write(3, 14);
    bits.write(3, 14);
    bits.write(0, 4);
    // no transform; a colour cache of 2048 places; groups, told by one pixel's red and green
    bits.write(0, 1);
    bits.write(1, 1);
    bits.write(11, 4);
    bits.write(1, 1);
    bits.write(0, 3);
    bits.write(0, 1);
    bits.write_single((groups - 1) & 0xff);
    bits.write_single((groups - 1) >> 8);
    (0..3).for_each(|_| bits.write_single(0));
    for _ in 0..groups {
        // Of the lengths only 11 occurs, so that each takes no bits at all.
        bits.write(0, 1);
        bits.write(11, 4);
        (0..14).for_each(|_| bits.write(0, 3));
        bits.write(1, 3);
        bits.write(1, 1);
        bits.write(5, 3);
        bits.write(2046, 12);
        (0..4).for_each(|_| bits.write_single(0));
    }
    // the pixels
    (0..16).for_each(|_| bits.write(0, 24));
    webp(&[chunk(b"VP8L", &bits.bytes)])
}

#[test]
fn code_tables_far_beyond_the_picture_are_refused_before_they_are_built() {
    let few = decode_any(&grouped(100)).unwrap();
    assert_eq!(few.size(), ImageSize::new(4, 4));
    // Some 4.5 GB of tables, of 700 kB.
    let refused = decode_any(&grouped(65_536));
    assert!(
        matches!(&refused, Err(DecodeError::Corrupt { detail }) if detail.contains("code tables")),
        "{refused:?}"
    );
}

proptest! {
    /// No assertion on what comes out: a flipped byte may well be another picture.
    #[test]
    fn damaged_bytes_of_other_formats_do_no_harm(
        name in prop::sample::select(vec![
            "exif6_lossy.webp", "exif6_lossless.webp", "alpha_lossy.webp", "animated.webp",
            "animated.gif", "interlaced.gif", "rgb24.bmp", "palette.bmp", "bits1.bmp", "animated.png",
        ]),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = case(name);
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
