//! What bytes are said to be.

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
        (b"\0\0\0\x0cjP  \r\n\x87\n....", "JPEG 2000"),
        (b"8BPS\0\x01", "PSD"),
        (b"\0\0\x01\0\x01\0", "ICO"),
        (b"\x7fELF\x02\x01\x01", "ELF"),
        (b"P1\n# made\n2 2\n1 0 0 1", "PBM"),
        (b"P5 2 2 255\n....", "PGM"),
        (b"P6\n2 2\n255\n\xff\0\x01", "PPM"),
    ] {
        assert!(hint(bytes).starts_with(name), "{bytes:?}");
    }
}

#[test]
fn every_hint_says_what_to_do() {
    let texts: [&[u8]; 9] = [
        b"text",
        b"/data/photos/cat 1.JPG\n",
        b"{}",
        b"<p>",
        b"<html>",
        b"<svg>",
        b"P6 1 1 255 ...",
        b"\0\0\0\x20ftypisom",
        b"\x02\xfe\xff\xfe",
    ];
    let brands = BRANDS.iter().map(|(_, format)| format);
    let known = MAGIC.iter().map(|(_, format)| format).chain(brands);
    let named = known.filter_map(|format| match format {
        Format::Other(hint) => Some(*hint),
        _ => None,
    });
    for hint in texts.into_iter().map(hint).chain(named) {
        let (found, advice) = hint.split_once("; ").unwrap();
        assert!(!found.is_empty() && advice.starts_with("send "), "{hint}");
    }
    assert!(hint(texts[1]).starts_with("a file's name"));
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
            told.starts_with("the first bytes") || told.starts_with("text;"),
            "{bytes:?}: {told}"
        );
    }
}
