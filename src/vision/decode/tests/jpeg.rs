//! JPEG: cut short, closed all the same, with holes, of kinds that are not decoded.

use super::super::jpeg_header::frame_header;
use super::super::jpeg_scans::Scans;
use super::*;

const END: &[u8] = &[0xff, 0xd9];

/// Cut and closed with an end marker.
fn closed(bytes: &[u8], len: usize) -> Vec<u8> {
    [&bytes[..len], END].concat()
}

fn scans(bytes: &[u8]) -> Scans {
    Scans::of(bytes, &frame_header(bytes).unwrap())
}

fn sequential() -> [Vec<u8>; 7] {
    [
        golden("sampling420.jpg"),
        golden("sampling422.jpg"),
        golden("sampling444.jpg"),
        golden("gray.jpg"),
        golden("cmyk.jpg"),
        golden("restarts.jpg"),
        encode_jpeg(&noisy(40, 40), 90).unwrap(),
    ]
}

#[test]
fn a_sequential_jpeg_is_refused_at_each_length_short_of_its_scan_data() {
    for bytes in sequential() {
        for len in 2..bytes.len() - 2 {
            let cut = decode_any(&bytes[..len]);
            assert_eq!(cut, Err(DecodeError::Truncated), "{len} of {}", bytes.len());
        }
    }
}

#[test]
fn an_end_marker_behind_a_cut_does_not_make_a_sequential_jpeg_whole() {
    for bytes in sequential() {
        let start = scans(&bytes).list[0].start;
        // Of the last few bits none may be missed.
        for len in start..bytes.len() - 2 - 4 {
            let cut = decode_any(&closed(&bytes, len));
            assert_eq!(cut, Err(DecodeError::Truncated), "{len} of {}", bytes.len());
        }
    }
}

#[test]
fn an_end_marker_behind_a_cut_does_not_make_a_progressive_jpeg_whole() {
    let bytes = golden("progressive.jpg");
    let scans = scans(&bytes).list;
    let mut refused = 0;
    for len in 2..bytes.len() - 2 {
        if decode_any(&closed(&bytes, len)).is_err() {
            refused += 1;
            continue;
        }
        // A scan less is a legal file. How much was looked at ahead is not known to the byte.
        let last = scans.iter().rfind(|scan| scan.start <= len).unwrap();
        assert!(last.end < len + 10, "{len}: {last:?}");
        assert_ne!(last.start, scans[0].start);
    }
    assert!(refused > bytes.len() * 3 / 4, "{refused}");
}

#[test]
fn a_hole_that_leaves_too_few_blocks_is_refused() {
    let noisy = noisy(200, 200);
    for bytes in [encode_jpeg(&noisy, 90).unwrap(), golden("sampling420.jpg")] {
        let part = |percent: usize| bytes.len() * percent / 100;
        let holed = [&bytes[..part(60)], &bytes[part(70)..]].concat();
        assert_eq!(decode_any(&holed), Err(DecodeError::Truncated));
    }
}

#[test]
fn a_missing_restart_interval_is_refused() {
    let bytes = golden("restarts.jpg");
    let is_restart = |pair: &[u8]| pair[0] == 0xff && matches!(pair[1], 0xd0..=0xd7);
    let mut restarts = (0..bytes.len() - 1).filter(|&at| is_restart(&bytes[at..at + 2]));
    let (first, second) = (restarts.next().unwrap(), restarts.next().unwrap());
    let without = [&bytes[..first], &bytes[second..]].concat();
    assert_eq!(decode_any(&without), Err(DecodeError::Truncated));
    // Shorter by some bytes, an interval ends at a marker that comes too early.
    let shorter = [&bytes[..second - 20], &bytes[second..]].concat();
    assert!(decode_any(&shorter).is_err());
}

#[test]
fn a_jpeg_that_lacks_its_end_marker_alone_is_whole() {
    let progressive = [golden("progressive.jpg")];
    for bytes in sequential().into_iter().chain(progressive) {
        let whole = decode_any(&bytes).unwrap();
        for len in [bytes.len() - 2, bytes.len() - 1] {
            assert_eq!(decode_any(&bytes[..len]).as_ref(), Ok(&whole), "{len}");
        }
    }
}

#[test]
fn a_progressive_jpeg_is_refused_at_each_length_short_of_its_scan_data() {
    let bytes = golden("progressive.jpg");
    for len in 2..bytes.len() - 2 {
        let cut = decode_any(&bytes[..len]);
        assert_eq!(cut, Err(DecodeError::Truncated), "{len} of {}", bytes.len());
    }
}

#[test]
fn a_sequential_jpeg_in_several_scans_is_named() {
    let bytes = golden("sampling420.jpg");
    let at = bytes
        .windows(2)
        .position(|pair| pair == [0xff, 0xda])
        .unwrap();
    let of_one = [0xff, 0xda, 0, 8, 1, 1, 0, 0, 63, 0];
    let first = [&bytes[..at], &of_one, &bytes[at + 14..]].concat();
    assert!(matches!(
        decode_any(&first),
        Err(DecodeError::UnsupportedFormat { hint }) if hint.contains("several scans")
    ));
}

#[test]
fn the_decoders_words_come_without_quotation_marks() {
    let bytes = golden("sampling420.jpg");
    let mut corrupt = 0;
    for at in 2..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x5a;
        if let Err(DecodeError::Corrupt { detail }) = decode_any(&damaged) {
            assert!(!detail.contains('"'), "{detail}");
            corrupt += 1;
        }
    }
    assert!(corrupt > 0);
}

#[test]
fn garbage_between_a_jpegs_segments_is_passed_over() {
    let bytes = golden("sampling420.jpg");
    let padded = [&bytes[..2], &[0u8; 64], &bytes[2..]].concat();
    assert_eq!(decode_any(&padded), decode_any(&bytes));
}

#[test]
fn kinds_of_jpeg_that_are_not_decoded_are_named() {
    let bytes = golden("sampling420.jpg");
    let frame = bytes
        .windows(2)
        .position(|pair| pair == [0xff, 0xc0])
        .unwrap();
    for (process, name) in [
        (0xc9, "arithmetic"),
        (0xc3, "lossless"),
        (0xc5, "hierarchical"),
    ] {
        let mut other = bytes.clone();
        other[frame + 1] = process;
        assert!(matches!(
            decode_any(&other),
            Err(DecodeError::UnsupportedFormat { hint }) if hint.contains(name)
        ));
    }
    let mut deep = bytes;
    deep[frame + 4] = 12;
    assert!(matches!(
        decode_any(&deep),
        Err(DecodeError::UnsupportedFormat { hint }) if hint.contains("12-bit")
    ));
}

#[test]
fn subsampling_that_no_camera_makes_is_refused_by_name() {
    let usual = encode_jpeg(&noisy(45, 29), 90).unwrap();
    assert!(decode_any(&usual).is_ok());
    let frame = usual
        .windows(2)
        .position(|pair| pair == [0xff, 0xc0])
        .unwrap();
    // Behind marker, length, precision, sides and count: the factors of the three components.
    let factors = [frame + 11, frame + 14, frame + 17];
    for unusual in [
        [0x11, 0x13, 0x41],
        [0x11, 0x22, 0x11],
        [0x31, 0x21, 0x11],
        [0x11, 0x01, 0x11],
    ] {
        let mut bytes = usual.clone();
        for (at, factor) in factors.into_iter().zip(unusual) {
            bytes[at] = factor;
        }
        let refused = decode_any(&bytes);
        let told = matches!(refused, Err(DecodeError::UnsupportedFormat { hint }) if hint.contains("subsampling"));
        assert!(told, "{unusual:x?}: {refused:?}");
    }
}

#[test]
fn a_decoder_that_panics_has_met_a_corrupt_picture() {
    let outcome = contained(|| panic!("on purpose"));
    assert_eq!(outcome, Err(DecodeError::DecoderPanicked));
}
