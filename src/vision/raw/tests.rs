//! Raw frames: golden vectors, hostile numbers.

use proptest::prelude::*;
use serde::Deserialize;

use super::super::image_size::ImageSize;
use super::*;

#[derive(Deserialize)]
struct Golden {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    format: String,
    width: u32,
    height: u32,
    strides: Vec<u32>,
    plane_offsets: Vec<u64>,
    color_space: Option<String>,
    data: String,
    rgb: String,
}

const FORMATS: [(&str, PixelFormat); 9] = [
    ("rgb24", PixelFormat::Rgb24),
    ("bgr24", PixelFormat::Bgr24),
    ("rgba32", PixelFormat::Rgba32),
    ("bgra32", PixelFormat::Bgra32),
    ("gray8", PixelFormat::Gray8),
    ("nv12", PixelFormat::Nv12),
    ("i420", PixelFormat::I420),
    ("nv21", PixelFormat::Nv21),
    ("yuyv", PixelFormat::Yuyv),
];

const COLOR_SPACES: [(&str, ColorSpace); 4] = [
    ("bt601_limited", ColorSpace::Bt601Limited),
    ("bt601_full", ColorSpace::Bt601Full),
    ("bt709_limited", ColorSpace::Bt709Limited),
    ("bt709_full", ColorSpace::Bt709Full),
];

fn named<T: Copy>(table: &[(&str, T)], name: &str) -> T {
    table.iter().find(|(known, _)| *known == name).unwrap().1
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn golden() -> Vec<(RawLayout, Vec<u8>, Vec<u8>)> {
    let text = include_str!("../../../tests/golden/raw.json");
    let golden: Golden = serde_json::from_str(text).unwrap();
    let read = |case: Case| {
        let layout = RawLayout {
            format: named(&FORMATS, &case.format),
            size: ImageSize::new(case.width, case.height),
            strides: case.strides,
            plane_offsets: case.plane_offsets,
            rotation: Rotation::None,
            color_space: case.color_space.map(|name| named(&COLOR_SPACES, &name)),
        };
        (layout, unhex(&case.data), unhex(&case.rgb))
    };
    golden.cases.into_iter().map(read).collect()
}

fn convert(layout: &RawLayout, data: &[u8]) -> Result<Picture, DecodeError> {
    RawFrame { layout, data }.to_picture(&DecodeLimits::default())
}

fn layout(format: PixelFormat, width: u32, height: u32) -> RawLayout {
    RawLayout {
        format,
        size: ImageSize::new(width, height),
        strides: vec![],
        plane_offsets: vec![],
        rotation: Rotation::None,
        color_space: None,
    }
}

#[test]
fn every_format_is_within_two_levels_of_other_conversions() {
    let cases = golden();
    for (_, format) in FORMATS {
        assert!(cases.iter().any(|(layout, ..)| layout.format == format));
    }
    for (layout, data, rgb) in cases {
        let picture = convert(&layout, &data).unwrap();
        assert_eq!(picture.size(), layout.size);
        for (found, expected) in picture.pixels().iter().zip(&rgb) {
            assert!(found.abs_diff(*expected) <= 2, "{layout:?}");
        }
        // Packed formats lose nothing at all.
        if layout.color_space.is_none() {
            assert_eq!(picture.pixels(), rgb, "{layout:?}");
        }
    }
}

#[test]
fn the_last_row_needs_no_padding_and_nothing_else_may_be_missing() {
    for (layout, data, _) in golden() {
        // What is behind the last pixel, be it padding or a gap, is the frame's filler.
        let whole = convert(&layout, &data).unwrap();
        let used = {
            let mut len = data.len();
            while convert(&layout, &data[..len - 1]).is_ok() {
                len -= 1;
            }
            len
        };
        assert_eq!(convert(&layout, &data[..used]).unwrap(), whole);
        for len in 0..used {
            assert_eq!(
                convert(&layout, &data[..len]),
                Err(DecodeError::FrameSizeMismatch {
                    expected: used as u64,
                    got: len as u64
                }),
                "{layout:?}"
            );
        }
        let longer = [&data[..], &[0]].concat();
        assert_eq!(
            convert(&layout, &longer).is_ok(),
            !layout.plane_offsets.is_empty(),
            "{layout:?}"
        );
    }
}

#[test]
fn a_frame_that_was_taken_for_another_format_is_refused_with_both_numbers() {
    // RGBA sent as RGB.
    assert_eq!(
        convert(&layout(PixelFormat::Rgb24, 4, 2), &[0; 32]),
        Err(DecodeError::FrameSizeMismatch {
            expected: 24,
            got: 32
        })
    );
}

#[test]
fn what_no_frame_can_have_is_refused_by_field() {
    let field = |layout: &RawLayout| match convert(layout, &[0; 64]) {
        Err(DecodeError::InvalidFrame { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    assert_eq!(field(&layout(PixelFormat::Gray8, 0, 4)), "image.raw.width");
    assert_eq!(field(&layout(PixelFormat::Gray8, 4, 0)), "image.raw.height");
    let strides = |strides: &[u32]| RawLayout {
        strides: strides.to_vec(),
        ..layout(PixelFormat::Nv12, 8, 4)
    };
    for wrong in [&[8][..], &[8, 8, 8], &[7, 8], &[8, 7], &[8, 0]] {
        assert_eq!(field(&strides(wrong)), "image.raw.strides", "{wrong:?}");
    }
    let offsets = RawLayout {
        plane_offsets: vec![0],
        ..layout(PixelFormat::Nv12, 8, 4)
    };
    assert_eq!(field(&offsets), "image.raw.plane_offsets");
}

#[test]
fn numbers_at_the_end_of_their_types_are_a_mismatch_and_no_overflow() {
    let hostile = RawLayout {
        strides: vec![u32::MAX, u32::MAX],
        plane_offsets: vec![u64::MAX, u64::MAX - 1],
        ..layout(PixelFormat::Nv12, 65_535, 700)
    };
    assert!(matches!(
        convert(&hostile, &[0; 64]),
        Err(DecodeError::FrameSizeMismatch {
            expected: u64::MAX,
            got: 64
        })
    ));
    let large = layout(PixelFormat::Gray8, u32::MAX, u32::MAX);
    assert!(matches!(
        convert(&large, &[0; 64]),
        Err(DecodeError::TooLarge { .. })
    ));
    // The stride of one row leads nowhere.
    let one_row = RawLayout {
        strides: vec![u32::MAX],
        ..layout(PixelFormat::Gray8, 4, 1)
    };
    assert!(convert(&one_row, &[1, 2, 3, 4]).is_ok());
}

#[test]
fn planes_may_lie_in_any_order_and_overlap() {
    let gray = RawLayout {
        plane_offsets: vec![2, 0, 0],
        ..layout(PixelFormat::I420, 2, 2)
    };
    let picture = convert(&gray, &[128, 0, 16, 16, 235, 235]).unwrap();
    assert_eq!(picture.pixels(), [[0; 6], [255; 6]].concat());
}

#[test]
fn the_color_space_follows_the_stored_height_where_none_is_said() {
    let color = |rows: u32| {
        let data = [
            vec![81; 2 * rows as usize],
            [90, 240].repeat(rows as usize / 2),
        ]
        .concat();
        let picture = convert(&layout(PixelFormat::Nv12, 2, rows), &data).unwrap();
        picture.pixels()[..3].to_vec()
    };
    // Pure red in BT.601; in BT.709 the same numbers are another red.
    assert_eq!(color(576), [254, 0, 0]);
    assert_eq!(color(578), [255, 24, 0]);
}

#[test]
fn a_rotation_turns_the_frame_clockwise() {
    let turned = |rotation| {
        let layout = RawLayout {
            rotation,
            ..layout(PixelFormat::Gray8, 3, 2)
        };
        let picture = convert(&layout, &[1, 2, 3, 4, 5, 6]).unwrap();
        let values: Vec<u8> = picture.pixels().iter().copied().step_by(3).collect();
        (picture.size().width, values)
    };
    assert_eq!(turned(Rotation::None), (3, vec![1, 2, 3, 4, 5, 6]));
    assert_eq!(turned(Rotation::Clockwise90), (2, vec![4, 1, 5, 2, 6, 3]));
    assert_eq!(turned(Rotation::Clockwise180), (3, vec![6, 5, 4, 3, 2, 1]));
    assert_eq!(turned(Rotation::Clockwise270), (2, vec![3, 6, 2, 5, 1, 4]));
}

fn any_number() -> impl Strategy<Value = u32> {
    prop_oneof![0u32..20, Just(u32::MAX), any::<u32>()]
}

proptest! {
    #[test]
    fn no_numbers_do_harm(
        format in prop::sample::select(FORMATS.map(|(_, format)| format).to_vec()),
        (width, height) in (any_number(), any_number()),
        strides in prop::collection::vec(any_number(), 0..4),
        plane_offsets in prop::collection::vec(prop_oneof![0u64..40, any::<u64>()], 0..4),
        data in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        let layout = RawLayout { strides, plane_offsets, ..layout(format, width, height) };
        let frame = RawFrame { layout: &layout, data: &data };
        let limits = DecodeLimits { max_pixels: 10_000 };
        prop_assert_eq!(frame.validate(&limits), frame.to_picture(&limits).map(drop));
    }
}
