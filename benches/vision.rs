//! What a picture costs on one thread: decode, preprocess, normalise alone, suppression, tracking.
//!
//! `cargo bench --bench vision`. Inputs are made here, the same in each run.

#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::num::NonZeroU32;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use detectd::tensor::{DType, Tensor};
use detectd::tracking::{Tracker, TrackerConfig};
use detectd::vision::decode::{DecodeLimits, Picture, decode};
use detectd::vision::draw::encode_jpeg;
use detectd::vision::letterbox::Anchor;
use detectd::vision::nms::NonMaxSuppression;
use detectd::vision::orient::{Orientation, upright};
use detectd::vision::preprocess::{ColorOrder, InputSpec, Layout, Preprocessor, Resize};
use detectd::vision::{
    BoundingBox, ClassId, ColorSpace, ImageSize, PixelFormat, RawFrame, RawLayout, Rotation,
    ScoredBox,
};

const HD: ImageSize = ImageSize::new(1280, 720);
const PHOTO: ImageSize = ImageSize::new(4000, 3000);

/// Numbers that look random and are the same each time.
struct Noise(u32);

impl Noise {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.0 >> 8
    }

    /// From 0 up to `end`.
    fn below(&mut self, end: f32) -> f32 {
        self.next() as f32 / (1 << 24) as f32 * end
    }
}

/// Gradients with some noise: about as many bytes a pixel as a photo of quality 85.
fn picture(size: ImageSize) -> Picture {
    let mut noise = Noise(7);
    let mut pixels = Vec::with_capacity(size.pixels() as usize * 3);
    for y in 0..size.height {
        for x in 0..size.width {
            let grain = noise.next() % 24;
            let shade = |value: u32| ((value % 230) + grain) as u8;
            pixels.extend([shade(x / 8), shade(y / 8), shade((x + y) / 16)]);
        }
    }
    Picture::from_rgb8(size, pixels).unwrap()
}

fn preprocessor(layout: Layout, resize: Resize, dtype: DType) -> Preprocessor {
    let spec = InputSpec {
        size: ImageSize::new(416, 416),
        resize,
        color: ColorOrder::Bgr,
        layout,
        scale: 1.0 / 255.0,
        mean: [0.406, 0.456, 0.485],
        std: [0.225, 0.224, 0.229],
    };
    Preprocessor::new(spec, dtype).unwrap()
}

fn letterbox() -> Resize {
    Resize::Letterbox {
        anchor: Anchor::TopLeft,
        pad: Resize::DEFAULT_PAD,
    }
}

fn decoding(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode");
    group.sample_size(20);
    for size in [HD, PHOTO] {
        let jpeg = encode_jpeg(&picture(size), 85).unwrap();
        let name = BenchmarkId::new(format!("jpeg_{}_kb", jpeg.len() / 1000), size);
        group.bench_function(name, |bench| {
            bench.iter(|| decode(black_box(&jpeg), &DecodeLimits::default()).unwrap());
        });
    }
    let photo = picture(PHOTO);
    group.bench_function(BenchmarkId::new("quarter_turn", PHOTO), |bench| {
        bench.iter_batched(
            || photo.clone(),
            |stored| upright(stored, Orientation::Rotate90),
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

/// Full HD frames as cameras and video decoders give them.
fn raw_frames(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("raw_1080p");
    let mut noise = Noise(5);
    let data: Vec<u8> = (0..1920 * 1080 * 4).map(|_| noise.next() as u8).collect();
    for (format, bytes) in [
        (PixelFormat::Rgb24, 6),
        (PixelFormat::Bgra32, 8),
        (PixelFormat::Nv12, 3),
        (PixelFormat::I420, 3),
        (PixelFormat::Yuyv, 4),
    ] {
        let layout = RawLayout {
            format,
            size: ImageSize::new(1920, 1080),
            strides: vec![],
            plane_offsets: vec![],
            rotation: Rotation::None,
            color_space: Some(ColorSpace::Bt709Limited),
        };
        let frame = RawFrame {
            layout: &layout,
            data: &data[..1920 * 1080 / 2 * bytes],
        };
        group.bench_function(format!("{format:?}"), |bench| {
            bench.iter(|| {
                black_box(frame)
                    .to_picture(&DecodeLimits::default())
                    .unwrap()
            });
        });
    }
    group.finish();
}

/// Headers that promise far more than is allowed. Each has to be refused in far less than 50 ms.
fn bombs(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("refuse");
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/cases");
    for name in [
        "bomb_65535x65535.jpg",
        "bomb_30000x30000_1bit.png",
        "bomb_16383x16383.webp",
        "bomb_frame.gif",
        "bomb_60000x60000.bmp",
    ] {
        let bytes = std::fs::read(folder.join(name)).unwrap();
        group.bench_function(name, |bench| {
            bench.iter(|| decode(black_box(&bytes), &DecodeLimits::default()).unwrap_err());
        });
    }
    group.finish();
}

fn preprocessing(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("preprocess_416");
    for (name, source) in [
        ("", HD),
        ("", PHOTO),
        ("normalise_", ImageSize::new(416, 416)),
    ] {
        let source_picture = picture(source);
        for (layout, dtype) in [
            (Layout::Nchw, DType::F32),
            (Layout::Nhwc, DType::F32),
            (Layout::Nchw, DType::F16),
        ] {
            let preprocessor = preprocessor(layout, letterbox(), dtype);
            let mut out = Tensor::zeros(dtype, &preprocessor.tensor_shape());
            let id = BenchmarkId::new(format!("{name}{layout:?}_{dtype}"), source);
            group.bench_function(id, |bench| {
                bench.iter(|| preprocessor.run(black_box(&source_picture), &mut out));
            });
        }
    }
    group.finish();
}

/// Boxes in clusters of about eight, as heads put them out, of 80 classes or of one.
fn boxes(count: usize, classes: u32) -> Vec<ScoredBox> {
    let mut noise = Noise(3);
    let mut boxes = Vec::with_capacity(count);
    while boxes.len() < count {
        let (x, y) = (noise.below(4000.0), noise.below(4000.0));
        let side = 20.0 + noise.below(100.0);
        let class = ClassId(noise.next() % classes);
        for _ in 0..8.min(count - boxes.len()) {
            let (x, y) = (x + noise.below(10.0), y + noise.below(10.0));
            boxes.push(ScoredBox {
                bbox: BoundingBox::new(x, y, x + side, y + side),
                score: noise.below(1.0),
                class,
            });
        }
    }
    boxes
}

fn suppressing(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("nms");
    for count in [100, 1000, 8000] {
        for classes in [1, 80] {
            let boxes = boxes(count, classes);
            // 0.5 keeps about one of each cluster; 1 keeps all, the most work there is.
            for iou_threshold in [0.5, 1.0] {
                let nms = NonMaxSuppression {
                    iou_threshold,
                    class_agnostic: false,
                    max_candidates: usize::MAX,
                };
                let id = BenchmarkId::new(format!("{classes}_classes_iou_{iou_threshold}"), count);
                group.bench_function(id, |bench| {
                    bench.iter_batched(
                        || boxes.clone(),
                        |boxes| nms.apply(boxes),
                        BatchSize::SmallInput,
                    );
                });
            }
        }
    }
    // As many candidates as the server looks at, of one class, no two alike: none goes.
    let scattered: Vec<ScoredBox> = (0..30_000)
        .map(|n| {
            let place = n as f32 / 75.0;
            ScoredBox {
                bbox: BoundingBox::new(place, place, place + 20.0, place + 40.0),
                score: 1.0 - n as f32 / 40_000.0,
                class: ClassId(n),
            }
        })
        .collect();
    group.sample_size(10);
    for iou_threshold in [0.9995, 1.0] {
        let nms = NonMaxSuppression {
            iou_threshold,
            class_agnostic: true,
            max_candidates: 30_000,
        };
        let id = BenchmarkId::new(format!("agnostic_all_stay_iou_{iou_threshold}"), 30_000);
        group.bench_function(id, |bench| {
            bench.iter_batched(
                || scattered.clone(),
                |boxes| nms.apply(boxes),
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

/// One period of `count` objects of 40 to 100 pixels that go to and fro in an area of that many pixels.
fn moving(count: usize, area: [f32; 2], score: fn(usize, usize) -> f32) -> Vec<Vec<ScoredBox>> {
    const PERIOD: usize = 64;
    let mut noise = Noise(11);
    let objects: Vec<_> = (0..count)
        .map(|_| {
            let at = area.map(|side| noise.below(side));
            let velocity = [noise.below(4.0) - 2.0, noise.below(4.0) - 2.0];
            (at, velocity, 40.0 + noise.below(60.0))
        })
        .collect();
    let frame = |frame: usize| {
        let time = frame.min(PERIOD - frame) as f32;
        let objects = objects.iter().enumerate();
        objects
            .map(|(index, &([x, y], [dx, dy], side))| {
                let (x, y) = (x + time * dx, y + time * dy);
                ScoredBox {
                    bbox: BoundingBox::new(x, y, x + side, y + 1.5 * side),
                    score: score(index, frame),
                    class: ClassId(0),
                }
            })
            .collect()
    };
    (0..PERIOD).map(frame).collect()
}

fn tracking(criterion: &mut Criterion) {
    let steady: fn(usize, usize) -> f32 = |_, _| 0.9;
    // Most are sure, some unsure, some missed, in turn.
    let mixed: fn(usize, usize) -> f32 = |object, frame| match (object + frame) % 8 {
        0 => 0.05,
        1 => 0.2,
        _ => 0.9,
    };
    // A third is seen, and not the same for long: as many are lost as are kept.
    let flickering: fn(usize, usize) -> f32 = |object, frame| match (object + frame / 2) % 3 {
        0 => 0.9,
        _ => 0.05,
    };
    let mut group = criterion.benchmark_group("track");
    for (name, count, area, score) in [
        ("steady", 50, [1500.0; 2], steady),
        ("mixed", 50, [1500.0; 2], mixed),
        ("crowd_mixed", 50, [300.0; 2], mixed),
        ("mixed", 300, [3000.0; 2], mixed),
        ("mixed", 3000, [8000.0; 2], mixed),
        ("flickering", 3000, [8000.0; 2], flickering),
        ("heap_mixed", 3000, [40.0; 2], mixed),
        ("line_mixed", 3000, [3000.0, 1.0], mixed),
        ("line_flickering", 3000, [3000.0, 1.0], flickering),
        ("heap_flickering", 3000, [40.0; 2], flickering),
    ] {
        let frames = moving(count, area, score);
        let mut tracker = Tracker::new(TrackerConfig::for_score_threshold(0.4));
        let mut frame = 0;
        group.bench_function(BenchmarkId::new(name, count), |bench| {
            bench.iter(|| {
                frame = (frame + 1) % frames.len();
                tracker.update(NonZeroU32::MIN, black_box(&frames[frame]))
            });
        });
    }
    group.finish();
}

criterion_group!(
    vision,
    decoding,
    raw_frames,
    bombs,
    preprocessing,
    suppressing,
    tracking
);
criterion_main!(vision);
