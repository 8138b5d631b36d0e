//! The commands of the binary, one file each. They read flags and the environment, which no other room does.

mod client;
mod detect;
mod eval;
mod models;
mod serve;
mod simulate;
mod terminal;

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};

use crate::config::{Config, ConfigError};

/// An object-detection inference server: gRPC in, boxes out.
#[derive(Debug, Parser)]
#[command(name = "detectd", version, about)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the models of a repository.
    Serve(serve::Serve),
    /// Send photos to a server, print the boxes and draw them.
    Detect(detect::Detect),
    /// Measure a served model's average precision on pictures with annotations.
    Eval(eval::Eval),
    /// Look at a model repository without serving it.
    Models(models::Models),
    /// Play a scenario in virtual time, with the server's own scheduling.
    Simulate(simulate::Simulate),
}

/// Flags that belong to the configuration. Each overrides the file and the environment.
#[derive(Debug, Args)]
struct ConfigFlags {
    /// Configuration file (TOML).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Model repository.
    #[arg(long, value_name = "DIR")]
    models: Option<String>,
    /// ONNX Runtime library.
    #[arg(long, value_name = "FILE")]
    onnxruntime: Option<String>,
}

// === impl Cli ===

impl Cli {
    /// Runs the command and ends the process. What a command cannot do is told in one line on standard error.
    pub fn run(self) -> ! {
        let outcome = match self.command {
            Command::Serve(serve) => serve.run(),
            Command::Detect(detect) => detect.run(),
            Command::Eval(eval) => eval.run(),
            Command::Models(models) => models.run(),
            Command::Simulate(simulate) => simulate.run(),
        };
        let exit = outcome.unwrap_or_else(|error| {
            terminal::complain(&terminal::one_line(&error));
            match error.downcast_ref::<ConfigError>() {
                Some(_) => Exit::Usage,
                None => Exit::Failure,
            }
        });
        // Without the C++ library's destructors: they crash while one of its sessions is still being loaded, as
        // it is when a signal comes early, and there is nothing of ours that they would have to do.
        signal_hook::low_level::exit(exit as i32)
    }
}

/// How a command ended.
#[derive(Debug, Clone, Copy)]
enum Exit {
    Success = 0,
    Failure = 1,
    /// EX_USAGE: a supervisor need not try again.
    Usage = 64,
}

// === impl ConfigFlags ===

impl ConfigFlags {
    /// The effective configuration, `more` being a command's own flags.
    fn load(&self, more: &[(&'static str, Option<&String>)]) -> Result<Config, ConfigError> {
        let common = [
            ("models", self.models.as_ref()),
            ("onnxruntime", self.onnxruntime.as_ref()),
        ];
        let flags: Vec<(&'static str, String)> = common
            .iter()
            .chain(more)
            .filter_map(|(path, value)| Some((*path, (*value)?.clone())))
            .collect();
        Config::load(
            self.config.as_deref().map(Path::new),
            std::env::vars(),
            &flags,
        )
    }
}
