//! The contract's messages from and to the project's types. Validation happens here, once.

use std::num::NonZeroU32;
use std::time::Duration;

mod stream;

use super::pb;
use crate::model::{ModelVersion, Threshold};
use crate::pipeline::{
    DetectError, DetectOptions, DetectRequest, Detection, Detections, EffectiveOptions, Image,
    ModelRef, ModelState, ModelStatus, RawImage, TilingOptions, Timings, Unavailable,
};
use crate::scheduling::Deadline;
use crate::tracking::TrackId;
use crate::vision::tiling::MAX_OVERLAP;
use crate::vision::{
    BoundingBox, ColorSpace, DecodeError, ImageSize, PixelFormat, RawLayout, Rotation, Tiling,
};

pub(super) use stream::{Terms, drop_reason, frame, started, stream_request};

/// The most planes that a raw frame has. What a frame says of each is a list, and lists are cut short here.
const MAX_PLANES: usize = 3;

// === requests ===

/// Checks a request and takes it over.
pub(super) fn request(
    request: pb::DetectRequest,
    deadline: Deadline,
) -> Result<DetectRequest, DetectError> {
    let image = image(request.image)?;
    Ok(DetectRequest {
        model: model_name(request.model),
        version: version(&request.model_version)?,
        image,
        options: request
            .options
            .map_or_else(|| Ok(DetectOptions::default()), options)?,
        deadline,
    })
}

fn model_name(name: String) -> Option<String> {
    Some(name).filter(|name| !name.is_empty())
}

fn image(image: Option<pb::Image>) -> Result<Image, DetectError> {
    match image.and_then(|image| image.source) {
        Some(pb::image::Source::Encoded(encoded)) => Ok(Image::Encoded(encoded)),
        Some(pb::image::Source::Raw(raw)) => Ok(Image::Raw(raw_image(raw)?)),
        None => Err(DetectError::Picture(DecodeError::Empty)),
    }
}

fn version(text: &str) -> Result<Option<ModelVersion>, DetectError> {
    if text.is_empty() {
        return Ok(None);
    }
    let invalid = |_| DetectError::InvalidOption {
        field: "model_version",
        detail: format!("{text:?} is not a positive integer in decimal"),
    };
    text.parse().map(Some).map_err(invalid)
}

fn options(options: pb::DetectOptions) -> Result<DetectOptions, DetectError> {
    Ok(DetectOptions {
        score_threshold: threshold("score_threshold", options.score_threshold)?,
        iou_threshold: threshold("iou_threshold", options.iou_threshold)?,
        max_detections: options.max_detections.map(max_detections).transpose()?,
        class_agnostic_nms: options.class_agnostic_nms,
        labels: options.labels,
        region: options.region.map(region).transpose()?,
        tiling: options.tiling.map(tiling).transpose()?,
    })
}

fn tiling(tiling: pb::Tiling) -> Result<TilingOptions, DetectError> {
    if let Some(overlap) = tiling.overlap
        && !(0.0..=MAX_OVERLAP).contains(&overlap)
    {
        return Err(DetectError::InvalidOption {
            field: "tiling.overlap",
            detail: format!("{overlap} is not in [0, {MAX_OVERLAP}]"),
        });
    }
    Ok(TilingOptions {
        tile_size: NonZeroU32::new(tiling.tile_size),
        overlap: tiling.overlap,
    })
}

/// A region whose edges are numbers in their order. Whether it lies in the picture is seen when there is one.
fn region(region: pb::BoundingBox) -> Result<BoundingBox, DetectError> {
    let pb::BoundingBox {
        x_min,
        y_min,
        x_max,
        y_max,
    } = region;
    // Also false of what is not a number.
    if x_min < x_max && y_min < y_max {
        return Ok(BoundingBox::new(x_min, y_min, x_max, y_max));
    }
    Err(DetectError::InvalidOption {
        field: "region",
        detail: format!(
            "({x_min}, {y_min}) to ({x_max}, {y_max}) is not a box from its upper left to its lower right corner"
        ),
    })
}

fn raw_image(raw: pb::RawImage) -> Result<RawImage, DetectError> {
    let (format, rotation) = (pixel_format(raw.format)?, rotation(raw.rotation)?);
    let color_space = color_space(raw.color_space)?;
    for (field, count) in [
        ("image.raw.strides", raw.strides.len()),
        ("image.raw.plane_offsets", raw.plane_offsets.len()),
    ] {
        if count > MAX_PLANES {
            return Err(DetectError::InvalidOption {
                field,
                detail: format!("{count} values, but no format has more than {MAX_PLANES} planes"),
            });
        }
    }
    Ok(RawImage {
        layout: RawLayout {
            format,
            size: ImageSize::new(raw.width, raw.height),
            strides: raw.strides,
            plane_offsets: raw.plane_offsets,
            rotation,
            color_space,
        },
        data: raw.data,
    })
}

fn pixel_format(value: i32) -> Result<PixelFormat, DetectError> {
    use pb::PixelFormat as Pb;
    Ok(match known("image.raw.format", value)? {
        Pb::Unspecified => {
            return Err(DetectError::InvalidOption {
                field: "image.raw.format",
                detail: "a raw frame has to say its format".to_owned(),
            });
        }
        Pb::Rgb24 => PixelFormat::Rgb24,
        Pb::Bgr24 => PixelFormat::Bgr24,
        Pb::Rgba32 => PixelFormat::Rgba32,
        Pb::Bgra32 => PixelFormat::Bgra32,
        Pb::Gray8 => PixelFormat::Gray8,
        Pb::Nv12 => PixelFormat::Nv12,
        Pb::I420 => PixelFormat::I420,
        Pb::Nv21 => PixelFormat::Nv21,
        Pb::Yuyv => PixelFormat::Yuyv,
    })
}

fn rotation(value: i32) -> Result<Rotation, DetectError> {
    use pb::Rotation as Pb;
    Ok(match known("image.raw.rotation", value)? {
        Pb::Unspecified => Rotation::None,
        Pb::Rotation90 => Rotation::Clockwise90,
        Pb::Rotation180 => Rotation::Clockwise180,
        Pb::Rotation270 => Rotation::Clockwise270,
    })
}

fn color_space(value: i32) -> Result<Option<ColorSpace>, DetectError> {
    use pb::ColorSpace as Pb;
    Ok(match known("image.raw.color_space", value)? {
        Pb::Unspecified => None,
        Pb::Bt601Limited => Some(ColorSpace::Bt601Limited),
        Pb::Bt601Full => Some(ColorSpace::Bt601Full),
        Pb::Bt709Limited => Some(ColorSpace::Bt709Limited),
        Pb::Bt709Full => Some(ColorSpace::Bt709Full),
    })
}

/// An enum's value, unless a newer contract than ours has it.
fn known<T: TryFrom<i32>>(field: &'static str, value: i32) -> Result<T, DetectError> {
    T::try_from(value).map_err(|_| DetectError::InvalidOption {
        field,
        detail: format!("{value} is not a value that this server knows"),
    })
}

fn threshold(field: &'static str, value: Option<f32>) -> Result<Option<Threshold>, DetectError> {
    let invalid = |value: f32| DetectError::InvalidOption {
        field,
        detail: format!("{value} is not in [0, 1]"),
    };
    value
        .map(|value| Threshold::new(value).map_err(|_| invalid(value)))
        .transpose()
}

fn max_detections(value: u32) -> Result<NonZeroU32, DetectError> {
    NonZeroU32::new(value).ok_or_else(|| DetectError::InvalidOption {
        field: "max_detections",
        detail: "0 is not at least 1".to_owned(),
    })
}

// === replies ===

pub(super) fn response(detections: Detections) -> pb::DetectResponse {
    pb::DetectResponse {
        detections: detections.detections.into_iter().map(detection).collect(),
        image_size: Some(image_size(detections.image_size)),
        model: Some(model_ref(&detections.model)),
        effective_options: Some(effective_options(&detections.options)),
        total_detections: saturating(detections.total),
        timings: Some(timings(&detections.timings)),
    }
}

/// A row of ListModels.
pub(super) fn listed(status: &ModelStatus) -> pb::Model {
    let mut model = pb::Model {
        model: Some(pb::ModelRef {
            name: status.name.clone(),
            version: status
                .version
                .map_or_else(String::new, |version| version.to_string()),
        }),
        state_detail: status.explanation().to_owned(),
        is_default: status.is_default,
        ..pb::Model::default()
    };
    let (state, ready) = match &status.state {
        ModelState::Loading => (pb::ModelState::Loading, None),
        ModelState::Failed => (pb::ModelState::Failed, None),
        // The contract has no word for it: it is loaded anew, or will not come back by itself.
        ModelState::Unavailable(Unavailable {
            was, rebuilding, ..
        }) => match rebuilding {
            true => (pb::ModelState::Loading, Some(was)),
            false => (pb::ModelState::Failed, Some(was)),
        },
        ModelState::Ready(ready) => (pb::ModelState::Ready, Some(ready)),
    };
    model.set_state(state);
    if let Some(ready) = ready {
        model.input_width = ready.input.width;
        model.input_height = ready.input.height;
        model.max_batch_size = saturating(ready.max_batch_size);
        model.labels.clone_from(&ready.labels);
        model.devices = ready.devices.iter().map(ToString::to_string).collect();
        model.default_options = Some(effective_options(&ready.defaults));
    }
    model
}

fn detection(detection: Detection) -> pb::Detection {
    pb::Detection {
        r#box: Some(bounding_box(detection.bbox)),
        score: detection.score,
        class_id: detection.class.0,
        label: detection.label,
        track_id: detection.track.map(TrackId::get),
    }
}

fn bounding_box(bbox: BoundingBox) -> pb::BoundingBox {
    pb::BoundingBox {
        x_min: bbox.x_min,
        y_min: bbox.y_min,
        x_max: bbox.x_max,
        y_max: bbox.y_max,
    }
}

fn image_size(size: ImageSize) -> pb::ImageSize {
    pb::ImageSize {
        width: size.width,
        height: size.height,
    }
}

fn model_ref(reference: &ModelRef) -> pb::ModelRef {
    pb::ModelRef {
        name: reference.name.clone(),
        version: reference.version.to_string(),
    }
}

fn effective_options(options: &EffectiveOptions) -> pb::DetectOptions {
    pb::DetectOptions {
        score_threshold: Some(options.score_threshold.get()),
        iou_threshold: options.iou_threshold.map(Threshold::get),
        max_detections: Some(options.max_detections.get()),
        class_agnostic_nms: Some(options.class_agnostic_nms),
        labels: options.labels.clone(),
        region: options.region.map(bounding_box),
        tiling: options.tiling.map(effective_tiling),
    }
}

fn effective_tiling(tiling: Tiling) -> pb::Tiling {
    let ImageSize { width, height } = tiling.tile;
    pb::Tiling {
        // Tiles that are no squares are as large as the model's input, which has two sides.
        tile_size: if width == height { width } else { 0 },
        overlap: Some(tiling.overlap),
    }
}

fn timings(timings: &Timings) -> pb::Timings {
    pb::Timings {
        queue: Some(duration(timings.queue)),
        preprocess: Some(duration(timings.preprocess)),
        batch_wait: Some(duration(timings.batch_wait)),
        inference: Some(duration(timings.inference)),
        postprocess: Some(duration(timings.postprocess)),
        total: Some(duration(timings.total)),
        batch_size: saturating(timings.batch_size),
        device: timings.device.to_string(),
        order_wait: timings.order_wait.map(duration),
        tiles: saturating(timings.tiles),
    }
}

fn duration(duration: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        // Below 10^9, which an i32 holds.
        nanos: duration.subsec_nanos().cast_signed(),
    }
}

fn saturating(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_options(options: pb::DetectOptions) -> Result<DetectRequest, DetectError> {
        let image = pb::Image {
            source: Some(pb::image::Source::Encoded(vec![1].into())),
        };
        let message = pb::DetectRequest {
            image: Some(image),
            options: Some(options),
            ..Default::default()
        };
        request(message, Deadline::NEVER)
    }

    fn invalid_field(result: Result<DetectRequest, DetectError>) -> &'static str {
        match result {
            Err(DetectError::InvalidOption { field, .. }) => field,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn unset_zero_and_one_are_three_different_thresholds() {
        let read = |score_threshold| {
            let options = pb::DetectOptions {
                score_threshold,
                ..Default::default()
            };
            with_options(options)
                .unwrap()
                .options
                .score_threshold
                .map(Threshold::get)
        };
        assert_eq!(read(None), None);
        assert_eq!(read(Some(0.0)), Some(0.0));
        assert_eq!(read(Some(1.0)), Some(1.0));
    }

    #[test]
    fn a_threshold_outside_its_range_is_refused_by_name() {
        for value in [-0.1, 1.1, f32::NAN, f32::INFINITY] {
            let options = pb::DetectOptions {
                iou_threshold: Some(value),
                ..Default::default()
            };
            assert_eq!(invalid_field(with_options(options)), "iou_threshold");
        }
    }

    #[test]
    fn no_detections_at_most_is_refused() {
        let options = pb::DetectOptions {
            max_detections: Some(0),
            ..Default::default()
        };
        assert_eq!(invalid_field(with_options(options)), "max_detections");
    }

    #[test]
    fn tiles_overlap_by_a_part_of_themselves() {
        let read = |tile_size, overlap| {
            let tiling = pb::Tiling { tile_size, overlap };
            with_options(pb::DetectOptions {
                tiling: Some(tiling),
                ..Default::default()
            })
        };
        let tiling = read(0, None).unwrap().options.tiling.unwrap();
        assert_eq!((tiling.tile_size, tiling.overlap), (None, None));
        let tiling = read(640, Some(0.9)).unwrap().options.tiling.unwrap();
        assert_eq!(tiling.tile_size.map(NonZeroU32::get), Some(640));
        assert_eq!(tiling.overlap, Some(0.9));
        for overlap in [-0.1, 0.91, 1.0, f32::NAN] {
            assert_eq!(invalid_field(read(640, Some(overlap))), "tiling.overlap");
        }
    }

    #[test]
    fn a_region_without_area_or_numbers_is_refused_by_name() {
        let read = |x_min, y_min, x_max, y_max| {
            with_options(pb::DetectOptions {
                region: Some(pb::BoundingBox {
                    x_min,
                    y_min,
                    x_max,
                    y_max,
                }),
                ..Default::default()
            })
        };
        let infinite = f32::INFINITY;
        let all = read(-infinite, -1.0, infinite, 2.0).unwrap().options.region;
        assert_eq!(all.map(|region| region.y_max), Some(2.0));
        for wrong in [
            read(0.0, 0.0, 0.0, 0.0),
            read(5.0, 0.0, 4.0, 9.0),
            read(0.0, f32::NAN, 4.0, 9.0),
            read(0.0, 0.0, 4.0, f32::NAN),
        ] {
            assert_eq!(invalid_field(wrong), "region");
        }
    }

    #[test]
    fn a_raw_frame_says_what_it_is_in_values_that_are_known() {
        let read = |change: fn(&mut pb::RawImage)| {
            let mut raw = pb::RawImage {
                format: pb::PixelFormat::Nv21.into(),
                width: 640,
                height: 480,
                rotation: pb::Rotation::Rotation90.into(),
                ..Default::default()
            };
            change(&mut raw);
            let image = pb::Image {
                source: Some(pb::image::Source::Raw(raw)),
            };
            let message = pb::DetectRequest {
                image: Some(image),
                ..Default::default()
            };
            request(message, Deadline::NEVER)
        };
        let Image::Raw(raw) = read(|_| ()).unwrap().image else {
            panic!("a raw frame stays one");
        };
        assert_eq!(raw.layout.format, PixelFormat::Nv21);
        assert_eq!(raw.layout.rotation, Rotation::Clockwise90);
        assert_eq!(raw.layout.color_space, None);
        let field = |change| invalid_field(read(change));
        assert_eq!(field(|raw| raw.format = 0), "image.raw.format");
        assert_eq!(field(|raw| raw.format = 99), "image.raw.format");
        assert_eq!(field(|raw| raw.rotation = -1), "image.raw.rotation");
        assert_eq!(field(|raw| raw.color_space = 5), "image.raw.color_space");
        assert_eq!(field(|raw| raw.strides = vec![1; 4]), "image.raw.strides");
        let offsets: fn(&mut pb::RawImage) = |raw| raw.plane_offsets = vec![0; 4];
        assert_eq!(field(offsets), "image.raw.plane_offsets");
    }

    #[test]
    fn a_version_is_a_positive_integer_in_decimal() {
        assert!(version("").unwrap().is_none());
        assert!(version("7").unwrap().is_some());
        for text in ["0", "-1", "v1", "1.0", " 1", "4294967296"] {
            assert!(version(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_request_without_a_picture_is_an_empty_picture() {
        for image in [None, Some(pb::Image { source: None })] {
            let message = pb::DetectRequest {
                image,
                ..Default::default()
            };
            assert!(matches!(
                request(message, Deadline::NEVER),
                Err(DetectError::Picture(DecodeError::Empty))
            ));
        }
    }
}
