//! `detectd detect`: a client. Sends photos, prints the boxes, draws them.

mod print;
mod stream;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use tonic::transport::Channel;

use super::client::{self, ClientFlags, Refusal};
use super::{Exit, terminal};
use crate::grpc::pb;
use crate::grpc::pb::detection_service_client::DetectionServiceClient;
use print::{as_json, as_text, draw, drawing};
use stream::StreamFlags;

/// Sends photos to a server, prints the boxes and draws them.
#[derive(Debug, Args)]
pub(super) struct Detect {
    /// Photos: JPEG, PNG, WebP, GIF or BMP. With --stream also folders of them, in the order of their names.
    #[arg(required = true, value_name = "PHOTO")]
    photos: Vec<PathBuf>,
    #[command(flatten)]
    client: ClientFlags,
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
    /// Print one JSON object a photo. With --stream also of those that were dropped or failed, with why.
    #[arg(long)]
    json: bool,
    /// How long to wait for each answer, in seconds; on a stream, from the one before, while a frame has none.
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    timeout: f64,
    #[command(flatten)]
    stream: StreamFlags,
}

// === impl Detect ===

impl Detect {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let timeout = Duration::try_from_secs_f64(self.timeout).context("--timeout")?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        runtime.block_on(async {
            let mut client = self.client.connect(timeout).await?;
            if let Some(out) = &self.out {
                std::fs::create_dir_all(out)
                    .with_context(|| format!("cannot make {}", out.display()))?;
            }
            if self.stream.stream {
                return self.stream_all(client, timeout).await;
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
        let request = pb::DetectRequest {
            model: self.client.model.clone(),
            image: Some(pb::Image {
                source: Some(pb::image::Source::Encoded(encoded.clone().into())),
            }),
            options: Some(self.options()),
            ..Default::default()
        };
        let response = client::detect(client, request, timeout).await?;
        self.show(photo, None, &encoded, &response)
    }

    fn options(&self) -> pb::DetectOptions {
        pb::DetectOptions {
            score_threshold: self.score_threshold,
            tiling: self.tiling(),
            ..Default::default()
        }
    }

    fn show(
        &self,
        photo: &Path,
        frame_id: Option<u64>,
        encoded: &[u8],
        response: &pb::DetectResponse,
    ) -> anyhow::Result<()> {
        match self.json {
            true => terminal::say(&as_json(photo, frame_id, response).to_string()),
            false => as_text(photo, response)
                .iter()
                .for_each(|line| terminal::say(line)),
        }
        if let Some(out) = &self.out {
            let drawn = drawing(out, photo)?;
            draw(encoded, response, &drawn)?;
            terminal::say_unless(self.json, &format!("  drawn in {}", drawn.display()));
        }
        Ok(())
    }
}
