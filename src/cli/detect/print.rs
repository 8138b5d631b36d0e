//! What an answer looks like: as text, as JSON, drawn.

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::json;

use crate::grpc::pb;
use crate::vision::draw::{Annotation, annotate, encode_jpeg};
use crate::vision::{BoundingBox, DecodeLimits, decode};

pub(super) fn as_text(photo: &Path, response: &pb::DetectResponse) -> Vec<String> {
    let size = response.image_size.unwrap_or_default();
    let model = response.model.clone().unwrap_or_default();
    let timings = response.timings.clone().unwrap_or_default();
    let total = timings.total.map(millis);
    let tiles = match timings.tiles {
        0 | 1 => String::new(),
        tiles => format!("  {tiles} tiles"),
    };
    let mut lines = vec![format!(
        "{}  {}x{}  {} {}  {} objects  {:.1} ms{tiles}",
        photo.display(),
        size.width,
        size.height,
        model.name,
        model.version,
        response.total_detections,
        total.unwrap_or_default()
    )];
    lines.extend(response.detections.iter().map(|found| {
        let b = found.r#box.unwrap_or_default();
        let track = found.track_id.map(|id| format!("  #{id}"));
        format!(
            "  {:<16} {:.3}  [{:.1}, {:.1}, {:.1}, {:.1}]{}",
            found.label,
            found.score,
            b.x_min,
            b.y_min,
            b.x_max,
            b.y_max,
            track.unwrap_or_default()
        )
    }));
    lines
}

pub(super) fn as_json(
    photo: &Path,
    frame_id: Option<u64>,
    response: &pb::DetectResponse,
) -> serde_json::Value {
    let size = response.image_size.unwrap_or_default();
    let model = response.model.clone().unwrap_or_default();
    let timings = response.timings.clone().unwrap_or_default();
    let detections: Vec<_> = response
        .detections
        .iter()
        .map(|found| {
            let b = found.r#box.unwrap_or_default();
            json!({
                "label": found.label,
                "class_id": found.class_id,
                "score": found.score,
                "track_id": found.track_id,
                "box": {"x_min": b.x_min, "y_min": b.y_min, "x_max": b.x_max, "y_max": b.y_max},
            })
        })
        .collect();
    let mut object = json!({
        "file": photo.display().to_string(),
        "image_size": {"width": size.width, "height": size.height},
        "model": {"name": model.name, "version": model.version},
        "total_detections": response.total_detections,
        "detections": detections,
        "timings_ms": {
            "queue": timings.queue.map(millis),
            "preprocess": timings.preprocess.map(millis),
            "batch_wait": timings.batch_wait.map(millis),
            "inference": timings.inference.map(millis),
            "postprocess": timings.postprocess.map(millis),
            "total": timings.total.map(millis),
        },
        "batch_size": timings.batch_size,
        "tiles": timings.tiles,
        "device": timings.device,
    });
    if let Some(id) = frame_id {
        object["frame_id"] = id.into();
    }
    object
}

/// The line of a frame without detections.
pub(super) fn frame_json(
    frame_id: u64,
    file: &Path,
    what: &str,
    why: &serde_json::Value,
) -> String {
    json!({"frame_id": frame_id, "file": file.display().to_string(), what: why}).to_string()
}

/// A file for a photo's drawing that is not there yet: neither the photo itself nor another's drawing is ever
/// overwritten.
pub(super) fn drawing(out: &Path, photo: &Path) -> anyhow::Result<PathBuf> {
    let stem = photo.file_stem().unwrap_or_default().to_string_lossy();
    let names = (1..).map(|n| match n {
        1 => format!("{stem}-boxes.jpg"),
        n => format!("{stem}-boxes-{n}.jpg"),
    });
    let free = names.map(|name| out.join(name)).find(|path| !path.exists());
    free.with_context(|| format!("there is no free name in {}", out.display()))
}

pub(super) fn draw(
    encoded: &[u8],
    response: &pb::DetectResponse,
    path: &Path,
) -> anyhow::Result<()> {
    // The server has taken it, so its pixel limit holds; this end only has to read it again.
    let picture = decode(
        encoded,
        &DecodeLimits {
            max_pixels: u64::MAX,
        },
    )
    .context("cannot read it here")?;
    let annotations: Vec<Annotation> = response
        .detections
        .iter()
        // The weakest first, so that the strongest is drawn on top.
        .rev()
        .map(|found| {
            let b = found.r#box.unwrap_or_default();
            Annotation {
                bbox: BoundingBox {
                    x_min: b.x_min,
                    y_min: b.y_min,
                    x_max: b.x_max,
                    y_max: b.y_max,
                },
                label: match found.track_id {
                    Some(id) => format!("{} #{id}", found.label),
                    None => format!("{} {:.2}", found.label, found.score),
                },
                color_index: found.class_id as usize,
            }
        })
        .collect();
    let jpeg =
        encode_jpeg(&annotate(&picture, &annotations), 90).context("cannot encode the drawing")?;
    std::fs::write(path, jpeg).with_context(|| format!("cannot write {}", path.display()))
}

fn millis(duration: prost_types::Duration) -> f64 {
    duration.seconds as f64 * 1e3 + f64::from(duration.nanos) / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawing_overwrites_neither_the_photo_nor_another_drawing() {
        let folder = tempfile::tempdir().unwrap();
        let photo = folder.path().join("1.jpg");
        std::fs::write(&photo, b"the photo").unwrap();
        let first = drawing(folder.path(), &photo).unwrap();
        assert_ne!(first, photo);
        std::fs::write(&first, b"a drawing").unwrap();
        // Another folder's photo of the same name.
        let second = drawing(folder.path(), Path::new("elsewhere/1.jpg")).unwrap();
        assert_ne!(second, first);
        assert!(!second.exists());
    }
}
