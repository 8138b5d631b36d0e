//! The command line and nothing else.

use clap::Parser;

fn main() {
    detectd::cli::Cli::parse().run()
}
