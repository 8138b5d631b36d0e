//! Raw frames with any numbers. What is valid becomes a picture, and nothing else does.

#![no_main]

use detectd::vision::{
    ColorSpace, DecodeLimits, ImageSize, PixelFormat, RawFrame, RawLayout, Rotation,
};
use libfuzzer_sys::arbitrary::{self, Unstructured};
use libfuzzer_sys::fuzz_target;

const LIMITS: DecodeLimits = DecodeLimits {
    max_pixels: 1 << 18,
};

fuzz_target!(|bytes: &[u8]| {
    // Bytes that are too few for a layout say nothing.
    let _ = run(Unstructured::new(bytes));
});

fn run(mut bytes: Unstructured<'_>) -> arbitrary::Result<()> {
    use PixelFormat::*;
    let format = bytes.choose(&[Rgb24, Bgr24, Rgba32, Bgra32, Gray8, Nv12, I420, Nv21, Yuyv])?;
    let rotation = bytes.choose(&[
        Rotation::None,
        Rotation::Clockwise90,
        Rotation::Clockwise180,
        Rotation::Clockwise270,
    ])?;
    let color_space = bytes.choose(&[
        None,
        Some(ColorSpace::Bt601Limited),
        Some(ColorSpace::Bt601Full),
        Some(ColorSpace::Bt709Limited),
        Some(ColorSpace::Bt709Full),
    ])?;
    let layout = RawLayout {
        format: *format,
        size: ImageSize::new(number(&mut bytes)?, number(&mut bytes)?),
        strides: (0..bytes.int_in_range(0..=4)?)
            .map(|_| number(&mut bytes))
            .collect::<Result<_, _>>()?,
        plane_offsets: (0..bytes.int_in_range(0..=4)?)
            .map(|_| offset(&mut bytes))
            .collect::<Result<_, _>>()?,
        rotation: *rotation,
        color_space: *color_space,
    };
    let frame = RawFrame {
        layout: &layout,
        data: bytes.take_rest(),
    };
    let valid = frame.validate(&LIMITS);
    let picture = frame.to_picture(&LIMITS);
    assert_eq!(valid, picture.map(drop));
    Ok(())
}

/// Small numbers mostly, since large ones are refused at once.
fn number(bytes: &mut Unstructured<'_>) -> arbitrary::Result<u32> {
    if bytes.ratio(7, 8)? {
        bytes.int_in_range(0..=64)
    } else {
        bytes.arbitrary()
    }
}

fn offset(bytes: &mut Unstructured<'_>) -> arbitrary::Result<u64> {
    if bytes.ratio(7, 8)? {
        bytes.int_in_range(0..=256)
    } else {
        bytes.arbitrary()
    }
}
