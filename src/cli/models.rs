//! `detectd models`: what is in a repository, and whether it would load.

use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use tokio_util::sync::CancellationToken;

use super::{ConfigFlags, terminal};
use crate::app;
use crate::model::ModelRepository;
use crate::pipeline::ReadyModel;

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
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::List(flags) => list(&flags),
            Command::Check(flags) => check(&flags),
        }
    }
}

fn list(flags: &ConfigFlags) -> anyhow::Result<ExitCode> {
    let config = flags.load(&[])?;
    let repository = ModelRepository::open(&config.models)?;
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
    Ok(ExitCode::SUCCESS)
}

fn check(flags: &ConfigFlags) -> anyhow::Result<ExitCode> {
    let config = flags.load(&[])?;
    let repository = ModelRepository::open(&config.models)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let stop = CancellationToken::new();
    let pipeline = app::pipeline(
        &config,
        repository,
        None,
        stop,
        &mut prometheus_client::registry::Registry::default(),
    )?;
    let mut code = ExitCode::SUCCESS;
    for (entry, outcome) in runtime.block_on(pipeline.check()) {
        match outcome {
            Ok(ready) => terminal::say(&format!("{}  ok  {}", entry.name, describe(&ready))),
            Err(error) => {
                terminal::say(&format!("{}  FAILED  {error}", entry.name));
                code = ExitCode::FAILURE;
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
