//! Preprocessing, against golden tensors and painted boxes.

use half::f16;
use proptest::prelude::*;

use super::super::bbox::BoundingBox;
use super::super::image_size::{ImageSize, PixelRect};
use super::super::letterbox::Anchor;
use super::*;

fn spec(width: u32, height: u32, resize: Resize) -> InputSpec {
    InputSpec {
        size: ImageSize::new(width, height),
        resize,
        color: ColorOrder::Rgb,
        layout: Layout::Nchw,
        scale: 1.0,
        mean: [0.0; 3],
        std: [1.0; 3],
    }
}

fn letterbox(anchor: Anchor) -> Resize {
    Resize::Letterbox {
        anchor,
        pad: [114, 115, 116],
    }
}

fn plain(width: u32, height: u32, color: [u8; 3]) -> Picture {
    let size = ImageSize::new(width, height);
    Picture::from_rgb8(size, color.repeat(size.pixels() as usize)).unwrap()
}

/// Runs on a tensor full of rubbish, so that what is not written shows.
fn run_f32(spec: InputSpec, picture: &Picture) -> (Vec<f32>, LetterboxTransform) {
    let preprocessor = Preprocessor::new(spec, DType::F32).unwrap();
    let mut out = Tensor::zeros(DType::F32, &preprocessor.tensor_shape());
    out.as_mut_slice::<f32>().unwrap().fill(f32::NAN);
    let transform = preprocessor.run(picture, &mut out);
    (out.as_slice::<f32>().unwrap().to_vec(), transform)
}

#[test]
fn channels_lie_in_the_order_of_color_and_layout() {
    let picture = plain(2, 1, [10, 20, 30]);
    let run = |color, layout| {
        let spec = InputSpec {
            color,
            layout,
            ..spec(2, 1, Resize::Stretch)
        };
        run_f32(spec, &picture).0
    };
    assert_eq!(
        run(ColorOrder::Rgb, Layout::Nchw),
        [10.0, 10.0, 20.0, 20.0, 30.0, 30.0]
    );
    assert_eq!(
        run(ColorOrder::Bgr, Layout::Nchw),
        [30.0, 30.0, 20.0, 20.0, 10.0, 10.0]
    );
    assert_eq!(
        run(ColorOrder::Rgb, Layout::Nhwc),
        [10.0, 20.0, 30.0, 10.0, 20.0, 30.0]
    );
    assert_eq!(
        run(ColorOrder::Bgr, Layout::Nhwc),
        [30.0, 20.0, 10.0, 30.0, 20.0, 10.0]
    );
}

#[test]
fn mean_and_std_follow_the_order_of_color_and_pad_does_not() {
    let spec = InputSpec {
        color: ColorOrder::Bgr,
        layout: Layout::Nhwc,
        scale: 0.5,
        mean: [1.0, 2.0, 3.0],
        std: [2.0, 4.0, 8.0],
        ..spec(2, 1, letterbox(Anchor::TopLeft))
    };
    let (numbers, transform) = run_f32(spec, &plain(1, 1, [10, 20, 30]));
    assert_eq!(transform.content, ImageSize::new(1, 1));
    let pixel = [(15.0 - 1.0) / 2.0, (10.0 - 2.0) / 4.0, (5.0 - 3.0) / 8.0];
    let pad = [(58.0 - 1.0) / 2.0, (57.5 - 2.0) / 4.0, (57.0 - 3.0) / 8.0];
    assert_eq!(numbers, [pixel, pad].concat());
}

#[test]
fn filling_surrounds_the_picture_on_all_sides_it_should() {
    for (width, height, anchor, content) in [
        (8, 4, Anchor::Center, (0..8, 2..6)),
        (8, 4, Anchor::TopLeft, (0..8, 0..4)),
        (4, 8, Anchor::Center, (2..6, 0..8)),
        (4, 8, Anchor::TopLeft, (0..4, 0..8)),
    ] {
        for layout in [Layout::Nchw, Layout::Nhwc] {
            let spec = InputSpec {
                layout,
                ..spec(8, 8, letterbox(anchor))
            };
            let (numbers, _) = run_f32(spec, &plain(width, height, [1, 2, 3]));
            for (index, number) in numbers.iter().enumerate() {
                let (channel, place) = match layout {
                    Layout::Nchw => (index / 64, index % 64),
                    Layout::Nhwc => (index % 3, index / 3),
                };
                let inside = content.0.contains(&(place % 8)) && content.1.contains(&(place / 8));
                let expected = if inside { 1 } else { 114 } + channel;
                assert_eq!(*number, expected as f32, "{anchor:?} {layout:?} at {place}");
            }
        }
    }
}

#[test]
fn half_floats_and_bytes_hold_the_same_numbers() {
    let pixels: Vec<u8> = (0..=255).flat_map(|v| [v, 255 - v, v / 2]).collect();
    let picture = Picture::from_rgb8(ImageSize::new(16, 16), pixels.clone()).unwrap();
    let mut spec = spec(16, 16, Resize::Stretch);
    spec.layout = Layout::Nhwc;

    let bytes = Preprocessor::new(spec.clone(), DType::U8).unwrap();
    let mut out = Tensor::zeros(DType::U8, &bytes.tensor_shape());
    bytes.run(&picture, &mut out);
    assert_eq!(out.as_slice::<u8>(), Some(&pixels[..]));

    spec.scale = 1.0 / 255.0;
    spec.mean = [0.485, 0.456, 0.406];
    spec.std = [0.229, 0.224, 0.225];
    let halves = Preprocessor::new(spec.clone(), DType::F16).unwrap();
    let mut out = Tensor::zeros(DType::F16, &halves.tensor_shape());
    halves.run(&picture, &mut out);
    let (floats, _) = run_f32(spec, &picture);
    for (half, float) in out.as_slice::<f16>().unwrap().iter().zip(floats) {
        assert!((half.to_f32() - float).abs() < 0.002, "{half} {float}");
    }
}

#[test]
fn types_that_cannot_hold_the_numbers_are_refused() {
    let good = spec(8, 8, Resize::Stretch);
    let refused = |spec: InputSpec, dtype| Preprocessor::new(spec, dtype).unwrap_err();
    assert_eq!(
        refused(good.clone(), DType::I64),
        SpecError::DType { dtype: DType::I64 }
    );
    let mut scaled = good.clone();
    scaled.scale = 1.0 / 255.0;
    assert_eq!(refused(scaled, DType::U8), SpecError::NormalisedBytes);
    let mut large = good.clone();
    large.scale = 1000.0;
    assert_eq!(
        refused(large, DType::F16),
        SpecError::OutOfRange { dtype: DType::F16 }
    );
    let mut invalid = good;
    invalid.std[0] = 0.0;
    assert_eq!(refused(invalid, DType::F32), SpecError::ZeroStd);
}

#[test]
fn slivers_are_resized_without_a_panic_and_without_huge_buffers() {
    let shapes = [(1, 60_000), (60_000, 1), (1, 1), (2, 65_535), (65_535, 2)];
    for (width, height) in shapes {
        let picture = plain(width, height, [200, 100, 50]);
        for resize in [letterbox(Anchor::Center), Resize::Stretch] {
            let (numbers, transform) = run_f32(spec(416, 416, resize), &picture);
            assert!(numbers.iter().all(|number| number.is_finite()));
            assert!(!transform.content.is_empty());
            let x = transform.left + transform.content.width / 2;
            let y = transform.top + transform.content.height / 2;
            let middle = (y * 416 + x) as usize;
            assert_eq!(numbers[middle], 200.0, "{width}x{height} {resize:?}");
        }
    }
    SCRATCH.with_borrow(|scratch| assert!(scratch.kept_bytes() < 20 << 20));
}

#[test]
fn a_picture_of_the_right_size_passes_unchanged() {
    let pixels: Vec<u8> = (0..16 * 8 * 3).map(|n| (n * 7 % 256) as u8).collect();
    let picture = Picture::from_rgb8(ImageSize::new(16, 8), pixels.clone()).unwrap();
    let mut spec = spec(16, 8, letterbox(Anchor::Center));
    spec.layout = Layout::Nhwc;
    let (numbers, _) = run_f32(spec, &picture);
    assert!(numbers.iter().zip(pixels).all(|(n, p)| *n == f32::from(p)));
}

/// Paints a white box on black, finds its edges in the input to parts of a pixel, and maps them back.
fn painted_and_found(source: ImageSize, painted: [u32; 4], spec: InputSpec) -> BoundingBox {
    let [x0, y0, x1, y1] = painted;
    let mut pixels = vec![0u8; source.pixels() as usize * 3];
    for y in y0..y1 {
        let row = (y * source.width) as usize;
        pixels[(row + x0 as usize) * 3..(row + x1 as usize) * 3].fill(255);
    }
    let picture = Picture::from_rgb8(source, pixels).unwrap();
    let (width, height) = (spec.size.width as usize, spec.size.height as usize);
    let (numbers, transform) = run_f32(spec, &picture);
    let plane = &numbers[..width * height];

    // Half-covered pixels are gray: the sum of a profile through the middle is the box's length, and
    // its centre of mass the box's centre.
    let (cx, cy) = transform.forward((x0 + x1) as f32 / 2.0, (y0 + y1) as f32 / 2.0);
    let row = &plane[cy as usize * width..][..width];
    let column: Vec<f32> = (0..height)
        .map(|y| plane[y * width + cx as usize])
        .collect();
    let span = |profile: &[f32]| {
        let length: f32 = profile.iter().sum::<f32>() / 255.0;
        let moment: f32 = (0..).zip(profile).map(|(i, v)| (i as f32 + 0.5) * v).sum();
        let centre = moment / 255.0 / length;
        (centre - length / 2.0, centre + length / 2.0)
    };
    let (x_min, x_max) = span(row);
    let (y_min, y_max) = span(&column);
    transform.invert(BoundingBox::new(x_min, y_min, x_max, y_max))
}

fn assert_found(source: ImageSize, painted: [u32; 4], spec: InputSpec, tolerance: f32) {
    let found = painted_and_found(source, painted, spec);
    let edges = [found.x_min, found.y_min, found.x_max, found.y_max];
    for (edge, expected) in edges.into_iter().zip(painted) {
        assert!(
            (edge - expected as f32).abs() <= tolerance,
            "{source}: painted {painted:?}, found {found:?}"
        );
    }
}

/// Padding of zero, so that the profiles above see the box alone.
fn on_black(width: u32, height: u32, mode: u8) -> InputSpec {
    let pad = [0; 3];
    let resize = match mode {
        0 => Resize::Letterbox {
            anchor: Anchor::Center,
            pad,
        },
        1 => Resize::Letterbox {
            anchor: Anchor::TopLeft,
            pad,
        },
        _ => Resize::Stretch,
    };
    spec(width, height, resize)
}

#[test]
fn a_box_painted_in_a_wide_picture_is_found_where_it_was() {
    let source = ImageSize::new(3775, 1571);
    for mode in 0..3 {
        for painted in [
            [3300, 1300, 3600, 1500],
            [20, 20, 400, 300],
            [1800, 700, 1950, 900],
        ] {
            assert_found(source, painted, on_black(1280, 1280, mode), 0.5);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_painted_box_is_found_where_it_was(
        (width, height) in (200u32..900, 200u32..900),
        (fx, fy) in (0.1f32..0.6, 0.1f32..0.6),
        (input_width, input_height) in (200u32..500, 200u32..500),
        mode in 0u8..3,
    ) {
        let (x0, y0) = ((fx * width as f32) as u32, (fy * height as f32) as u32);
        let painted = [x0, y0, x0 + width / 4, y0 + height / 4];
        let spec = on_black(input_width, input_height, mode);
        assert_found(ImageSize::new(width, height), painted, spec, 0.5);
    }
}

#[test]
fn pure_red_fills_the_plane_that_the_card_says() {
    let red = plain(4, 4, [255, 0, 0]);
    for (color, plane) in [(ColorOrder::Rgb, 0), (ColorOrder::Bgr, 2)] {
        let spec = InputSpec {
            color,
            ..spec(2, 2, Resize::Stretch)
        };
        let (numbers, _) = run_f32(spec, &red);
        for (index, number) in numbers.iter().enumerate() {
            let expected = if index / 4 == plane { 255.0 } else { 0.0 };
            assert_eq!(*number, expected, "{color:?} at {index}");
        }
    }
}

/// A picture of its own with what `part` covers.
fn cut_out(picture: &Picture, part: PixelRect) -> Picture {
    let width = picture.size().width as usize;
    let rows = part.top as usize..(part.top + part.size.height) as usize;
    let row = |row: usize| {
        let start = (row * width + part.left as usize) * 3;
        &picture.pixels()[start..start + part.size.width as usize * 3]
    };
    Picture::from_rgb8(part.size, rows.flat_map(row).copied().collect()).unwrap()
}

proptest! {
    #[test]
    fn a_part_becomes_what_it_would_alone(
        (width, height) in (1u32..90, 1u32..90),
        edges in [0.0f32..1.0, 0.0..1.0, 0.0..1.0, 0.0..1.0],
        (input_width, input_height) in (1u32..60, 1u32..60),
        stretch in any::<bool>(),
    ) {
        let size = ImageSize::new(width, height);
        let pixels = (0..size.pixels() * 3).map(|n| (n * 89 % 251) as u8).collect();
        let picture = Picture::from_rgb8(size, pixels).unwrap();
        let start = |edge: f32, side: u32| (edge * side as f32) as u32;
        let (left, top) = (start(edges[0], width), start(edges[1], height));
        let part = PixelRect {
            left,
            top,
            size: ImageSize::new(
                1 + start(edges[2], width - left - 1),
                1 + start(edges[3], height - top - 1),
            ),
        };
        let resize = if stretch { Resize::Stretch } else { letterbox(Anchor::Center) };
        let spec = spec(input_width, input_height, resize);
        let (alone, transform) = run_f32(spec.clone(), &cut_out(&picture, part));

        let preprocessor = Preprocessor::new(spec, DType::F32).unwrap();
        let mut out = Tensor::zeros(DType::F32, &preprocessor.tensor_shape());
        let found = preprocessor.run_on(&picture, part, &mut out);
        prop_assert_eq!(out.as_slice::<f32>().unwrap(), &alone[..]);
        prop_assert_eq!(found, transform.of_part(left, top));
        let corners = BoundingBox::new(
            left as f32,
            top as f32,
            (left + part.size.width) as f32,
            (top + part.size.height) as f32,
        );
        let (x_min, y_min) = found.forward(corners.x_min, corners.y_min);
        let (x_max, y_max) = found.forward(corners.x_max, corners.y_max);
        let back = found.invert(BoundingBox::new(x_min, y_min, x_max, y_max));
        prop_assert!((back.x_max - corners.x_max).abs() < 0.01, "{back:?}");
        prop_assert!((back.y_min - corners.y_min).abs() < 0.01, "{back:?}");
    }
}
