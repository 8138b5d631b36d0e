//! Studies: many runs of one scenario with some of its values changed.

use serde::Serialize;
use toml::Value;

use super::document::{Document, ScenarioError};
use super::report::Report;
use super::scenario::Target;
use super::simulate;
use super::work::Work;

/// A run of a study: what was set, and what came out.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Paths and values.
    pub set: Vec<(String, String)>,
    /// What came out.
    pub report: Report,
}

/// What a plan came to.
#[derive(Debug, Clone, Serialize)]
pub struct Plan {
    /// The p99 to reach, in milliseconds.
    pub p99_ms: f64,
    /// The part that may fail.
    pub max_refused: f64,
    /// The smallest host that reaches it: devices and workers. None within the range when there is none.
    pub answer: Option<Host>,
    /// What was tried, in turn.
    pub tried: Vec<Tried>,
}

/// A size of host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Host {
    /// Devices of the model.
    pub devices: usize,
    /// Workers, each with a core.
    pub workers: usize,
}

/// A host that was tried.
#[derive(Debug, Clone, Serialize)]
pub struct Tried {
    /// Its size.
    #[serde(flatten)]
    pub host: Host,
    /// Whether it reached the target.
    pub enough: bool,
    /// What came out.
    pub report: Report,
}

/// One run for each row of the scenario's `[sweep]`; one in all where there is none.
///
/// # Errors
/// When a path leads nowhere, a value makes no sense, or all rows together are too much work. Nothing has run then.
pub fn sweep(document: &Document) -> Result<Vec<Row>, ScenarioError> {
    let scenario = document.scenario()?;
    let rows = scenario.sweep.values().map(Vec::len).next().unwrap_or(1);
    let row = |index: usize| {
        let mut document = document.clone();
        let mut set = Vec::new();
        for (path, values) in &scenario.sweep {
            document.set(path, values[index].clone())?;
            set.push((path.clone(), plain(&values[index])));
        }
        Ok((set, document.scenario()?))
    };
    let mut work = Work::default();
    for index in 0..rows {
        let (_, scenario) = row(index)?;
        work += Work::of(&scenario);
    }
    work.check("sweep").map_err(|wrong| document.wrong(wrong))?;
    let run = |index: usize| {
        let (set, scenario) = row(index)?;
        let report = simulate(&scenario);
        Ok(Row { set, report })
    };
    (0..rows).map(run).collect()
}

/// The fewest devices, and with them the fewest workers, that carry the scenario's load within its `[plan]`.
///
/// More devices or workers are taken to do no worse, so that halving the range finds the smallest.
///
/// # Errors
/// When the scenario has no plan, its devices cannot be counted, or all that may be tried is too much work.
pub fn plan(document: &Document) -> Result<Plan, ScenarioError> {
    let scenario = document.scenario()?;
    let Some(target) = scenario.plan.clone() else {
        return Err(document.lacks("plan", "it has none; give it p99, devices and workers"));
    };
    let model = scenario.model_index(target.model.as_deref()).unwrap_or(0);
    let of_host = |host: Host| {
        let mut document = document.clone();
        let count = |number: usize| Value::Integer(number as i64);
        document.set(
            &format!("model.{model}.device.0.count"),
            count(host.devices),
        )?;
        document.set("workers", count(host.workers))?;
        document.set("cores", Value::Float(host.workers as f64))?;
        document.scenario()
    };
    let largest = of_host(Host {
        devices: target.devices[1],
        workers: target.workers[1],
    })?;
    Work::of(&largest)
        .times(tries(target.devices) + tries(target.workers))
        .check("plan")
        .map_err(|wrong| document.wrong(wrong))?;
    let mut tried: Vec<Tried> = Vec::new();
    let mut enough = |host: Host| {
        let report = simulate(&of_host(host)?);
        let enough = reaches(&target, &report);
        tried.push(Tried {
            host,
            enough,
            report,
        });
        Ok(enough)
    };
    let [_, most_workers] = target.workers;
    let with_most = |devices| Host {
        devices,
        workers: most_workers,
    };
    let devices = smallest(target.devices, |devices| enough(with_most(devices)))?;
    let answer = match devices {
        None => None,
        Some(devices) => {
            let workers = smallest(target.workers, |workers| match workers == most_workers {
                true => Ok(true), // seen
                false => enough(Host { devices, workers }),
            })?;
            workers.map(|workers| Host { devices, workers })
        }
    };
    Ok(Plan {
        p99_ms: target.p99.0.as_secs_f64() * 1e3,
        max_refused: target.max_refused,
        answer,
        tried,
    })
}

fn reaches(target: &Target, report: &Report) -> bool {
    let fast = report.latency.p99_ms <= target.p99.0.as_secs_f64() * 1e3;
    fast && report.tally.answered > 0 && report.tally.failed() <= target.max_refused
}

/// The smallest number in the range that is enough, if more never hurts. The largest is looked at first: where that
/// is not enough, none is.
fn smallest<E>(
    [mut least, mut most]: [usize; 2],
    mut enough: impl FnMut(usize) -> Result<bool, E>,
) -> Result<Option<usize>, E> {
    if !enough(most)? {
        return Ok(None);
    }
    while least < most {
        let middle = least + (most - least) / 2;
        match enough(middle)? {
            true => most = middle,
            false => least = middle + 1,
        }
    }
    Ok(Some(most))
}

/// What [`smallest`] tries at most: the largest, and one for every time that the range can be halved.
fn tries([least, most]: [usize; 2]) -> usize {
    1 + (usize::BITS - (most - least).leading_zeros()) as usize
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_that_is_enough_is_found() {
        for wanted in 3..=20 {
            let mut tried = 0;
            let found = smallest::<()>([3, 20], |number| {
                tried += 1;
                Ok(number >= wanted)
            });
            assert_eq!(found, Ok(Some(wanted)));
            assert!(tried <= tries([3, 20]), "{tried}");
        }
        assert_eq!(smallest::<()>([3, 20], |_| Ok(false)), Ok(None));
    }
}
