//! `detectd simulate`: plays a scenario in virtual time and says what came out.

mod print;

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use serde::Serialize;

use super::{Exit, terminal};
use crate::simulation::{self, Document, Report, chart};

/// Plays a scenario in virtual time, with the server's own scheduling, and says what came out.
///
/// docs/SIMULATION.md says what a scenario holds; docs/scenarios/ has some.
#[derive(Debug, Args)]
pub(super) struct Simulate {
    /// The scenario (TOML).
    #[arg(value_name = "SCENARIO")]
    scenario: PathBuf,
    /// Replace a value, such as `workers=8` or `model.ssd300.device.0.count=2`; may be given again.
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// Find the smallest host that carries the load within the scenario's [plan].
    #[arg(long)]
    plan: bool,
    /// Write the report as JSON; `-` is standard output, and nothing else is printed there then.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the report as SVG. Not with a sweep or a plan.
    #[arg(long, value_name = "FILE", conflicts_with = "plan")]
    svg: Option<PathBuf>,
}

// === impl Simulate ===

impl Simulate {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let mut document = Document::read(&self.scenario)?;
        for pair in &self.set {
            document.set_text(pair)?;
        }
        let started = Instant::now();
        if self.plan {
            let plan = simulation::plan(&document)?;
            let reports = plan.tried.iter().map(|tried| &tried.report);
            let speed = Speed::of(reports, started.elapsed());
            self.tell(&plan, &speed, || print::plan(&plan))?;
            return Ok(match plan.answer {
                Some(_) => Exit::Success,
                None => Exit::Failure,
            });
        }
        let rows = simulation::sweep(&document)?;
        let speed = Speed::of(rows.iter().map(|row| &row.report), started.elapsed());
        match &rows[..] {
            [row] if row.set.is_empty() => {
                if let Some(path) = &self.svg {
                    std::fs::write(path, chart::draw(&row.report))
                        .with_context(|| format!("cannot write {}", path.display()))?;
                }
                self.tell(&row.report, &speed, || print::report(&row.report))?;
            }
            _ if self.svg.is_some() => {
                bail!("--svg draws one run, and this scenario has a [sweep]")
            }
            rows => self.tell(&rows, &speed, || print::rows(rows))?,
        }
        Ok(Exit::Success)
    }

    /// Prints, unless the JSON takes its place. What was measured is no part of it: a seed prints the same every time.
    fn tell(
        &self,
        outcome: &impl Serialize,
        speed: &Speed,
        lines: impl FnOnce() -> Vec<String>,
    ) -> anyhow::Result<()> {
        let to_standard_output = self
            .json
            .as_ref()
            .is_some_and(|path| path.as_os_str() == "-");
        if let Some(path) = &self.json {
            let mut text = serde_json::to_string_pretty(outcome)?;
            text.push('\n');
            match to_standard_output {
                // A reader that has gone is no fault of ours.
                true => drop(std::io::stdout().write_all(text.as_bytes())),
                false => std::fs::write(path, text)
                    .with_context(|| format!("cannot write {}", path.display()))?,
            }
        }
        if !to_standard_output {
            lines().iter().for_each(|line| terminal::say(line));
        }
        terminal::complain(&speed.line());
        Ok(())
    }
}

/// How fast it went. The only thing here that is measured, and so not part of a report.
#[derive(Debug)]
struct Speed {
    events: u64,
    told: u64,
    simulated: f64,
    took: Duration,
}

// === impl Speed ===

impl Speed {
    fn of<'a>(reports: impl Iterator<Item = &'a Report>, took: Duration) -> Self {
        let nothing = Self {
            events: 0,
            told: 0,
            simulated: 0.0,
            took,
        };
        reports.fold(nothing, |sums, report| Self {
            events: sums.events + report.events,
            told: sums.told + report.told,
            simulated: sums.simulated + report.duration_s,
            took,
        })
    }

    fn line(&self) -> String {
        let took = self.took.as_secs_f64().max(1e-9);
        format!(
            "simulated {:.0} s in {took:.2} s: {:.0} times as fast; {:.0} events a second, {:.0} told to the scheduler",
            self.simulated,
            self.simulated / took,
            self.events as f64 / took,
            self.told as f64 / took
        )
    }
}
