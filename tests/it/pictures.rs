//! Every picture that people send, over the wire and through the decode function: its size or its refusal.

use detectd::grpc::pb;
use detectd::vision::draw::encode_jpeg;
use detectd::vision::orient::{Orientation, upright};
use detectd::vision::{
    ColorSpace, DecodeError, DecodeLimits, ImageSize, Picture, PixelFormat, RawFrame, RawLayout,
    Rotation, decode,
};
use image::{ExtendedColorType, ImageEncoder};
use tonic::Code;

use crate::cases::{self, Case};
use crate::support::{Client, Server, flat_png, photos, real_model, reason, request};

fn raw_layout(case: &Case) -> RawLayout {
    let (format, planes) = match &case.note {
        note if note.starts_with("format=RGB24 ") => (PixelFormat::Rgb24, 1),
        note if note.starts_with("format=NV12 ") => (PixelFormat::Nv12, 2),
        note => panic!("{note}"),
    };
    RawLayout {
        format,
        size: ImageSize::new(case.noted("width="), case.noted("height=")),
        strides: vec![case.noted("stride="); planes],
        plane_offsets: vec![],
        rotation: Rotation::None,
        color_space: Some(ColorSpace::Bt601Limited),
    }
}

fn decoded(case: &Case) -> Result<Picture, DecodeError> {
    let limits = DecodeLimits::default();
    if case.is_raw() {
        let layout = raw_layout(case);
        let data = &case.bytes;
        return RawFrame {
            layout: &layout,
            data,
        }
        .to_picture(&limits);
    }
    decode(&case.bytes, &limits)
}

fn reason_of(error: &DecodeError) -> &'static str {
    match error {
        DecodeError::Empty => "EMPTY_IMAGE",
        DecodeError::UnsupportedFormat { .. } => "UNSUPPORTED_FORMAT",
        DecodeError::Corrupt { .. } | DecodeError::DecoderPanicked => "CORRUPT_IMAGE",
        DecodeError::Truncated => "TRUNCATED_IMAGE",
        DecodeError::TooLarge { .. } | DecodeError::SideTooLong { .. } => "IMAGE_TOO_LARGE",
        DecodeError::FrameSizeMismatch { .. } => "FRAME_SIZE_MISMATCH",
        DecodeError::InvalidFrame { .. } => "INVALID_OPTION",
    }
}

fn check_decoding(cases: &[Case]) {
    for case in cases {
        match decoded(case) {
            Ok(picture) => case.check_picture(&picture),
            Err(error) => case.check_refusal(reason_of(&error), &error.to_string()),
        }
    }
}

#[test]
fn our_own_pictures_decode_or_are_refused_as_expected() {
    let cases = cases::own();
    assert!(cases.len() > 70, "{}", cases.len());
    check_decoding(&cases);
}

#[test]
fn pictures_from_the_field_decode_or_are_refused_as_expected() {
    if let Some(cases) = cases::from_the_field() {
        assert!(cases.len() > 38, "{}", cases.len());
        check_decoding(&cases);
    }
}

async fn check_over_the_wire(client: &mut Client, cases: &[Case]) {
    for case in cases {
        let message = if case.is_raw() {
            let layout = raw_layout(case);
            let format = match layout.format {
                PixelFormat::Rgb24 => pb::PixelFormat::Rgb24,
                _ => pb::PixelFormat::Nv12,
            };
            raw_request(pb::RawImage {
                format: format.into(),
                width: layout.size.width,
                height: layout.size.height,
                strides: layout.strides,
                data: case.bytes.clone().into(),
                ..Default::default()
            })
        } else {
            request(case.bytes.clone())
        };
        match client.detect(message).await {
            Ok(reply) => {
                let size = reply.into_inner().image_size.unwrap();
                case.check_size(ImageSize::new(size.width, size.height));
            }
            Err(status) => {
                let (code, reason) = reason(&status);
                assert_eq!(code, Code::InvalidArgument, "{}: {status:?}", case.name);
                case.check_refusal(&reason, status.message());
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn over_the_wire_each_has_its_upright_size_or_its_reason() {
    let server = Server::start(&["echo"]).await;
    let mut client = server.client();
    check_over_the_wire(&mut client, &cases::own()).await;
    if let Some(cases) = cases::from_the_field() {
        check_over_the_wire(&mut client, &cases).await;
    }
    assert_eq!(server.counter("detectd_panics_total").await, 0);
}

fn raw_request(raw: pb::RawImage) -> pb::DetectRequest {
    pb::DetectRequest {
        image: Some(pb::Image {
            source: Some(pb::image::Source::Raw(raw)),
        }),
        ..Default::default()
    }
}

/// A frame of one colour in each format: 6 by 4, in rows of `stride` more bytes than they need.
fn red_frames(padding: u32) -> Vec<pb::RawImage> {
    let plane = |pixel: &[u8], pixels: u32, rows: u32| {
        let mut row = pixel.repeat(pixels as usize);
        row.resize(row.len() + padding as usize, 0xaa);
        (row.len() as u32, row.repeat(rows as usize))
    };
    let (y, u, v) = (81, 90, 240);
    let planes = [
        (pb::PixelFormat::Rgb24, vec![plane(&[255, 0, 0], 6, 4)]),
        (pb::PixelFormat::Bgr24, vec![plane(&[0, 0, 255], 6, 4)]),
        (pb::PixelFormat::Rgba32, vec![plane(&[255, 0, 0, 9], 6, 4)]),
        (pb::PixelFormat::Bgra32, vec![plane(&[0, 0, 255, 9], 6, 4)]),
        (pb::PixelFormat::Gray8, vec![plane(&[255], 6, 4)]),
        (
            pb::PixelFormat::Nv12,
            vec![plane(&[y], 6, 4), plane(&[u, v], 3, 2)],
        ),
        (
            pb::PixelFormat::Nv21,
            vec![plane(&[y], 6, 4), plane(&[v, u], 3, 2)],
        ),
        (
            pb::PixelFormat::I420,
            vec![plane(&[y], 6, 4), plane(&[u], 3, 2), plane(&[v], 3, 2)],
        ),
        (pb::PixelFormat::Yuyv, vec![plane(&[y, u, y, v], 3, 4)]),
    ];
    let frame = |(format, planes): (pb::PixelFormat, Vec<(u32, Vec<u8>)>)| {
        let (strides, data): (Vec<u32>, Vec<Vec<u8>>) = planes.into_iter().unzip();
        pb::RawImage {
            format: format.into(),
            width: 6,
            height: 4,
            strides: if padding > 0 { strides } else { vec![] },
            data: data.concat().into(),
            ..Default::default()
        }
    };
    planes.into_iter().map(frame).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_red_frame_of_any_format_is_answered_as_a_red_png_is() {
    let server = Server::start(&["echo"]).await;
    let mut client = server.client();
    // The fixture's boxes tell the colour; as shares of the picture, whatever its size.
    let boxes = |reply: pb::DetectResponse| -> Vec<(String, [f32; 2])> {
        let size = reply.image_size.unwrap();
        let share = |found: pb::Detection| {
            let place = found.r#box.unwrap();
            let shares = [
                place.x_min / size.width as f32,
                place.y_max / size.height as f32,
            ];
            (found.label, shares)
        };
        reply.detections.into_iter().map(share).collect()
    };
    let red = client
        .detect(request(flat_png([255, 0, 0], 16)))
        .await
        .unwrap();
    let red = boxes(red.into_inner());
    for padding in [0, 5] {
        for raw in red_frames(padding) {
            let format = raw.format();
            let reply = client.detect(raw_request(raw)).await.unwrap().into_inner();
            let size = reply.image_size.unwrap();
            assert_eq!((size.width, size.height), (6, 4));
            if format != pb::PixelFormat::Gray8 {
                let found = boxes(reply);
                assert_eq!(found.len(), red.len(), "{format:?}");
                for ((label, shares), (red_label, red_shares)) in found.iter().zip(&red) {
                    assert_eq!(label, red_label, "{format:?}");
                    // Within two levels of 255.
                    let near = |(a, b): (&f32, &f32)| (a - b).abs() < 0.01;
                    assert!(
                        shares.iter().zip(red_shares).all(near),
                        "{format:?}: {shares:?}"
                    );
                }
            }
        }
    }
    let mut turned = red_frames(0).swap_remove(5);
    turned.set_rotation(pb::Rotation::Rotation270);
    let size = client
        .detect(raw_request(turned))
        .await
        .unwrap()
        .into_inner()
        .image_size
        .unwrap();
    assert_eq!((size.width, size.height), (4, 6));
}

/// The photo with an orientation in its metadata, in each format that has one.
fn oriented(photo: &[u8], orientation: u8) -> [(&'static str, Vec<u8>); 3] {
    let picture = decode(photo, &DecodeLimits::default()).unwrap();
    // Stored so that the turn which the orientation asks for leads back to the photo. Each undoes itself but
    // the quarter turns, which undo each other.
    let undone = match orientation {
        6 => 8,
        8 => 6,
        other => other,
    };
    let stored = upright(picture, Orientation::from_exif(undone).unwrap());
    let (size, pixels) = (stored.size(), stored.pixels());
    let exif = |intro: &[u8]| {
        let tiff = [
            b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0",
            &[orientation, 0, 0, 0][..],
            &[0; 4],
        ]
        .concat();
        [intro, &tiff].concat()
    };

    let jpeg = encode_jpeg(&stored, 95).unwrap();
    let segment = exif(b"Exif\0\0");
    let length = (segment.len() as u16 + 2).to_be_bytes();
    let jpeg = [&jpeg[..2], &[0xff, 0xe1], &length, &segment, &jpeg[2..]].concat();

    let mut png = Vec::new();
    let mut encoder = image::codecs::png::PngEncoder::new(&mut png);
    encoder.set_exif_metadata(exif(b"")).unwrap();
    encoder
        .write_image(pixels, size.width, size.height, ExtendedColorType::Rgb8)
        .unwrap();

    let mut webp = Vec::new();
    let mut encoder = image::codecs::webp::WebPEncoder::new_lossless(&mut webp);
    encoder.set_exif_metadata(exif(b"")).unwrap();
    encoder
        .write_image(pixels, size.width, size.height, ExtendedColorType::Rgb8)
        .unwrap();
    [("JPEG", jpeg), ("PNG", png), ("WebP", webp)]
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_orientations_in_three_formats_give_equal_boxes() {
    let (Some(model), Some(photos)) = (real_model("yolox-nano"), photos()) else {
        return;
    };
    let server = Server::serve(&[model], |_| {}).await;
    server.ready().await;
    let mut client = server.client();
    let plain = client
        .detect(request(photos[0].clone()))
        .await
        .unwrap()
        .into_inner();
    assert!(!plain.detections.is_empty());
    for orientation in 1..=8 {
        for (format, bytes) in oriented(&photos[0], orientation) {
            let name = format!("{format} with orientation {orientation}");
            let reply = client.detect(request(bytes)).await.unwrap().into_inner();
            assert_eq!(reply.image_size, plain.image_size, "{name}");
            assert_eq!(reply.detections.len(), plain.detections.len(), "{name}");
            for expected in &plain.detections {
                let near = |found: &&pb::Detection| {
                    let (a, b) = (found.r#box.unwrap(), expected.r#box.unwrap());
                    let apart = [
                        a.x_min - b.x_min,
                        a.y_min - b.y_min,
                        a.x_max - b.x_max,
                        a.y_max - b.y_max,
                    ];
                    found.label == expected.label && apart.iter().all(|edge| edge.abs() <= 2.0)
                };
                assert!(
                    reply.detections.iter().any(|found| near(&found)),
                    "{name}: no {expected:?}"
                );
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_region_of_a_photo_finds_what_lies_in_it_where_it_lies() {
    let (Some(model), Some(photos)) = (real_model("yolox-nano"), photos()) else {
        return;
    };
    let server = Server::serve(&[model], |_| {}).await;
    server.ready().await;
    let mut client = server.client();
    let mut checked = 0;
    for photo in photos.iter().take(8) {
        let plain = client
            .detect(request(photo.clone()))
            .await
            .unwrap()
            .into_inner();
        let size = plain.image_size.unwrap();
        // A sure object of a good size, with some of what is around it: its box is found again.
        let Some(sure) = plain.detections.iter().find(|found| {
            let place = found.r#box.unwrap();
            let area = (place.x_max - place.x_min) * (place.y_max - place.y_min);
            found.score > 0.8 && area < (size.width * size.height) as f32 / 4.0
        }) else {
            continue;
        };
        let place = sure.r#box.unwrap();
        let (width, height) = (place.x_max - place.x_min, place.y_max - place.y_min);
        let region = pb::BoundingBox {
            x_min: place.x_min - width / 2.0,
            y_min: place.y_min - height / 2.0,
            x_max: place.x_max + width / 2.0,
            y_max: place.y_max + height / 2.0,
        };
        let message = pb::DetectRequest {
            options: Some(pb::DetectOptions {
                region: Some(region),
                ..Default::default()
            }),
            ..request(photo.clone())
        };
        let reply = client.detect(message).await.unwrap().into_inner();
        let overlap = |found: &pb::Detection| {
            let at = |place: pb::BoundingBox| {
                detectd::vision::BoundingBox::new(
                    place.x_min,
                    place.y_min,
                    place.x_max,
                    place.y_max,
                )
            };
            at(found.r#box.unwrap()).iou(&at(place))
        };
        let again = reply
            .detections
            .iter()
            .any(|found| found.label == sure.label && overlap(found) > 0.7);
        assert!(again, "{sure:?} in {:?}", reply.detections);
        checked += 1;
    }
    assert!(checked > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raw_frame_that_cannot_be_is_refused_with_its_numbers_or_its_field() {
    let server = Server::start_with(&["echo"], |config| {
        config.pipeline.decode.max_pixels = 1_000
    })
    .await;
    let mut client = server.client();
    let good = || red_frames(3).swap_remove(5);
    let mut refuse = async |change: fn(&mut pb::RawImage)| {
        let mut raw = good();
        change(&mut raw);
        let status = client.detect(raw_request(raw)).await.unwrap_err();
        let (code, reason) = reason(&status);
        assert_eq!(code, Code::InvalidArgument);
        (reason, status.message().to_owned())
    };
    let (short, message) = refuse(|raw| raw.data = raw.data.slice(..40)).await;
    assert_eq!(short, "FRAME_SIZE_MISMATCH");
    assert!(
        message.contains("40") && message.contains("51"),
        "{message}"
    );
    type Change = fn(&mut pb::RawImage);
    let cases: [(Change, &str, &str); 6] = [
        (|raw| raw.format = 0, "INVALID_OPTION", "image.raw.format"),
        (
            |raw| raw.rotation = 7,
            "INVALID_OPTION",
            "image.raw.rotation",
        ),
        (
            |raw| raw.color_space = 7,
            "INVALID_OPTION",
            "image.raw.color_space",
        ),
        (
            |raw| raw.strides = vec![5, 9],
            "INVALID_OPTION",
            "image.raw.strides",
        ),
        (|raw| raw.width = 0, "INVALID_OPTION", "image.raw.width"),
        (|raw| raw.height = 1_000, "IMAGE_TOO_LARGE", "6x1000"),
    ];
    for (change, expected, text) in cases {
        let (reason, message) = refuse(change).await;
        assert_eq!(reason, expected, "{message}");
        assert!(message.contains(text), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_region_bounds_the_boxes_and_is_told_as_clipped() {
    let server = Server::start(&["echo"]).await;
    let mut client = server.client();
    let mut ask = async |x_min, y_min, x_max, y_max| {
        let region = pb::BoundingBox {
            x_min,
            y_min,
            x_max,
            y_max,
        };
        let message = pb::DetectRequest {
            options: Some(pb::DetectOptions {
                region: Some(region),
                ..Default::default()
            }),
            ..request(flat_png([255, 0, 0], 32))
        };
        client
            .detect(message)
            .await
            .map(tonic::Response::into_inner)
    };
    // The network's answer for red, from its 16 pixels to the region's: at 8 of 32, the height whole.
    let reply = ask(8.0, 16.0, 40.0, 32.0).await.unwrap();
    let size = reply.image_size.unwrap();
    assert_eq!((size.width, size.height), (32, 32));
    let told = reply.effective_options.unwrap().region.unwrap();
    assert_eq!(
        (told.x_min, told.y_min, told.x_max, told.y_max),
        (8.0, 16.0, 32.0, 32.0)
    );
    assert!(!reply.detections.is_empty());
    let odd = ask(3.25, 4.5, 17.75, 20.125).await.unwrap();
    for (reply, region) in [
        (reply.detections, told),
        (
            odd.detections,
            odd.effective_options.unwrap().region.unwrap(),
        ),
    ] {
        for found in reply {
            let found = found.r#box.unwrap();
            assert!(
                found.x_min >= region.x_min && found.x_max <= region.x_max,
                "{found:?}"
            );
            assert!(
                found.y_min >= region.y_min && found.y_max <= region.y_max,
                "{found:?}"
            );
            assert!(
                found.x_min < found.x_max && found.y_min < found.y_max,
                "{found:?}"
            );
        }
    }
    for outside in [
        (40.0, 0.0, 50.0, 9.0),
        (-9.0, 0.0, 0.0, 9.0),
        (0.0, 0.0, f32::NAN, 9.0),
        (9.0, 0.0, 3.0, 9.0),
    ] {
        let (x_min, y_min, x_max, y_max) = outside;
        let status = ask(x_min, y_min, x_max, y_max).await.unwrap_err();
        assert_eq!(
            reason(&status),
            (Code::InvalidArgument, "INVALID_OPTION".into())
        );
        assert!(
            status.message().starts_with("region"),
            "{}",
            status.message()
        );
    }
}

/// Headers that promise far more than is allowed.
fn bombs() -> Vec<(String, Vec<u8>)> {
    let mut bombs: Vec<_> = cases::own()
        .into_iter()
        .chain(cases::from_the_field().unwrap_or_default())
        .filter(|case| case.name.starts_with("bomb_"))
        .map(|case| (case.name, case.bytes))
        .collect();
    let mut gray = Vec::new();
    image::codecs::jpeg::JpegEncoder::new(&mut gray)
        .encode(&[90; 64], 8, 8, ExtendedColorType::L8)
        .unwrap();
    let frame = gray
        .windows(2)
        .position(|pair| pair == [0xff, 0xc0])
        .unwrap();
    let sides = [12_000u16.to_be_bytes(), 12_000u16.to_be_bytes()].concat();
    gray[frame + 5..frame + 9].copy_from_slice(&sides);
    bombs.push(("144 megapixels of gray".to_owned(), gray));
    bombs
}

/// The most memory that this process ever held, in bytes.
fn high_water_mark() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.unwrap().trim().trim_end_matches(" kB");
    kilobytes.parse::<u64>().unwrap() * 1024
}

/// Runs `test` of this binary in a process of its own, where nothing else takes memory.
fn run_alone(test: &str) {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
}

#[test]
#[cfg(target_os = "linux")]
fn bombs_are_refused_without_growth() {
    run_alone("pictures::alone_bombs_are_refused_without_growth");
}

#[test]
#[ignore = "in a process of its own, by the test above"]
fn alone_bombs_are_refused_without_growth() {
    let bombs = bombs();
    assert!(bombs.len() > 6, "{}", bombs.len());
    let limits = DecodeLimits::default();
    decode(&flat_png([1, 2, 3], 8), &limits).unwrap();
    let before = high_water_mark();
    for (name, bytes) in bombs {
        let refused = decode(&bytes, &limits);
        assert!(
            matches!(refused, Err(DecodeError::TooLarge { .. })),
            "{name}: {refused:?}"
        );
    }
    let growth = high_water_mark() - before;
    assert!(growth < 16 << 20, "{growth} bytes");
}
