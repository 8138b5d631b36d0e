//! `detectd models`: what is in a repository, and whether it would load.

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use tokio_util::sync::CancellationToken;

use super::{ConfigFlags, Exit, terminal};
use crate::app::{self, AppError};
use crate::config::Config;
use crate::model::ModelRepository;
use crate::pipeline::{Pipeline, ReadyModel};

/// Looks at a model repository without serving it.
#[derive(Debug, Args)]
pub(super) struct Models {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// What is in the repository.
    List(ConfigFlags),
    /// Load each model on its devices, warm it, and say whether it would serve.
    Check(ConfigFlags),
}

// === impl Models ===

impl Models {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        match self.command {
            Command::List(flags) => list(&flags),
            Command::Check(flags) => check(&flags),
        }
    }
}

/// The repository, of which there has to be something.
fn open(config: &Config) -> anyhow::Result<ModelRepository> {
    let repository = ModelRepository::open(&config.models)?;
    repository
        .strays()
        .iter()
        .for_each(|stray| terminal::complain(stray));
    if repository.entries().is_empty() {
        bail!("there is no model in {}", config.models.display());
    }
    Ok(repository)
}

fn list(flags: &ConfigFlags) -> anyhow::Result<Exit> {
    let repository = open(&flags.load(&[])?)?;
    for entry in repository.entries() {
        let versions = match &entry.versions[..] {
            [] => "no version".to_owned(),
            versions => versions
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", "),
        };
        let what = match &entry.spec {
            Ok(spec) => spec.description.clone(),
            Err(error) => format!("FAILED: {error}"),
        };
        terminal::say(&format!("{}  [{versions}]  {what}", entry.name));
    }
    Ok(Exit::Success)
}

fn check(flags: &ConfigFlags) -> anyhow::Result<Exit> {
    let config = flags.load(&[])?;
    let repository = open(&config)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let stop = CancellationToken::new();
    let pipeline = Pipeline::new(
        &config.pipeline,
        repository,
        None,
        app::engines(&config)?,
        stop,
        &mut prometheus_client::registry::Registry::default(),
    )
    .map_err(AppError::Thread)?;
    let mut code = Exit::Success;
    for (entry, outcome) in runtime.block_on(pipeline.check()) {
        match outcome {
            Ok(ready) => terminal::say(&format!("{}  ok  {}", entry.name, describe(&ready))),
            Err(error) if entry.is_only_a_card() => {
                terminal::say(&format!("{}  no network  {error}", entry.name));
            }
            Err(error) => {
                terminal::say(&format!("{}  FAILED  {error}", entry.name));
                code = Exit::Failure;
            }
        }
    }
    Ok(code)
}

fn describe(ready: &ReadyModel) -> String {
    let devices: Vec<String> = ready.devices.iter().map(ToString::to_string).collect();
    format!(
        "input {}, {} labels, batches up to {}, on {}",
        ready.input,
        ready.labels.len(),
        ready.max_batch_size,
        devices.join(", ")
    )
}
