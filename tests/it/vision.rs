//! The vision room against vectors that another library made, and against pictures from the field.

// Clippy spares tests, but not the functions beside them.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use detectd::tensor::{DType, Tensor};
use detectd::vision::decode::{DecodeError, DecodeLimits, Picture, decode};
use detectd::vision::letterbox::Anchor;
use detectd::vision::preprocess::{ColorOrder, InputSpec, Layout, Preprocessor, Resize};
use detectd::vision::{ImageSize, LetterboxTransform};

/// How far a mean colour may be from another decoder's: chroma upsampling differs.
const LEVELS: f64 = 3.0;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden/vision")
        .join(name)
}

fn decoded(path: &Path) -> Result<Picture, DecodeError> {
    decode(&std::fs::read(path).unwrap(), &DecodeLimits::default())
}

/// The lines of a table, without comments, cut at tabs.
fn rows(path: &Path) -> Vec<Vec<String>> {
    let table = std::fs::read_to_string(path).unwrap();
    let lines = table.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.split('\t').map(str::to_owned).collect())
        .collect()
}

fn colors(text: &str) -> Vec<[f64; 3]> {
    let color = |text: &str| {
        let values: Vec<f64> = text
            .split(',')
            .map(|value| value.parse().unwrap())
            .collect();
        values.try_into().unwrap()
    };
    text.split(';').map(color).collect()
}

/// The mean colour of a part of the picture.
fn mean(
    picture: &Picture,
    columns: std::ops::Range<usize>,
    rows: std::ops::Range<usize>,
) -> [f64; 3] {
    let width = picture.size().width as usize;
    let count = (columns.len() * rows.len()) as f64;
    let mut sums = [0.0; 3];
    for y in rows {
        for x in columns.clone() {
            let pixel = &picture.pixels()[(y * width + x) * 3..][..3];
            for (sum, value) in sums.iter_mut().zip(pixel) {
                *sum += f64::from(*value);
            }
        }
    }
    sums.map(|sum| sum / count)
}

/// The mean colours of the upper left, upper right, lower left and lower right quarter.
fn quadrants(picture: &Picture) -> Vec<[f64; 3]> {
    let (width, height) = (
        picture.size().width as usize,
        picture.size().height as usize,
    );
    let halves = |side: usize| [0..side / 2, side / 2..side];
    let mut means = Vec::new();
    for rows in halves(height) {
        for columns in halves(width) {
            means.push(mean(picture, columns, rows.clone()));
        }
    }
    means
}

fn assert_near(name: &str, found: &[[f64; 3]], expected: &[[f64; 3]]) {
    assert_eq!(found.len(), expected.len(), "{name}");
    for (found_value, expected_value) in found.iter().flatten().zip(expected.iter().flatten()) {
        assert!(
            (found_value - expected_value).abs() <= LEVELS,
            "{name}: expected {expected:?}, found {found:?}"
        );
    }
}

#[test]
fn pictures_decode_upright_and_in_the_colours_of_the_reference() {
    let table = rows(&golden("decoded.tsv"));
    assert!(table.len() > 25);
    for row in table {
        let [name, width, height, expected] = &row[..] else {
            panic!("{row:?}");
        };
        let picture = decoded(&golden(name)).unwrap();
        assert_eq!(
            picture.size().to_string(),
            format!("{width}x{height}"),
            "{name}"
        );
        assert_near(name, &quadrants(&picture), &colors(expected));
    }
}

/// Runs a source through a preprocessor and returns the tensor as bytes, R, G, B of each input pixel.
fn preprocessed(
    source: &Picture,
    size: ImageSize,
    resize: Resize,
    dtype: DType,
) -> (Vec<u8>, LetterboxTransform) {
    let spec = InputSpec {
        size,
        resize,
        color: ColorOrder::Rgb,
        layout: Layout::Nhwc,
        scale: 1.0,
        mean: [0.0; 3],
        std: [1.0; 3],
    };
    let preprocessor = Preprocessor::new(spec, dtype).unwrap();
    let mut out = Tensor::zeros(dtype, &preprocessor.tensor_shape());
    let transform = preprocessor.run(source, &mut out);
    let bytes = match dtype {
        DType::F32 => {
            let numbers = out.as_slice::<f32>().unwrap();
            numbers.iter().map(|number| *number as u8).collect()
        }
        _ => out.bytes().to_vec(),
    };
    (bytes, transform)
}

#[test]
fn inputs_are_those_of_the_reference_filter() {
    const PAD: [u8; 3] = [10, 20, 30];
    let table = rows(&golden("resized.tsv"));
    assert_eq!(table.len(), 8);
    for row in table {
        let [name, width, height, mode] = &row[..] else {
            panic!("{row:?}");
        };
        let source = decoded(&golden(&format!("{name}.png"))).unwrap();
        let expected = decoded(&golden(&format!("{name}_{mode}.png"))).unwrap();
        let size = ImageSize::new(width.parse().unwrap(), height.parse().unwrap());
        let resizes = match mode.as_str() {
            "letterbox" => [Anchor::Center, Anchor::TopLeft]
                .map(|anchor| Resize::Letterbox { anchor, pad: PAD })
                .to_vec(),
            _ => vec![Resize::Stretch],
        };
        for resize in resizes {
            for dtype in [DType::F32, DType::U8] {
                let (found, transform) = preprocessed(&source, size, resize, dtype);
                assert_eq!(transform.content, expected.size(), "{name} {mode}");
                compare(
                    &format!("{name} {resize:?}"),
                    &found,
                    size,
                    &transform,
                    &expected,
                    PAD,
                );
            }
        }
    }
}

fn compare(
    name: &str,
    found: &[u8],
    size: ImageSize,
    transform: &LetterboxTransform,
    expected: &Picture,
    pad: [u8; 3],
) {
    let content = transform.content;
    let (mut sum, mut worst) = (0u64, 0);
    for (place, pixel) in (0..size.width * size.height).zip(found.chunks_exact(3)) {
        let x = (place % size.width).wrapping_sub(transform.left);
        let y = (place / size.width).wrapping_sub(transform.top);
        if x >= content.width || y >= content.height {
            assert_eq!(pixel, pad, "{name}: filling at {x} {y}");
            continue;
        }
        let at = (y * content.width + x) as usize * 3;
        for (value, reference) in pixel.iter().zip(&expected.pixels()[at..at + 3]) {
            let difference = value.abs_diff(*reference);
            sum += u64::from(difference);
            worst = worst.max(difference);
        }
    }
    let mean = sum as f64 / (content.pixels() * 3) as f64;
    assert!(mean < 0.25, "{name}: mean difference {mean}");
    assert!(worst <= 2, "{name}: worst difference {worst}");
}
