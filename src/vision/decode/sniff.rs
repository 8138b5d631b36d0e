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

/// What a picture of a format that is not read is answered with.
macro_rules! other {
    ($name:literal) => {
        Format::Other(concat!($name, "; send JPEG, PNG, WebP, GIF or BMP"))
    };
}

/// Formats by their first bytes.
const MAGIC: &[(&[u8], Format)] = &[
    (b"\xff\xd8", Format::Jpeg),
    (b"\x89PNG\r\n\x1a\n", Format::Png),
    (b"GIF87a", Format::Gif),
    (b"GIF89a", Format::Gif),
    (b"II*\0", other!("TIFF")),
    (b"MM\0*", other!("TIFF")),
    (b"II+\0", other!("TIFF")),
    (b"MM\0+", other!("TIFF")),
    (b"\0\0\x01\0", other!("ICO")),
    (b"\0\0\0\x0cJXL \r\n\x87\n", other!("JPEG XL")),
    (b"\xff\x0a", other!("JPEG XL")),
    (b"\0\0\0\x0cjP  \r\n\x87\n", other!("JPEG 2000")),
    (b"\xff\x4f\xff\x51", other!("JPEG 2000")),
    (b"8BPS", other!("PSD")),
    (b"%PDF", other!("PDF")),
    (b"\x7fELF", other!("ELF, a program or a library")),
    (
        b"\x93NUMPY",
        Format::Other(
            "a numpy array; send its pixels as a raw frame, or JPEG, PNG, WebP, GIF or BMP",
        ),
    ),
    (
        b"\x89HDF\r\n\x1a\n",
        Format::Other("HDF5; send JPEG, PNG, WebP, GIF or BMP, or pixels as a raw frame"),
    ),
    (
        b"PK\x03\x04",
        Format::Other(
            "a ZIP archive, which .npz and .pt files are too; send an image that is in it, or pixels as a raw frame",
        ),
    ),
    (b"\x1f\x8b", Format::Other("gzip; send the image itself")),
];

/// Brands of ISO media files (the four bytes behind `ftyp`).
const BRANDS: &[(&[u8; 4], Format)] = &[
    (b"avif", other!("AVIF")),
    (b"avis", other!("AVIF")),
    (b"heic", other!("HEIC")),
    (b"heix", other!("HEIC")),
    (b"heim", other!("HEIC")),
    (b"heis", other!("HEIC")),
    (b"hevc", other!("HEIC")),
    (b"hevx", other!("HEIC")),
    (b"mif1", other!("HEIF")),
    (b"msf1", other!("HEIF")),
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
        let video = Format::Other(
            "a video or other ISO media file; send single pictures: JPEG, PNG, WebP, GIF or BMP",
        );
        return known.map_or(video, |(_, format)| *format);
    }
    if let Some(format) = netpbm(bytes) {
        return format;
    }
    // Protocols 2 to 5 of Python's own format.
    if matches!(bytes, [0x80, 2..=5, ..]) {
        return Format::Other(
            "a Python pickle; send JPEG, PNG, WebP, GIF or BMP, or pixels as a raw frame",
        );
    }
    let hint = text_hint(&bytes[..bytes.len().min(TEXT_PREFIX)]).unwrap_or_else(|| {
        if holds_floats(bytes) {
            "numbers, perhaps a tensor; send JPEG, PNG, WebP, GIF or BMP, or pixels as a raw frame"
        } else {
            "the first bytes are those of no known image format; send JPEG, PNG, WebP, GIF or BMP, or pixels as a raw frame"
        }
    });
    Format::Other(hint)
}

/// The plain formats of netpbm: a letter, a digit, white space.
fn netpbm(bytes: &[u8]) -> Option<Format> {
    match bytes {
        [b'P', digit, space, ..] if space.is_ascii_whitespace() => match digit {
            b'1' | b'4' => Some(other!("PBM")),
            b'2' | b'5' => Some(other!("PGM")),
            b'3' | b'6' => Some(other!("PPM")),
            b'7' => Some(other!("PAM")),
            _ => None,
        },
        _ => None,
    }
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
        return Some("SVG; send it drawn, as JPEG, PNG, WebP, GIF or BMP");
    }
    if lower.starts_with(b"<!doctype html") || lower.starts_with(b"<html") {
        return Some(
            "an HTML page, perhaps an error page that was saved as an image; send the image's bytes",
        );
    }
    if lower.starts_with(b"<") {
        return Some("XML or HTML text; send the bytes of an image");
    }
    if lower.starts_with(b"{") || lower.starts_with(b"[") {
        return Some("JSON text; send the image's bytes as they are, not within JSON");
    }
    let is_base64 = |byte: &u8| {
        byte.is_ascii_alphanumeric() || b"+/-_=".contains(byte) || byte.is_ascii_whitespace()
    };
    if is_path(text) {
        return Some("a file's name; send the bytes of that file");
    }
    // A short word is base64 as well; a picture's is longer.
    if text.len() >= 32 && text.iter().all(is_base64) {
        return Some("base64 text; send the decoded bytes");
    }
    // Bytes above 127 are text too, in some encoding: say so only where it is plain.
    text.is_ascii()
        .then_some("text; send the bytes of an image: JPEG, PNG, WebP, GIF or BMP")
}

/// Whether a text is a path to a picture: one line that ends as such files do.
fn is_path(text: &[u8]) -> bool {
    const ENDINGS: [&[u8]; 7] = [
        b".jpg", b".jpeg", b".png", b".webp", b".gif", b".bmp", b".tif",
    ];
    let line = text.trim_ascii_end().to_ascii_lowercase();
    !line.contains(&b'\n') && ENDINGS.iter().any(|ending| line.ends_with(ending))
}

#[cfg(test)]
mod tests;
