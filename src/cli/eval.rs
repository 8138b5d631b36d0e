//! `detectd eval`: a client that measures a served model as COCO does.

mod ask;
mod categories;
mod coco;
mod matching;
mod metric;
mod print;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use tonic::transport::Channel;

use super::client::{ClientFlags, Refusal};
use super::{Exit, terminal};
use crate::grpc::pb;
use crate::grpc::pb::detection_service_client::DetectionServiceClient;
use ask::Asking;
use categories::Categories;
use coco::{Found, Truth};
use metric::Scores;
use print::Report;

/// Measures a served model's average precision on pictures with annotations.
#[derive(Debug, Args)]
pub(super) struct Eval {
    /// Annotations in COCO's form: images, annotations with boxes, categories.
    #[arg(long, value_name = "FILE")]
    coco: PathBuf,
    /// The folder that the file names of the annotations' pictures start from.
    #[arg(long, value_name = "DIR")]
    images: PathBuf,
    #[command(flatten)]
    client: ClientFlags,
    /// Write what was found into this file, in COCO's form for results.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Look at the first so many pictures only.
    #[arg(long, value_name = "PICTURES")]
    limit: Option<NonZeroUsize>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Calls in flight at a time.
    #[arg(long, value_name = "CALLS", default_value = "16")]
    max_in_flight: NonZeroUsize,
    /// How long to wait for each answer, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    timeout: f64,
}

// === impl Eval ===

impl Eval {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let timeout = Duration::try_from_secs_f64(self.timeout).context("--timeout")?;
        let truth = Truth::read(&self.coco, self.limit.map(NonZeroUsize::get))?;
        if !self.images.is_dir() {
            bail!("--images {} is no folder", self.images.display());
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        runtime.block_on(self.measure(&truth, timeout))
    }

    async fn measure(&self, truth: &Truth, timeout: Duration) -> anyhow::Result<Exit> {
        let mut client = self.client.connect(timeout).await?;
        let model = self.model(&mut client, timeout).await?;
        let name = model.model.unwrap_or_default();
        let Some(categories) = Categories::new(&truth.categories, &model.labels) else {
            bail!(
                "no category of {} is a label of {}, neither by name nor by id",
                self.coco.display(),
                name.name
            );
        };
        // Before anything is asked: what cannot be written is known now.
        let out = self.out.as_deref().map(|path| self.create(path));
        let out = out.transpose()?;
        let began = Instant::now();
        let asking = Asking {
            client,
            model: &name,
            labels: categories.wanted(),
            images: &self.images,
            timeout,
            max_in_flight: self.max_in_flight.get(),
        };
        let answers = asking.all(truth, &categories).await;
        if let Some((path, file)) = out {
            write(file, &answers.found)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        let report = Report {
            model: &name,
            truth,
            categories: &categories,
            scores: Scores::new(truth, &answers.found),
            answers: &answers,
            took: began.elapsed(),
        };
        match self.json {
            true => terminal::say(&report.as_json().to_string()),
            false => report.as_text().iter().for_each(|line| terminal::say(line)),
        }
        Ok(match answers.failed {
            0 => Exit::Success,
            _ => Exit::Failure,
        })
    }

    /// The model as the server lists it: its version and labels have to be the same for all pictures.
    async fn model(
        &self,
        client: &mut DetectionServiceClient<Channel>,
        timeout: Duration,
    ) -> anyhow::Result<pb::Model> {
        let mut request = tonic::Request::new(pb::ListModelsRequest {});
        request.set_timeout(timeout);
        let mut models = match client.list_models(request).await {
            Ok(response) => response.into_inner().models,
            Err(status) => bail!(Refusal::from(&status).to_string()),
        };
        let name = |model: &pb::Model| model.model.clone().unwrap_or_default().name;
        let asked = &self.client.model;
        let position = models.iter().position(|model| match asked.is_empty() {
            true => model.is_default,
            false => name(model) == *asked,
        });
        let Some(position) = position else {
            let names: Vec<String> = models.iter().map(name).collect();
            let names = names.join(", ");
            match asked.is_empty() {
                true => bail!("the server has no default model; --model names one of {names}"),
                false => bail!("the server has no model {asked}; it has {names}"),
            }
        };
        let model = models.swap_remove(position);
        match model.state() {
            pb::ModelState::Ready => Ok(model),
            state => {
                let why = match model.state_detail.as_str() {
                    "" => format!("{state:?}").to_lowercase(),
                    detail => detail.to_owned(),
                };
                bail!("{} is not ready: {why}", name(&model))
            }
        }
    }

    fn create<'a>(&self, path: &'a Path) -> anyhow::Result<(&'a Path, File)> {
        let real = |path: &Path| path.canonicalize().ok();
        if real(path).is_some_and(|path| Some(path) == real(&self.coco)) {
            bail!("--out {} is the file of the annotations", path.display());
        }
        let file = File::create(path);
        Ok((
            path,
            file.with_context(|| format!("cannot write {}", path.display()))?,
        ))
    }
}

fn write(file: File, found: &[Found]) -> anyhow::Result<()> {
    let mut file = BufWriter::new(file);
    serde_json::to_writer(&mut file, found)?;
    Ok(file.flush()?)
}
