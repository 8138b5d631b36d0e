//! The pictures of a file, asked for one after another with several calls in flight.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use futures_util::{StreamExt, stream};
use tonic::transport::Channel;

use super::categories::Categories;
use super::coco::{Found, Picture, Truth};
use super::terminal;
use crate::cli::client;
use crate::grpc::pb;
use crate::grpc::pb::detection_service_client::DetectionServiceClient;

/// Everything that may be worth something: precision at the last recalls comes from boxes as unsure as this.
const SCORE_THRESHOLD: f32 = 0.001;

/// COCO looks at no more in a picture.
const MAX_DETECTIONS: u32 = 100;

/// What every call has in common.
pub(super) struct Asking<'a> {
    pub(super) client: DetectionServiceClient<Channel>,
    pub(super) model: &'a pb::ModelRef,
    pub(super) labels: Vec<String>,
    pub(super) images: &'a Path,
    pub(super) timeout: Duration,
    pub(super) max_in_flight: usize,
}

/// What came back.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// In the order of the pictures, whichever was answered first.
    pub(super) found: Vec<Found>,
    /// Pictures without an answer.
    pub(super) failed: usize,
    /// Pictures of another size than the file says: its boxes lie elsewhere in them.
    pub(super) resized: Vec<String>,
}

// === impl Asking ===

impl Asking<'_> {
    /// Asks for every picture. One that fails is told of, and does not keep the others from being looked at.
    pub(super) async fn all(&self, truth: &Truth, categories: &Categories<'_>) -> Answers {
        let mut progress = terminal::Progress::default();
        let pictures = &truth.pictures;
        let mut calls = stream::iter(pictures.iter().enumerate())
            .map(async |(place, picture)| (place, self.one(picture).await))
            .buffer_unordered(self.max_in_flight);
        let mut answers = Answers::default();
        let mut found: Vec<Vec<Found>> = vec![Vec::new(); pictures.len()];
        let mut done = 0;
        while let Some((place, outcome)) = calls.next().await {
            let picture = &pictures[place];
            match outcome {
                Ok(response) => {
                    answers.resized.extend(resized(picture, &response));
                    found[place] = rows(picture, &response, categories);
                }
                Err(error) => {
                    answers.failed += 1;
                    progress.clear();
                    let path = self.images.join(&picture.file_name);
                    terminal::complain(&format!("{}: {error:#}", path.display()));
                }
            }
            done += 1;
            progress.show(&format!("{done} of {} pictures", pictures.len()));
        }
        progress.clear();
        answers.found = found.into_iter().flatten().collect();
        answers
    }

    async fn one(&self, picture: &Picture) -> anyhow::Result<pb::DetectResponse> {
        let encoded =
            std::fs::read(self.images.join(&picture.file_name)).context("cannot read it")?;
        let request = pb::DetectRequest {
            model: self.model.name.clone(),
            model_version: self.model.version.clone(),
            image: Some(pb::Image {
                source: Some(pb::image::Source::Encoded(encoded.into())),
            }),
            options: Some(pb::DetectOptions {
                score_threshold: Some(SCORE_THRESHOLD),
                max_detections: Some(MAX_DETECTIONS),
                labels: self.labels.clone(),
                ..Default::default()
            }),
        };
        // Clones share the connection.
        client::detect(&mut self.client.clone(), request, self.timeout).await
    }
}

fn rows(
    picture: &Picture,
    response: &pb::DetectResponse,
    categories: &Categories<'_>,
) -> Vec<Found> {
    let rows = response.detections.iter().filter_map(|found| {
        let b = found.r#box.unwrap_or_default();
        let [x_min, y_min, x_max, y_max] = [b.x_min, b.y_min, b.x_max, b.y_max].map(f64::from);
        Some(Found {
            image_id: picture.id,
            category_id: categories.of(found.class_id)?,
            bbox: [x_min, y_min, x_max - x_min, y_max - y_min],
            score: f64::from(found.score),
        })
    });
    rows.collect()
}

fn resized(picture: &Picture, response: &pb::DetectResponse) -> Option<String> {
    let size = response.image_size.unwrap_or_default();
    let (width, height) = (picture.width?, picture.height?);
    ((size.width, size.height) != (width, height)).then(|| {
        format!(
            "{} is {}x{}, not {width}x{height}",
            picture.file_name, size.width, size.height
        )
    })
}
