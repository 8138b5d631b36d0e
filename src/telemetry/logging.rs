//! Log lines on standard error.

use std::io::IsTerminal;

use serde::{Deserialize, Serialize};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// The log's settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Levels, like `info` or `info,detectd::pipeline=debug`.
    pub level: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            level: "info".to_owned(),
        }
    }
}

/// The levels cannot be understood.
#[derive(Debug, thiserror::Error)]
#[error("log.level {level:?}: {detail}")]
pub struct BadLevel {
    level: String,
    detail: String,
}

// === impl Config ===

impl Config {
    /// Reads the levels.
    ///
    /// # Errors
    /// [`BadLevel`] when they are not levels.
    pub fn targets(&self) -> Result<Targets, BadLevel> {
        let bad = |detail: String| BadLevel {
            level: self.level.clone(),
            detail,
        };
        // A bare word that is no level would be taken for a target, and mute everything else.
        for part in self.level.split(',').filter(|part| !part.contains('=')) {
            part.trim()
                .parse::<LevelFilter>()
                .map_err(|_| bad(format!("{part:?} is no level")))?;
        }
        self.level
            .parse()
            .map_err(|error: tracing_subscriber::filter::ParseError| bad(error.to_string()))
    }
}

/// Starts logging, of panics too. A second call in one process changes nothing.
pub fn start(targets: Targets) {
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        // Escape codes are for people's eyes, not for files.
        .with_ansi(std::io::stderr().is_terminal());
    let started = tracing_subscriber::registry()
        .with(targets)
        .with(lines)
        .try_init();
    if started.is_ok() {
        std::panic::set_hook(Box::new(log_panic));
    }
}

/// One line for one panic, inside the span of the call that it hit. Whoever catches it only counts it.
fn log_panic(panic: &std::panic::PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    let place = panic
        .location()
        .map(ToString::to_string)
        .unwrap_or_default();
    tracing::error!(
        thread,
        place,
        "panic: {}",
        panic.payload_as_str().unwrap_or("no message")
    );
}
