//! The configuration: the rooms' own settings, read from file < environment < flags, checked once.
//!
//! Every setting has one name, its path in the file: `grpc.address`. The environment spells it
//! `DETECTD_GRPC_ADDRESS`. A name that is not known is an error that says which is the nearest one, wherever it
//! stands: a setting that is silently ignored is a default that nobody chose.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::telemetry::logging;
use crate::{grpc, http, pipeline};

/// The longest that anybody may be made to wait: what is added to a clock has to fit into it.
const LONGEST_WAIT: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// The environment variables that are ours begin so.
pub const ENV_PREFIX: &str = "DETECTD_";

/// Everything that can be set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The model repository.
    pub models: PathBuf,
    /// The model for requests that name none; empty is the only model there is, or none.
    pub default_model: String,
    /// The ONNX Runtime library; empty is `libonnxruntime.so` beside the binary, or in `../lib`, or wherever
    /// the system's loader finds it.
    pub onnxruntime: PathBuf,
    /// gRPC.
    pub grpc: grpc::Config,
    /// HTTP.
    pub http: http::Config,
    /// What happens on SIGTERM.
    pub drain: DrainConfig,
    /// What happens to a picture.
    pub pipeline: pipeline::Config,
    /// Log lines.
    pub log: logging::Config,
}

/// What happens on SIGTERM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DrainConfig {
    /// How long requests are still taken after health says NOT_SERVING, so that balancers can look away.
    #[serde(with = "humantime_serde")]
    pub pre_drain: Duration,
    /// How long what is under way may take after that.
    #[serde(with = "humantime_serde")]
    pub grace: Duration,
}

/// What is wrong with the configuration, in one line.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}: {detail}")]
    File {
        /// Which.
        path: String,
        /// Why.
        detail: String,
    },
    /// The file is not TOML.
    #[error("{path}: {detail}")]
    Syntax {
        /// Which.
        path: String,
        /// Where and why.
        detail: String,
    },
    /// A name is not known.
    #[error("{origin}: unknown {kind} {name}{}", nearest.as_ref().map_or(String::new(), |near| format!("; did you mean {near}?")))]
    Unknown {
        /// Where it stands.
        origin: String,
        /// Key or variable.
        kind: &'static str,
        /// The name.
        name: String,
        /// The known name that looks most like it.
        nearest: Option<String>,
    },
    /// A value has the wrong type or is out of range.
    #[error("{origin}: {detail}")]
    Value {
        /// Where it stands.
        origin: String,
        /// What is wrong with it.
        detail: String,
    },
}

impl Default for Config {
    fn default() -> Self {
        Self {
            models: PathBuf::from("models"),
            default_model: String::new(),
            onnxruntime: PathBuf::new(),
            grpc: grpc::Config::default(),
            http: http::Config::default(),
            drain: DrainConfig::default(),
            pipeline: pipeline::Config::default(),
            log: logging::Config::default(),
        }
    }
}

impl Default for DrainConfig {
    fn default() -> Self {
        Self {
            pre_drain: Duration::ZERO,
            grace: Duration::from_secs(30),
        }
    }
}

// === impl Config ===

impl Config {
    /// Reads the configuration: `file` over the defaults, `environment` over it, `flags` (paths and values)
    /// over all.
    ///
    /// # Errors
    /// [`ConfigError`], one line that names the thing.
    pub fn load(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
        flags: &[(&'static str, String)],
    ) -> Result<Self, ConfigError> {
        let mut settings = defaults();
        if let Some(path) = file {
            let origin = path.display().to_string();
            let text = std::fs::read_to_string(path).map_err(|error| ConfigError::File {
                path: origin.clone(),
                detail: error.to_string(),
            })?;
            let table: Table =
                text.parse()
                    .map_err(|error: toml::de::Error| ConfigError::Syntax {
                        path: origin.clone(),
                        detail: one_line(&error),
                    })?;
            overlay(&mut settings, table, &origin, "")?;
            // Checked here, so that a value's error names the file it stands in.
            typed(&settings, &origin)?;
        }
        for (name, text) in environment {
            let Some(name) = name.strip_prefix(ENV_PREFIX) else {
                continue;
            };
            let variable = format!("{ENV_PREFIX}{name}");
            let Some(path) = paths()
                .into_iter()
                .find(|path| variable_of(path) == variable)
            else {
                let known: Vec<String> = paths().iter().map(|path| variable_of(path)).collect();
                // The prefix is common to all, and would make any two look alike.
                let bare = known
                    .iter()
                    .filter_map(|name| name.strip_prefix(ENV_PREFIX));
                let nearest = nearest(name, bare).map(|near| format!("{ENV_PREFIX}{near}"));
                return Err(ConfigError::Unknown {
                    origin: "environment".to_owned(),
                    kind: "variable",
                    name: variable,
                    nearest,
                });
            };
            set(&mut settings, &path, &text, &variable)?;
            typed(&settings, &variable)?;
        }
        for (path, text) in flags {
            let origin = format!("flag for {path}");
            set(&mut settings, path, text, &origin)?;
            typed(&settings, &origin)?;
        }
        typed(&settings, "configuration")
    }

    /// The configuration as the file that would give it.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("every setting has a form in TOML: a test writes the defaults")
    }

    fn validate(&self) -> Result<(), String> {
        if !grpc::address::is_address(&self.grpc.address) {
            return Err(format!(
                "grpc.address: {:?} is neither HOST:PORT nor unix:PATH",
                self.grpc.address
            ));
        }
        let address = |name: &str, address: &str| match address.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(()),
            _ => Err(format!("{name}: {address:?} is not HOST:PORT")),
        };
        address("http.address", &self.http.address)?;
        let message = self.grpc.max_message_size;
        // gRPC's own frame has a 32-bit length.
        if !(1_024..=u32::MAX as usize).contains(&message) {
            return Err(format!(
                "grpc.max_message_size: {message} is not in 1024..=4294967295"
            ));
        }
        let connection = &self.grpc.connection;
        if !(1..=1_000_000).contains(&connection.max_connections) {
            return Err(format!(
                "grpc.connection.max_connections: {} is not in 1..=1000000",
                connection.max_connections
            ));
        }
        if connection.max_streams == 0 {
            return Err("grpc.connection.max_streams: 0 is not at least 1".to_owned());
        }
        if connection.handshake_timeout.is_zero() {
            return Err("grpc.connection.handshake_timeout: 0s is not above 0".to_owned());
        }
        if !self.grpc.names_a_header() {
            return Err(format!(
                "grpc.source_header: {:?} is no header's name",
                self.grpc.source_header
            ));
        }
        if self.pipeline.devices.watchdog.is_zero() {
            return Err("pipeline.devices.watchdog: 0s is not above 0".to_owned());
        }
        let admission = &self.pipeline.admission;
        if !(1..=1_000_000).contains(&admission.max_requests) {
            return Err(format!(
                "pipeline.admission.max_requests: {} is not in 1..=1000000",
                admission.max_requests
            ));
        }
        if admission.max_wait.is_zero() {
            return Err("pipeline.admission.max_wait: 0s is not above 0".to_owned());
        }
        if admission.max_wait > LONGEST_WAIT {
            return Err(format!(
                "pipeline.admission.max_wait: {} is above a year, and beyond what a clock can be asked for",
                humantime_serde::re::humantime::format_duration(admission.max_wait)
            ));
        }
        if admission.max_bytes < message as u64 {
            return Err(format!(
                "pipeline.admission.max_bytes: {} is below grpc.max_message_size ({message}), so that a message which may be sent could never be admitted",
                admission.max_bytes
            ));
        }
        let cpu = &self.pipeline.cpu;
        if cpu.workers > 1_024 {
            return Err(format!(
                "pipeline.cpu.workers: {} is not in 0..=1024",
                cpu.workers
            ));
        }
        if !(0..=19).contains(&cpu.niceness) {
            return Err(format!(
                "pipeline.cpu.niceness: {} is not in 0..=19",
                cpu.niceness
            ));
        }
        if self.pipeline.decode.max_pixels == 0 {
            return Err("pipeline.decode.max_pixels: 0 is not at least 1".to_owned());
        }
        self.log
            .targets()
            .map(drop)
            .map_err(|error| error.to_string())
    }
}

/// The defaults as a table: at the same time the list of everything that can be set.
fn defaults() -> Table {
    match Value::try_from(Config::default()) {
        Ok(Value::Table(table)) => table,
        _ => unreachable!("a struct of settings is a table: a test reads the defaults back"),
    }
}

/// The path of every setting.
fn paths() -> Vec<String> {
    fn walk(table: &Table, prefix: &str, paths: &mut Vec<String>) {
        for (key, value) in table {
            match value {
                Value::Table(inner) => walk(inner, &format!("{prefix}{key}."), paths),
                _ => paths.push(format!("{prefix}{key}")),
            }
        }
    }
    let mut paths = Vec::new();
    walk(&defaults(), "", &mut paths);
    paths
}

/// `grpc.max_message_size` is `DETECTD_GRPC_MAX_MESSAGE_SIZE`.
fn variable_of(path: &str) -> String {
    format!("{ENV_PREFIX}{}", path.replace('.', "_").to_uppercase())
}

/// Lays `over` onto `settings`, which hold every key there is.
fn overlay(
    settings: &mut Table,
    over: Table,
    origin: &str,
    prefix: &str,
) -> Result<(), ConfigError> {
    for (key, value) in over {
        match (settings.get_mut(&key), value) {
            (Some(Value::Table(inner)), Value::Table(over)) => {
                overlay(inner, over, origin, &format!("{prefix}{key}."))?;
            }
            (Some(setting), value) => *setting = value,
            (None, _) => {
                return Err(ConfigError::Unknown {
                    origin: origin.to_owned(),
                    kind: "key",
                    nearest: nearest(&key, settings.keys().map(String::as_str))
                        .map(|near| format!("{prefix}{near}")),
                    name: format!("{prefix}{key}"),
                });
            }
        }
    }
    Ok(())
}

/// Sets one path to a value given as text, read as the type that the setting has.
fn set(settings: &mut Table, path: &str, text: &str, origin: &str) -> Result<(), ConfigError> {
    let mut keys: Vec<&str> = path.split('.').collect();
    let last = keys.pop().unwrap_or_default();
    let mut table = settings;
    for key in keys {
        table = match table.get_mut(key) {
            Some(Value::Table(inner)) => inner,
            _ => unreachable!("a path comes from the settings themselves"),
        };
    }
    let wrong = |kind: &str| ConfigError::Value {
        origin: origin.to_owned(),
        detail: format!("{text:?} is not {kind}"),
    };
    let value = match table.get(last) {
        Some(Value::Integer(_)) => {
            Value::Integer(text.parse().map_err(|_| wrong("a whole number"))?)
        }
        Some(Value::Boolean(_)) => {
            Value::Boolean(text.parse().map_err(|_| wrong("true or false"))?)
        }
        _ => Value::String(text.to_owned()),
    };
    table.insert(last.to_owned(), value);
    Ok(())
}

fn typed(settings: &Table, origin: &str) -> Result<Config, ConfigError> {
    let value = |detail: String| ConfigError::Value {
        origin: origin.to_owned(),
        detail,
    };
    let config: Config = Value::Table(settings.clone())
        .try_into()
        .map_err(|error| value(one_line(&error)))?;
    config.validate().map_err(value)?;
    Ok(config)
}

/// The known name that looks most like `name`, if any is near enough to be meant.
fn nearest<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<String> {
    let scored = known.map(|known| (strsim::jaro_winkler(name, known), known));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 > 0.7).then(|| best.1.to_owned())
}

/// TOML's errors draw the line they are about; ours have one line.
fn one_line(error: &toml::de::Error) -> String {
    error
        .to_string()
        .lines()
        .filter(|line| !line.contains('|'))
        .collect::<Vec<_>>()
        .join(": ")
        .trim()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(
        file: &str,
        environment: &[(&str, &str)],
        flags: &[(&'static str, &str)],
    ) -> Result<Config, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("detectd.toml");
        std::fs::write(&path, file).unwrap();
        let environment = environment
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let flags: Vec<_> = flags
            .iter()
            .map(|(path, value)| (*path, (*value).to_owned()))
            .collect();
        Config::load(Some(&path), environment, &flags).map_err(|error| error.to_string())
    }

    #[test]
    fn the_defaults_are_valid_and_survive_the_file_form() {
        let printed = Config::default().to_toml();
        assert_eq!(load(&printed, &[], &[]).unwrap(), Config::default());
    }

    #[test]
    fn the_environment_overrides_the_file_and_a_flag_overrides_both() {
        let file = "models = 'a'\n[grpc]\naddress = 'file:1'\n[http]\naddress = 'file:1'";
        let environment = [
            ("DETECTD_GRPC_ADDRESS", "env:2"),
            ("DETECTD_HTTP_ADDRESS", "env:2"),
            ("HOME", "x"),
        ];
        let config = load(file, &environment, &[("http.address", "flag:3")]).unwrap();
        assert_eq!(config.models, Path::new("a"));
        assert_eq!(
            (config.grpc.address.as_str(), config.http.address.as_str()),
            ("env:2", "flag:3")
        );
    }

    #[test]
    fn values_from_the_environment_have_the_settings_types() {
        let environment = [
            ("DETECTD_PIPELINE_ADMISSION_MAX_REQUESTS", "7"),
            ("DETECTD_GRPC_REFLECTION", "false"),
            ("DETECTD_DRAIN_GRACE", "1m 5s"),
        ];
        let config = load("", &environment, &[]).unwrap();
        assert_eq!(config.pipeline.admission.max_requests, 7);
        assert!(!config.grpc.reflection);
        assert_eq!(config.drain.grace, Duration::from_secs(65));
    }

    #[test]
    fn an_unknown_key_is_named_with_its_nearest() {
        let error = load("[pipeline.admission]\nmax_request = 8", &[], &[]).unwrap_err();
        assert!(error.contains("unknown key pipeline.admission.max_request; did you mean pipeline.admission.max_requests?"), "{error}");
        let error = load("[gprc]\naddress = 'a:1'", &[], &[]).unwrap_err();
        assert!(
            error.contains("unknown key gprc; did you mean grpc?"),
            "{error}"
        );
        let error = load("zzz = 1", &[], &[]).unwrap_err();
        assert!(error.ends_with("unknown key zzz"), "{error}");
    }

    #[test]
    fn an_unknown_variable_with_our_prefix_is_named_with_its_nearest() {
        let error = load("", &[("DETECTD_GRPC_ADDR", "a:1")], &[]).unwrap_err();
        assert!(
            error
                .contains("unknown variable DETECTD_GRPC_ADDR; did you mean DETECTD_GRPC_ADDRESS?"),
            "{error}"
        );
    }

    #[test]
    fn a_value_of_a_wrong_type_or_out_of_range_is_named() {
        for (file, names) in [
            (
                "[pipeline.admission]\nmax_requests = 'many'",
                "max_requests",
            ),
            (
                "[pipeline.admission]\nmax_wait = '400000000000years'",
                "pipeline.admission.max_wait",
            ),
            (
                "[pipeline.admission]\nmax_requests = 0",
                "pipeline.admission.max_requests",
            ),
            (
                "[pipeline.admission]\nmax_bytes = 5",
                "pipeline.admission.max_bytes",
            ),
            ("[pipeline.cpu]\nniceness = 40", "pipeline.cpu.niceness"),
            (
                "[pipeline.decode]\nmax_pixels = 0",
                "pipeline.decode.max_pixels",
            ),
            ("[grpc]\naddress = 'nowhere'", "grpc.address"),
            ("[grpc]\nmax_message_size = 1", "grpc.max_message_size"),
            ("[drain]\ngrace = 'soon'", "grace"),
            ("[log]\nlevel = 'loud=very'", "log.level"),
            ("[log]\nlevel = 'loud'", "log.level"),
            ("grpc = 3", "grpc"),
        ] {
            let error = load(file, &[], &[]).unwrap_err();
            assert!(error.contains(names), "{file}: {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
        let error = load("", &[("DETECTD_PIPELINE_CPU_WORKERS", "two")], &[]).unwrap_err();
        assert!(
            error.contains("DETECTD_PIPELINE_CPU_WORKERS") && error.contains("whole number"),
            "{error}"
        );
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Config::load(Some(Path::new("/nowhere/detectd.toml")), [], &[]).unwrap_err();
        assert!(error.to_string().contains("/nowhere/detectd.toml"));
    }
}
