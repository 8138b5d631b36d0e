//! Whether a scenario's values make sense, each by itself. How much work they ask for in all is for
//! [`work`](super::work) to say.

use std::collections::BTreeSet;
use std::fmt::{Debug, Display};
use std::ops::RangeInclusive;

use super::distribution::Distribution;
use super::scenario::{Admission, Arrivals, Devices, Fault, Model, Scenario, Source, Target};
use super::work::{
    MOST_BATCH, MOST_DEVICES, MOST_KINDS, MOST_REQUESTS, MOST_ROWS, MOST_SOURCES, MOST_TILES,
    MOST_WORKERS,
};

/// What makes no sense, by its path, and why.
pub(super) type Wrong = (String, String);

/// Fractions of a core, factors of a load and of a run. Far beyond them times round to nothing or to for ever.
const CORES: RangeInclusive<f64> = 0.01..=MOST_WORKERS as f64;
const LOADS: RangeInclusive<f64> = 1e-6..=1e6;
const SLOWNESS: RangeInclusive<f64> = 0.01..=1e3;
const PART: RangeInclusive<f64> = 0.0..=1.0;
/// Requests a second of one source.
const RATES: RangeInclusive<f64> = 1e-9..=1e9;

fn wrong(path: &str, detail: impl Into<String>) -> Result<(), Wrong> {
    Err((path.to_owned(), detail.into()))
}

/// Nothing that is not a number lies in any range.
fn within<T: PartialOrd + Debug>(
    path: &str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<(), Wrong> {
    if range.contains(&value) {
        return Ok(());
    }
    let (least, most) = range.into_inner();
    wrong(path, format!("{value:?} is not from {least:?} to {most:?}"))
}

fn drawn_from(path: &str, distribution: &Distribution) -> Result<(), Wrong> {
    distribution
        .fault()
        .map_or(Ok(()), |detail| wrong(path, detail))
}

fn under(prefix: impl Display) -> impl Fn(Wrong) -> Wrong {
    move |(path, detail)| (format!("{prefix}.{path}"), detail)
}

// === impl Scenario ===

impl Scenario {
    /// The first thing that makes no sense.
    pub(super) fn check(&self) -> Result<(), Wrong> {
        if self.duration.0.is_zero() || self.warm_up >= self.duration {
            let detail = "must be longer than warm_up, and longer than nothing";
            return wrong("duration", detail);
        }
        within("workers", self.workers, 1..=MOST_WORKERS)?;
        within("cores", self.cores(), CORES)?;
        within("load", self.load, LOADS)?;
        for (path, time) in [("max_wait", self.max_wait), ("watchdog", self.watchdog)] {
            if time.0.is_zero() {
                return wrong(path, "must be above 0");
            }
        }
        self.admission.check().map_err(under("admission"))?;
        self.check_models()?;
        self.check_sources()?;
        let mut lengths = self.sweep.values().map(Vec::len);
        if let Some(first) = lengths.next() {
            within("sweep", first, 1..=MOST_ROWS)?;
            if lengths.any(|length| length != first) {
                return wrong("sweep", "all its lists have the same length");
            }
        }
        if let Some(plan) = &self.plan {
            plan.check().map_err(under("plan"))?;
            if self.model_index(plan.model.as_deref()).is_none() {
                return wrong("plan.model", self.no_such_model(plan.model.as_deref()));
            }
        }
        Ok(())
    }

    fn check_models(&self) -> Result<(), Wrong> {
        if self.model.is_empty() {
            return wrong("model", "there is at least one");
        }
        let mut names = BTreeSet::new();
        for (index, model) in self.model.iter().enumerate() {
            if !names.insert(&model.name) {
                return wrong(
                    &format!("model.{index}.name"),
                    "must differ from the others",
                );
            }
            model
                .check()
                .map_err(under(format!("model.{}", model.name)))?;
        }
        let devices = self.model.iter().flat_map(|model| &model.device);
        let devices = devices.fold(0usize, |sum, devices| sum.saturating_add(devices.count));
        match devices <= MOST_DEVICES {
            true => Ok(()),
            false => wrong(
                "model.device.count",
                format!("{devices} devices in all are more than {MOST_DEVICES}"),
            ),
        }
    }

    fn check_sources(&self) -> Result<(), Wrong> {
        within("source", self.source.len(), 1..=MOST_KINDS)?;
        for source in &self.source {
            let named = under(format!("source.{}", source.name));
            source.check().map_err(&named)?;
            if self.model_index(source.model.as_deref()).is_none() {
                let detail = self.no_such_model(source.model.as_deref());
                return Err(named(("model".to_owned(), detail)));
            }
        }
        let sources: usize = self.source.iter().map(|source| source.count).sum();
        if sources > MOST_SOURCES {
            let detail = format!("{sources} sources in all are more than {MOST_SOURCES}");
            return wrong("source.count", detail);
        }
        let callers: f64 = self
            .source
            .iter()
            .map(|source| match source.arrivals {
                Arrivals::Closed { callers, .. } => {
                    callers as f64 * self.load * source.count as f64
                }
                _ => 0.0,
            })
            .sum();
        if callers > MOST_REQUESTS as f64 {
            let detail = format!("{callers} in all are more than {MOST_REQUESTS}");
            return wrong("source.arrivals.closed.callers", detail);
        }
        Ok(())
    }

    fn no_such_model(&self, name: Option<&str>) -> String {
        let names: Vec<&str> = self.model.iter().map(|model| model.name.as_str()).collect();
        match name {
            Some(name) => format!("there is no model {name}, only {}", names.join(", ")),
            None => format!("which of {}?", names.join(", ")),
        }
    }
}

// === impl Admission ===

impl Admission {
    fn check(&self) -> Result<(), Wrong> {
        for (path, most) in [
            ("max_requests", self.max_requests),
            ("max_requests_per_source", self.max_requests_per_source),
        ] {
            most.map_or(Ok(()), |most| within(path, most, 1..=MOST_REQUESTS))?;
        }
        Ok(())
    }
}

// === impl Model ===

impl Model {
    fn check(&self) -> Result<(), Wrong> {
        drawn_from("prepare", &self.prepare)?;
        drawn_from("postprocess", &self.postprocess)?;
        drawn_from("transport", &self.transport)?;
        if self.device.iter().all(|devices| devices.count == 0) {
            return wrong("device", "there is at least one");
        }
        for (index, devices) in self.device.iter().enumerate() {
            devices.check().map_err(under(format!("device.{index}")))?;
        }
        Ok(())
    }
}

// === impl Devices ===

impl Devices {
    fn check(&self) -> Result<(), Wrong> {
        within("count", self.count, 0..=MOST_DEVICES)?;
        within("jitter", self.jitter, PART)?;
        let mut sizes = BTreeSet::new();
        for (size, time) in &self.latency {
            let size = size.parse().unwrap_or(0);
            if !(1..=MOST_BATCH).contains(&size) || !sizes.insert(size) || time.0.is_zero() {
                let detail = format!(
                    "takes batch sizes from 1 to {MOST_BATCH}, each once, and times above 0, such as {{ 1 = \"6ms\", 8 = \"14ms\" }}"
                );
                return wrong("latency", detail);
            }
        }
        if sizes.is_empty() {
            return wrong(
                "latency",
                "takes the time of a run of one batch size at least",
            );
        }
        for (index, fault) in self.fault.iter().enumerate() {
            let path = format!("fault.{index}");
            if fault.device >= self.count {
                return wrong(&path, format!("there is no device {}", fault.device));
            }
            fault.check().map_err(|detail| (path, detail))?;
        }
        Ok(())
    }
}

// === impl Fault ===

impl Fault {
    fn check(&self) -> Result<(), String> {
        if let Some(slow) = self.slow {
            within("slow", slow, SLOWNESS).map_err(|(path, detail)| format!("{path}: {detail}"))?;
        }
        let refuse = |detail: &str| Err(detail.to_owned());
        match (self.slow, self.hang.or(self.down)) {
            (Some(_), None) => match (self.from, self.to, self.up) {
                (Some(from), Some(to), None) if from < to => Ok(()),
                _ => refuse("slow takes from and to, and nothing else"),
            },
            (None, Some(at)) if self.hang.is_none() || self.down.is_none() => {
                match (self.from.or(self.to), self.up) {
                    (Some(_), _) => refuse("from and to belong to slow"),
                    (None, Some(up)) if up <= at => refuse("up comes after hang or down"),
                    _ => Ok(()),
                }
            }
            _ => refuse("takes one of slow, hang and down"),
        }
    }
}

// === impl Source ===

impl Source {
    fn check(&self) -> Result<(), Wrong> {
        within("count", self.count, 1..=MOST_SOURCES)?;
        within("streams", self.streams, 1..=MOST_SOURCES)?;
        if self.deadline.is_some_and(|deadline| deadline.0.is_zero()) {
            return wrong("deadline", "must be above 0");
        }
        if let Some(prepare) = &self.prepare {
            drawn_from("prepare", prepare)?;
        }
        within("tiles", self.tiles, 1..=MOST_TILES)?;
        if let Some(prepare) = &self.prepare_tile {
            drawn_from("prepare_tile", prepare)?;
            if self.tiles == 1 {
                return wrong("prepare_tile", "there are no tiles");
            }
        }
        self.arrivals.check().map_err(under("arrivals"))
    }
}

// === impl Arrivals ===

impl Arrivals {
    fn check(&self) -> Result<(), Wrong> {
        match self {
            Arrivals::Poisson { rate } => within("poisson.rate", *rate, RATES),
            Arrivals::Burst { rate, on, .. } => {
                within("burst.rate", *rate, RATES)?;
                match on.0.is_zero() {
                    true => wrong("burst.on", "must be above 0"),
                    false => Ok(()),
                }
            }
            Arrivals::Constant { rate, jitter } => {
                within("constant.rate", *rate, RATES)?;
                within("constant.jitter", *jitter, PART)
            }
            Arrivals::Closed { callers, think } => {
                within("closed.callers", *callers, 1..=MOST_REQUESTS)?;
                drawn_from("closed.think", think)
            }
            Arrivals::Trace { .. } => Ok(()),
        }
    }
}

// === impl Target ===

impl Target {
    fn check(&self) -> Result<(), Wrong> {
        if self.p99.0.is_zero() {
            return wrong("p99", "must be above 0");
        }
        within("max_refused", self.max_refused, PART)?;
        for (path, [least, most], bound) in [
            ("devices", self.devices, MOST_DEVICES),
            ("workers", self.workers, MOST_WORKERS),
        ] {
            within(path, least, 1..=bound)?;
            within(path, most, 1..=bound)?;
            if least > most {
                return wrong(path, "takes the least and then the most");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
