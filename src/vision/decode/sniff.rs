//! What bytes are, told from their first few.

/// What the bytes seem to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Jpeg,
    Png,
    WebP,
    Gif,
    Bmp,
    /// Not read here; the words say what it is, as far as it can be told.
    Other(&'static str),
}

/// Formats by their first bytes.
const MAGIC: &[(&[u8], Format)] = &[
    (b"\xff\xd8", Format::Jpeg),
    (b"\x89PNG\r\n\x1a\n", Format::Png),
    (b"GIF87a", Format::Gif),
    (b"GIF89a", Format::Gif),
    (b"II*\0", Format::Other("TIFF; send JPEG or PNG")),
    (b"MM\0*", Format::Other("TIFF; send JPEG or PNG")),
    (b"\0\0\x01\0", Format::Other("ICO; send JPEG or PNG")),
    (
        b"\0\0\0\x0cJXL \r\n\x87\n",
        Format::Other("JPEG XL; send JPEG or PNG"),
    ),
    (b"\xff\x0a", Format::Other("JPEG XL; send JPEG or PNG")),
    (
        b"\0\0\0\x0cjP  \r\n\x87\n",
        Format::Other("JPEG 2000; send JPEG or PNG"),
    ),
    (
        b"\xff\x4f\xff\x51",
        Format::Other("JPEG 2000; send JPEG or PNG"),
    ),
    (b"8BPS", Format::Other("PSD; send JPEG or PNG")),
    (b"%PDF", Format::Other("PDF; send JPEG or PNG")),
    (
        b"\x93NUMPY",
        Format::Other("a numpy array; send its pixels as a raw frame, or JPEG or PNG"),
    ),
    (
        b"\x89HDF\r\n\x1a\n",
        Format::Other("HDF5; send JPEG or PNG, or pixels as a raw frame"),
    ),
    (
        b"PK\x03\x04",
        Format::Other("a ZIP archive, which .npz and .pt files are too"),
    ),
    (b"\x1f\x8b", Format::Other("gzip; send the image itself")),
];

/// Brands of ISO media files (the four bytes behind `ftyp`).
const BRANDS: &[(&[u8; 4], &str)] = &[
    (b"avif", "AVIF; send JPEG or PNG"),
    (b"avis", "AVIF; send JPEG or PNG"),
    (b"heic", "HEIC; send JPEG or PNG"),
    (b"heix", "HEIC; send JPEG or PNG"),
    (b"hevc", "HEIC; send JPEG or PNG"),
    (b"mif1", "HEIF; send JPEG or PNG"),
    (b"msf1", "HEIF; send JPEG or PNG"),
];

/// How much of a text is looked at: enough for its first tag or for telling base64.
const TEXT_PREFIX: usize = 512;

/// Says what `bytes` seem to be.
pub(super) fn sniff(bytes: &[u8]) -> Format {
    let known = MAGIC.iter().find(|(magic, _)| bytes.starts_with(magic));
    if let Some((_, format)) = known {
        return *format;
    }
    if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
        return Format::WebP;
    }
    if is_bmp(bytes) {
        return Format::Bmp;
    }
    if bytes.get(4..8) == Some(b"ftyp") {
        let brand = bytes.get(8..12).unwrap_or_default();
        let known = BRANDS.iter().find(|(name, _)| *name == brand);
        return Format::Other(known.map_or("a video or other ISO media file", |(_, hint)| hint));
    }
    // Protocols 2 to 5 of Python's own format.
    if matches!(bytes, [0x80, 2..=5, ..]) {
        return Format::Other("a Python pickle; send JPEG or PNG, or pixels as a raw frame");
    }
    let hint = text_hint(&bytes[..bytes.len().min(TEXT_PREFIX)]).unwrap_or_else(|| {
        if holds_floats(bytes) {
            "numbers, perhaps a tensor; send JPEG or PNG, or pixels as a raw frame"
        } else {
            "the first bytes are those of no known image format; send JPEG, PNG, WebP, GIF or BMP, or pixels as a raw frame"
        }
    });
    Format::Other(hint)
}

/// Whether these are a BMP's first bytes. Two letters tell little: the length of the second header, one of a
/// few small numbers, has to agree as far as it is there.
fn is_bmp(bytes: &[u8]) -> bool {
    if !bytes.starts_with(b"BM") {
        return false;
    }
    match bytes.get(14..18) {
        Some(&[length, 0, 0, 0]) => (12..=124).contains(&length),
        Some(_) => false,
        None => text_hint(bytes).is_none(),
    }
}

/// Whether the bytes begin with what look like numbers of a tensor: all in the range of pixels, normalised or not.
fn holds_floats(bytes: &[u8]) -> bool {
    const LOOKED_AT: usize = 16;
    let numbers = bytes.as_chunks::<4>().0;
    let looked_at = numbers
        .iter()
        .take(LOOKED_AT)
        .map(|n| f32::from_le_bytes(*n));
    let plausible = |number: f32| number == 0.0 || (1e-6..1e4).contains(&number.abs());
    numbers.len() >= LOOKED_AT
        && looked_at.clone().all(plausible)
        && looked_at.clone().any(|number| number != 0.0)
}

/// Says what a text is that came in a picture's place; `None` when it is not text.
fn text_hint(prefix: &[u8]) -> Option<&'static str> {
    let text = prefix
        .strip_prefix(b"\xef\xbb\xbf")
        .unwrap_or(prefix)
        .trim_ascii_start();
    let is_text = |byte: &u8| *byte >= b' ' || byte.is_ascii_whitespace();
    if text.is_empty() || !text.iter().all(is_text) {
        return None;
    }
    let lower = text.to_ascii_lowercase();
    let holds = |word: &[u8]| lower.windows(word.len()).any(|window| window == word);
    if lower.starts_with(b"data:") {
        return Some("a data URL; send the decoded bytes behind its comma");
    }
    if lower.starts_with(b"http://") || lower.starts_with(b"https://") {
        return Some("a URL; send the image's bytes");
    }
    if lower.starts_with(b"<svg") || (lower.starts_with(b"<") && holds(b"<svg")) {
        return Some("SVG; send JPEG or PNG");
    }
    if lower.starts_with(b"<!doctype html") || lower.starts_with(b"<html") {
        return Some("an HTML page, perhaps an error page that was saved as an image");
    }
    if lower.starts_with(b"<") {
        return Some("XML or HTML text");
    }
    if lower.starts_with(b"{") || lower.starts_with(b"[") {
        return Some("JSON text");
    }
    let is_base64 = |byte: &u8| {
        byte.is_ascii_alphanumeric() || b"+/-_=".contains(byte) || byte.is_ascii_whitespace()
    };
    // A short word is base64 as well; a picture's is longer.
    if text.len() >= 32 && text.iter().all(is_base64) {
        return Some("base64 text; send the decoded bytes");
    }
    // Bytes above 127 are text too, in some encoding: say so only where it is plain.
    text.is_ascii().then_some("text")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(bytes: &[u8]) -> &'static str {
        match sniff(bytes) {
            Format::Other(hint) => hint,
            found => panic!("{found:?}"),
        }
    }

    #[test]
    fn formats_are_named_by_their_first_bytes() {
        assert_eq!(sniff(b"\xff\xd8\xff\xe0"), Format::Jpeg);
        assert_eq!(sniff(b"\x89PNG\r\n\x1a\n...."), Format::Png);
        assert_eq!(sniff(b"GIF89a...."), Format::Gif);
        assert_eq!(sniff(b"RIFF\x10\0\0\0WEBPVP8L"), Format::WebP);
        assert_eq!(sniff(b"BM............\x28\0\0\0"), Format::Bmp);
        assert_eq!(sniff(b"BM\x01\0"), Format::Bmp);
        for (bytes, name) in [
            (&b"\0\0\0\x20ftypavif\0\0\0\0"[..], "AVIF"),
            (b"%PDF-1.7", "PDF"),
            (b"II*\0\x08\0\0\0", "TIFF"),
            (b"\x93NUMPY\x01\0v\0{'descr'", "a numpy array"),
            (b"\x80\x04\x95\0\0", "a Python pickle"),
            (b"\0\0\0\x20ftypheic\0\0\0\0", "HEIC"),
            (b"\0\0\0\x20ftypisom\0\0\0\0", "a video"),
            (b"\0\0\0\x0cJXL \r\n\x87\n....", "JPEG XL"),
        ] {
            assert!(hint(bytes).starts_with(name), "{bytes:?}");
        }
    }

    #[test]
    fn texts_in_a_pictures_place_are_told_apart() {
        for (text, name) in [
            (
                "/9j/4AAQSkZJRgABAQEASABIAAD/2wBDAAMCAgMCAgMDAwMEAwME",
                "base64",
            ),
            (
                "/9j/4AAQSkZJRgABAQEASABIAAD\n2wBDAAMCAgMCAgMDAwMEAwME\r\n",
                "base64",
            ),
            ("data:image/jpeg;base64,/9j/4AAQ", "a data URL"),
            ("https://example.org/cat.jpg", "a URL"),
            ("<?xml version=\"1.0\"?>\n<svg width=\"1\">", "SVG"),
            ("\u{feff}  <SVG>", "SVG"),
            ("<!DOCTYPE html><html>", "an HTML page"),
            ("<?xml version=\"1.0\"?><Error>", "XML"),
            ("{\"error\": 1}", "JSON"),
            ("not found", "text"),
            ("BMI is not a picture", "text"),
        ] {
            assert!(hint(text.as_bytes()).starts_with(name), "{text}");
        }
    }

    #[test]
    fn a_tensor_of_pixels_is_told_from_bytes_that_tell_nothing() {
        let tensor = |scale: f32| -> Vec<u8> {
            (0..48)
                .flat_map(|n| (n as f32 * scale - scale).to_le_bytes())
                .collect()
        };
        assert!(hint(&tensor(1.0)).starts_with("numbers"));
        assert!(hint(&tensor(0.004)).starts_with("numbers"));
        assert!(hint(&[0; 64]).starts_with("the first bytes"));
        let bytes: Vec<u8> = (0..64u8).map(|n| n.wrapping_mul(151) ^ 0xa5).collect();
        assert!(hint(&bytes).starts_with("the first bytes"));
    }

    #[test]
    fn bytes_that_tell_nothing_are_said_to_be_unknown() {
        for bytes in [&b"\0"[..], b"\x01\x02\x03\x04\x05", b"R", b"RIFF", b"    "] {
            let told = hint(bytes);
            assert!(
                told.starts_with("the first bytes") || told == "text",
                "{bytes:?}: {told}"
            );
        }
    }
}
