//! [`Document`]: a scenario's file, whose values can be replaced by path before it is read.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::{Table, Value};

use super::check::Wrong;
use super::scenario::{Arrivals, Scenario};

/// Bytes of a scenario or a trace.
const LONGEST_FILE: u64 = 64 << 20;

/// A scenario's file.
#[derive(Debug, Clone)]
pub struct Document {
    table: Table,
    origin: String,
    folder: PathBuf,
}

/// What is wrong with a scenario, in one line but for what a reader of TOML points at.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// A file cannot be read.
    #[error("cannot read {path}: {detail}")]
    File {
        /// Which.
        path: String,
        /// Why.
        detail: String,
    },
    /// It is not TOML, or a name or a type is wrong.
    #[error("{origin}: {detail}")]
    Syntax {
        /// Which file.
        origin: String,
        /// What and where.
        detail: String,
    },
    /// A value makes no sense.
    #[error("{origin}: {path}: {detail}")]
    Value {
        /// Which file.
        origin: String,
        /// Which value.
        path: String,
        /// What is wrong with it.
        detail: String,
    },
}

// === impl Document ===

impl Document {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, or says what no scenario says.
    pub fn read(path: &Path) -> Result<Self, ScenarioError> {
        let origin = path.display().to_string();
        let text = read_text(path)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::parse(&text, &origin, folder)
    }

    /// Takes `text` from `origin`, whose neighbours are in `folder`.
    ///
    /// # Errors
    /// When it says what no scenario says. What is missing may still be set.
    pub fn parse(text: &str, origin: &str, folder: &Path) -> Result<Self, ScenarioError> {
        let syntax = |error: toml::de::Error| ScenarioError::Syntax {
            origin: origin.to_owned(),
            detail: error.to_string().trim_end().to_owned(),
        };
        // Read once as it stands: only this way an error names a line.
        toml::from_str::<Scenario>(text).map_err(syntax)?;
        Ok(Self {
            table: text.parse().map_err(syntax)?,
            origin: origin.to_owned(),
            folder: folder.to_owned(),
        })
    }

    /// Replaces a value: `model.ssd300.device.0.count`. A member of a list goes by its number or its name.
    ///
    /// # Errors
    /// When the path leads nowhere.
    pub fn set(&mut self, path: &str, value: Value) -> Result<(), ScenarioError> {
        let (parents, last) = match path.rsplit_once('.') {
            Some((parents, last)) => (parents.split('.').collect(), last),
            None => (Vec::new(), path),
        };
        let lost = self.lacks(path, "there is nothing there");
        let mut root = Value::Table(std::mem::take(&mut self.table));
        let mut at = Some(&mut root);
        for key in parents {
            at = at.and_then(|value| child(value, key));
        }
        let set = match at {
            Some(Value::Table(table)) => {
                table.insert(last.to_owned(), value);
                true
            }
            Some(list @ Value::Array(_)) => match child(list, last) {
                Some(place) => {
                    *place = value;
                    true
                }
                None => false,
            },
            _ => false,
        };
        if let Value::Table(table) = root {
            self.table = table;
        }
        set.then_some(()).ok_or(lost)
    }

    /// Like [`Document::set`], from `path=value` with the value as in TOML; the quotes of a word may be left out.
    ///
    /// # Errors
    /// When it is no such pair, or the path leads nowhere.
    pub fn set_text(&mut self, pair: &str) -> Result<(), ScenarioError> {
        let Some((path, text)) = pair.split_once('=') else {
            return Err(self.lacks(pair, "write it as key.path=value"));
        };
        let (path, text) = (path.trim(), text.trim());
        let parsed = format!("value = {text}").parse::<Table>();
        let value = parsed.ok().and_then(|mut table| table.remove("value"));
        self.set(
            path,
            value.unwrap_or_else(|| Value::String(text.to_owned())),
        )
    }

    /// An error at `path`.
    pub(super) fn lacks(&self, path: &str, detail: &str) -> ScenarioError {
        self.wrong((path.to_owned(), detail.to_owned()))
    }

    /// What is wrong as an error.
    pub(super) fn wrong(&self, (path, detail): Wrong) -> ScenarioError {
        ScenarioError::Value {
            origin: self.origin.clone(),
            path,
            detail,
        }
    }

    /// The scenario as it stands now, with its traces.
    ///
    /// # Errors
    /// When a value makes no sense, a trace cannot be read, or it is too much work.
    pub fn scenario(&self) -> Result<Scenario, ScenarioError> {
        let read: Result<Scenario, toml::de::Error> = self.table.clone().try_into();
        let mut scenario = read.map_err(|error| ScenarioError::Syntax {
            origin: self.origin.clone(),
            detail: error.to_string().trim_end().replace('\n', " "),
        })?;
        scenario.check().map_err(|wrong| self.wrong(wrong))?;
        for source in &mut scenario.source {
            if let Arrivals::Trace { file, times } = &mut source.arrivals {
                *times = read_trace(&self.folder.join(file))?;
            }
        }
        scenario.check_work().map_err(|wrong| self.wrong(wrong))?;
        Ok(scenario)
    }
}

/// A member of a table by its key, of a list by its number or by its `name`.
fn child<'a>(value: &'a mut Value, key: &str) -> Option<&'a mut Value> {
    match value {
        Value::Table(table) => table.get_mut(key),
        Value::Array(list) => {
            let named = |item: &Value| item.get("name").and_then(Value::as_str) == Some(key);
            let index = key.parse().ok().or_else(|| list.iter().position(named))?;
            list.get_mut(index)
        }
        _ => None,
    }
}

fn read_text(path: &Path) -> Result<String, ScenarioError> {
    let failed = |detail: String| ScenarioError::File {
        path: path.display().to_string(),
        detail,
    };
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(LONGEST_FILE + 1).read_to_string(&mut text))
        .map_err(|error| failed(error.to_string()))?;
    if text.len() as u64 > LONGEST_FILE {
        return Err(failed(format!("is longer than {LONGEST_FILE} bytes")));
    }
    Ok(text)
}

fn read_trace(path: &Path) -> Result<Vec<Duration>, ScenarioError> {
    let origin = path.display().to_string();
    let text = read_text(path)?;
    let mut times: Vec<Duration> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let number = line.split('#').next().unwrap_or_default().trim();
        if number.is_empty() {
            continue;
        }
        let seconds: Option<f64> = number.parse().ok();
        let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        match time.filter(|time| times.last().is_none_or(|last| last <= time)) {
            Some(time) => times.push(time),
            None => {
                return Err(ScenarioError::Syntax {
                    origin,
                    detail: format!(
                        "line {}: takes seconds, never less than the line before",
                        index + 1
                    ),
                });
            }
        }
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = r#"
        duration = "1s"
        workers = 2
        [[model]]
        name = "a"
        prepare = "1ms"
        device = [{ latency = { 1 = "5ms" } }]
        [[source]]
        name = "s"
        arrivals = { poisson = { rate = 10 } }
    "#;

    fn document() -> Document {
        Document::parse(LEAST, "it", Path::new("")).unwrap()
    }

    #[test]
    fn values_are_replaced_by_number_and_by_name() {
        let mut document = document();
        document.set_text("model.a.device.0.count = 4").unwrap();
        document.set_text("source.0.deadline=50ms").unwrap();
        document
            .set_text("plan={ p99 = \"1s\", devices = [1, 2], workers = [1, 2] }")
            .unwrap();
        let scenario = document.scenario().unwrap();
        assert_eq!(scenario.model[0].device[0].count, 4);
        assert_eq!(
            scenario.source[0].deadline.unwrap().0,
            Duration::from_millis(50)
        );
        assert_eq!(scenario.plan.unwrap().devices, [1, 2]);
    }

    #[test]
    fn what_is_wrong_is_told_by_its_place() {
        let told = |pair: &str| {
            let mut document = document();
            let set = document.set_text(pair);
            set.and_then(|()| document.scenario().map(|_| ()))
                .unwrap_err()
                .to_string()
        };
        assert!(told("model.b.prepare=1ms").contains("model.b.prepare"));
        assert!(
            told("source.s.arrivals.poisson.rate=0").contains("source.s.arrivals.poisson.rate")
        );
        assert!(told("source.s.model=z").contains("only a"));
        assert!(told("wrokers=3").contains("wrokers"));
        let wrong = LEAST.replace("prepare", "prepar");
        let error = Document::parse(&wrong, "it", Path::new("")).unwrap_err();
        assert!(error.to_string().contains("line 6"), "{error}");
    }
}
