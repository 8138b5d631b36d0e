//! `detectd detect`: a client. Sends photos, prints the boxes, draws them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use serde_json::json;
use tonic::transport::{Channel, Endpoint};
use tonic_types::StatusExt;

use super::{Exit, terminal};
use crate::grpc::pb;
use crate::grpc::pb::detection_service_client::DetectionServiceClient;
use crate::vision::draw::{Annotation, annotate, encode_jpeg};
use crate::vision::{BoundingBox, DecodeLimits, decode};

/// Sends photos to a server, prints the boxes and draws them.
#[derive(Debug, Args)]
pub(super) struct Detect {
    /// Photos: JPEG, PNG, WebP, GIF or BMP.
    #[arg(required = true, value_name = "PHOTO")]
    photos: Vec<PathBuf>,
    /// The server's gRPC address.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:50051")]
    addr: String,
    /// The model; the server's default when unset.
    #[arg(long, value_name = "NAME", default_value = "")]
    model: String,
    /// Leave out boxes scoring below this; the model's default when unset.
    #[arg(long, value_name = "SCORE")]
    score_threshold: Option<f32>,
    /// Look at each photo in tiles of so many pixels a side besides: finds small objects in large photos. 0 is as large as
    /// the model's input.
    #[arg(long, value_name = "PIXELS")]
    tile_size: Option<u32>,
    /// What neighbouring tiles share, as a part of a tile's side, 0 to 0.9; 0.2 when unset.
    #[arg(long, value_name = "SHARE")]
    tile_overlap: Option<f32>,
    /// Write each photo with its boxes into this folder.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON object a photo.
    #[arg(long)]
    json: bool,
    /// How long to wait for each answer, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    timeout: f64,
}

/// The server's own limit may be smaller; it says so itself.
const MAX_MESSAGE: usize = 256 << 20;

// === impl Detect ===

impl Detect {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let timeout = Duration::try_from_secs_f64(self.timeout).context("--timeout")?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        runtime.block_on(async {
            let mut client = connect(&self.addr, timeout).await?;
            if let Some(out) = &self.out {
                std::fs::create_dir_all(out)
                    .with_context(|| format!("cannot make {}", out.display()))?;
            }
            let mut code = Exit::Success;
            for photo in &self.photos {
                // One bad photo does not keep the others from being looked at.
                if let Err(error) = self.photo(&mut client, photo, timeout).await {
                    terminal::complain(&format!("{}: {error:#}", photo.display()));
                    code = Exit::Failure;
                }
            }
            Ok(code)
        })
    }

    /// Either of its settings asks for it.
    fn tiling(&self) -> Option<pb::Tiling> {
        let asked = self.tile_size.is_some() || self.tile_overlap.is_some();
        asked.then(|| pb::Tiling {
            tile_size: self.tile_size.unwrap_or(0),
            overlap: self.tile_overlap,
        })
    }

    async fn photo(
        &self,
        client: &mut DetectionServiceClient<Channel>,
        photo: &Path,
        timeout: Duration,
    ) -> anyhow::Result<()> {
        let encoded = std::fs::read(photo).context("cannot read it")?;
        let options = pb::DetectOptions {
            score_threshold: self.score_threshold,
            tiling: self.tiling(),
            ..Default::default()
        };
        let request = pb::DetectRequest {
            model: self.model.clone(),
            image: Some(pb::Image {
                source: Some(pb::image::Source::Encoded(encoded.clone().into())),
            }),
            options: Some(options),
            ..Default::default()
        };
        // The server is told as well: it does nothing for an answer that nobody waits for.
        let mut request = tonic::Request::new(request);
        request.set_timeout(timeout);
        let response = match client.detect(request).await {
            Ok(response) => response.into_inner(),
            Err(status) => {
                let details = status.get_error_details();
                let reason = details.error_info().map_or("", |info| info.reason.as_str());
                bail!("{:?} {reason}: {}", status.code(), status.message());
            }
        };
        match self.json {
            true => terminal::say(&as_json(photo, &response).to_string()),
            false => as_text(photo, &response)
                .iter()
                .for_each(|line| terminal::say(line)),
        }
        if let Some(out) = &self.out {
            let drawn = drawing(out, photo)?;
            draw(&encoded, &response, &drawn)?;
            terminal::say_unless(self.json, &format!("  drawn in {}", drawn.display()));
        }
        Ok(())
    }
}

async fn connect(addr: &str, timeout: Duration) -> anyhow::Result<DetectionServiceClient<Channel>> {
    let channel = Endpoint::from_shared(format!("http://{addr}"))
        .with_context(|| format!("--addr {addr} is not HOST:PORT"))?
        .connect_timeout(timeout)
        .connect()
        .await
        .with_context(|| format!("no server answers at {addr}; start one with `detectd serve`"))?;
    Ok(DetectionServiceClient::new(channel)
        .max_decoding_message_size(MAX_MESSAGE)
        .max_encoding_message_size(MAX_MESSAGE))
}

fn as_text(photo: &Path, response: &pb::DetectResponse) -> Vec<String> {
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
        format!(
            "  {:<16} {:.3}  [{:.1}, {:.1}, {:.1}, {:.1}]",
            found.label, found.score, b.x_min, b.y_min, b.x_max, b.y_max
        )
    }));
    lines
}

fn as_json(photo: &Path, response: &pb::DetectResponse) -> serde_json::Value {
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
                "box": {"x_min": b.x_min, "y_min": b.y_min, "x_max": b.x_max, "y_max": b.y_max},
            })
        })
        .collect();
    json!({
        "photo": photo.display().to_string(),
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
    })
}

/// A file for a photo's drawing that is not there yet: neither the photo itself nor another's drawing is ever
/// overwritten.
fn drawing(out: &Path, photo: &Path) -> anyhow::Result<PathBuf> {
    let stem = photo.file_stem().unwrap_or_default().to_string_lossy();
    let names = (1..).map(|n| match n {
        1 => format!("{stem}-boxes.jpg"),
        n => format!("{stem}-boxes-{n}.jpg"),
    });
    let free = names.map(|name| out.join(name)).find(|path| !path.exists());
    free.with_context(|| format!("there is no free name in {}", out.display()))
}

fn draw(encoded: &[u8], response: &pb::DetectResponse, path: &Path) -> anyhow::Result<()> {
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
                label: format!("{} {:.2}", found.label, found.score),
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
