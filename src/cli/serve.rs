//! `detectd serve`: the server.

use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{ConfigFlags, Exit, terminal};
use crate::app::App;
use crate::telemetry::logging;

/// Serves the models of a repository.
#[derive(Debug, Args)]
pub(super) struct Serve {
    #[command(flatten)]
    config: ConfigFlags,
    /// Where to take gRPC, like 0.0.0.0:50051; port 0 takes any.
    #[arg(long, value_name = "ADDR")]
    grpc_addr: Option<String>,
    /// Where to take HTTP, like 0.0.0.0:8080; port 0 takes any.
    #[arg(long, value_name = "ADDR")]
    http_addr: Option<String>,
    /// The model for requests that name none.
    #[arg(long, value_name = "NAME")]
    default_model: Option<String>,
    /// Print the effective configuration and end.
    #[arg(long)]
    print_config: bool,
}

// === impl Serve ===

impl Serve {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let config = self.config.load(&[
            ("grpc.address", self.grpc_addr.as_ref()),
            ("http.address", self.http_addr.as_ref()),
            ("default_model", self.default_model.as_ref()),
        ])?;
        if self.print_config {
            terminal::say(config.to_toml().trim_end());
            return Ok(Exit::Success);
        }
        logging::start(config.log.targets()?);
        raise_file_limit();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        runtime.block_on(async {
            // Before the ports are open: whoever sees an address may already send a signal.
            let mut signals = Signals::listen().context("cannot listen for signals")?;
            let app = App::bind(config).await?;
            let addresses = app.addresses();
            tracing::info!("listening grpc={} http={}", addresses.grpc, addresses.http);
            let mut again = Signals::listen().context("cannot listen for signals")?;
            tokio::select! {
                // Both see the first signal; `again` takes it and waits for the second.
                ended = app.run(signals.next()) => ended?,
                () = again.insist() => {
                    tracing::warn!("a second signal ends the server at once");
                    return Ok(Exit::Failure);
                }
            }
            Ok(Exit::Success)
        })
    }
}

/// Lets the process have as many files as the system lets it: each connection is one, and the usual soft limit of
/// 1,024 is a relic of `select`.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the limit on open files cannot be raised");
    }
}

/// How long after a signal another one is taken for its echo.
const ECHO: Duration = Duration::from_secs(1);

/// SIGTERM from a supervisor, SIGINT from a terminal.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

// === impl Signals ===

impl Signals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Returns on a signal that comes well after the first. Supervisors that signal a whole group, and people with
    /// heavy fingers, send the first one twice.
    async fn insist(&mut self) {
        self.next().await;
        let first = Instant::now();
        while first.elapsed() < ECHO {
            self.next().await;
        }
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
