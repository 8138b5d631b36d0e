//! The command line and nothing else.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    detectd::cli::Cli::parse().run()
}
