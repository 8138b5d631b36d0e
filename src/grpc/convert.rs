//! The contract's messages from and to the project's types. Validation happens here, once.

use std::num::NonZeroU32;
use std::time::Duration;

use super::pb;
use crate::model::{ModelVersion, Threshold};
use crate::pipeline::{
    DetectError, DetectOptions, DetectRequest, Detection, Detections, EffectiveOptions, ModelRef,
    ModelState, ModelStatus, Timings,
};
use crate::scheduling::Deadline;
use crate::vision::{BoundingBox, DecodeError, ImageSize};

// === requests ===

/// Checks a request and takes it over.
pub(super) fn request(
    request: pb::DetectRequest,
    deadline: Deadline,
) -> Result<DetectRequest, DetectError> {
    let encoded = match request.image.and_then(|image| image.source) {
        Some(pb::image::Source::Encoded(encoded)) => encoded,
        Some(pb::image::Source::Raw(_)) => {
            return Err(DetectError::Picture(DecodeError::UnsupportedFormat {
                hint: "raw frames are not taken yet; send an encoded picture",
            }));
        }
        None => return Err(DetectError::Picture(DecodeError::Empty)),
    };
    Ok(DetectRequest {
        model: Some(request.model).filter(|name| !name.is_empty()),
        version: version(&request.model_version)?,
        encoded,
        options: request
            .options
            .map_or_else(|| Ok(DetectOptions::default()), options)?,
        deadline,
    })
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
    // Not ignored: a caller who asked for a part of the picture must not get the whole.
    if options.region.is_some() {
        return Err(DetectError::InvalidOption {
            field: "region",
            detail: "it is not supported yet".to_owned(),
        });
    }
    if options.tiling.is_some() {
        return Err(DetectError::InvalidOption {
            field: "tiling",
            detail: "it is not supported yet".to_owned(),
        });
    }
    Ok(DetectOptions {
        score_threshold: threshold("score_threshold", options.score_threshold)?,
        iou_threshold: threshold("iou_threshold", options.iou_threshold)?,
        max_detections: options.max_detections.map(max_detections).transpose()?,
        class_agnostic_nms: options.class_agnostic_nms,
        labels: options.labels,
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
pub(super) fn model(status: &ModelStatus) -> pb::Model {
    let mut model = pb::Model {
        model: Some(pb::ModelRef {
            name: status.name.clone(),
            version: status
                .version
                .map_or_else(String::new, |version| version.to_string()),
        }),
        state_detail: status.detail.clone(),
        is_default: status.is_default,
        ..pb::Model::default()
    };
    match &status.state {
        ModelState::Loading => model.set_state(pb::ModelState::Loading),
        ModelState::Failed => model.set_state(pb::ModelState::Failed),
        ModelState::Ready(ready) => {
            model.set_state(pb::ModelState::Ready);
            model.input_width = ready.input.width;
            model.input_height = ready.input.height;
            model.max_batch_size = saturating(ready.max_batch_size);
            model.labels.clone_from(&ready.labels);
            model.devices = ready.devices.iter().map(ToString::to_string).collect();
            model.default_options = Some(effective_options(&ready.defaults));
        }
    }
    model
}

fn detection(detection: Detection) -> pb::Detection {
    pb::Detection {
        r#box: Some(bounding_box(detection.bbox)),
        score: detection.score,
        class_id: detection.class.0,
        label: detection.label,
        track_id: None,
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
        region: None,
        tiling: None,
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
        order_wait: None,
        tiles: 1,
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
    fn what_is_not_served_yet_is_refused_rather_than_ignored() {
        let region = pb::DetectOptions {
            region: Some(pb::BoundingBox::default()),
            ..Default::default()
        };
        assert_eq!(invalid_field(with_options(region)), "region");
        let tiling = pb::DetectOptions {
            tiling: Some(pb::Tiling::default()),
            ..Default::default()
        };
        assert_eq!(invalid_field(with_options(tiling)), "tiling");
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
