//! [`Work`]: how much a scenario asks for, told before anything of it is done, and how much may be asked for: so that
//! every run ends, and fits into memory.

use std::ops::AddAssign;

use super::agenda::seconds;
use super::check::Wrong;
use super::scenario::{Arrivals, Model, Scenario, Source};
use super::world::AFTER_REFUSAL;

/// Workers; the server takes no more.
pub(super) const MOST_WORKERS: usize = 1_024;
/// Devices of all models.
pub(super) const MOST_DEVICES: usize = 1_024;
/// Pictures in a batch.
pub(super) const MOST_BATCH: usize = 4_096;
/// Requests that are not prepared yet; the server takes no more. Callers that wait for their answers likewise.
pub(super) const MOST_REQUESTS: usize = 1_000_000;
/// Sources in all, and streams of one.
pub(super) const MOST_SOURCES: usize = 10_000;
/// Inputs made of a picture; the server makes no more tiles.
pub(super) const MOST_TILES: usize = 1_024;
/// `[[source]]` tables: each has a histogram.
pub(super) const MOST_KINDS: usize = 256;
/// Rows of a sweep: each has a report.
pub(super) const MOST_ROWS: usize = 1_000;
/// Requests sent in all runs; of pictures in tiles, their tiles.
const MOST_ARRIVALS: f64 = 1e8;
/// Those times devices and sources, all of which the machine may look at for each.
const MOST_STEPS: f64 = 1e10;

/// What is to be expected of one run or of several.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Work {
    /// Requests sent, or their tiles.
    arrivals: f64,
    /// Those times devices and sources.
    steps: f64,
}

// === impl Work ===

impl Work {
    /// Of one run.
    pub(super) fn of(scenario: &Scenario) -> Self {
        let sources = scenario.source.iter();
        let inputs = |source: &Source| source.tiles as f64 * scenario.expected(source);
        let arrivals: f64 = sources.map(inputs).sum();
        let devices = scenario.model.iter().flat_map(|model| &model.device);
        let devices: usize = devices.map(|devices| devices.count).sum();
        let sources: usize = scenario.source.iter().map(|source| source.count).sum();
        Self {
            arrivals,
            steps: arrivals * (devices + sources) as f64,
        }
    }

    /// Of so many such runs.
    pub(super) fn times(self, runs: usize) -> Self {
        Self {
            arrivals: self.arrivals * runs as f64,
            steps: self.steps * runs as f64,
        }
    }

    /// Whether it is too much, which `path` is to blame for.
    pub(super) fn check(self, path: &str) -> Result<(), Wrong> {
        let Self { arrivals, steps } = self;
        let detail = match (arrivals <= MOST_ARRIVALS, steps <= MOST_STEPS) {
            (true, true) => return Ok(()),
            (false, _) => format!(
                "{arrivals:.2e} requests and tiles are to be expected in all, more than {MOST_ARRIVALS:e}"
            ),
            (true, false) => format!(
                "{arrivals:.2e} requests and tiles are to be expected in all; times devices and sources that is {steps:.2e}, more than {MOST_STEPS:e}"
            ),
        };
        Err((path.to_owned(), detail))
    }
}

impl AddAssign for Work {
    fn add_assign(&mut self, other: Self) {
        self.arrivals += other.arrivals;
        self.steps += other.steps;
    }
}

// === impl Scenario ===

impl Scenario {
    /// Whether one run is too much, by the source that sends most. Traces have been read.
    pub(super) fn check_work(&self) -> Result<(), Wrong> {
        let busiest = self
            .source
            .iter()
            .max_by(|a, b| self.expected(a).total_cmp(&self.expected(b)));
        let path = busiest.map_or_else(String::new, |source| {
            format!("source.{}.arrivals", source.name)
        });
        Work::of(self).check(&path)
    }

    /// When a source sends, in seconds from the beginning.
    pub(super) fn window(&self, source: &Source) -> (f64, f64) {
        let stop = source
            .stop
            .map_or(self.duration, |stop| stop.min(self.duration));
        (source.start.0.as_secs_f64(), stop.0.as_secs_f64())
    }

    /// Requests that are to be expected of all members of a source. Of callers who wait for their answers, the most.
    pub(super) fn expected(&self, source: &Source) -> f64 {
        let (start, stop) = self.window(source);
        let length = (stop - start).max(0.0);
        let each = match &source.arrivals {
            Arrivals::Poisson { rate } | Arrivals::Constant { rate, .. } => {
                rate * self.load * length
            }
            Arrivals::Burst { rate, on, off } => {
                let (on, off) = (on.0.as_secs_f64(), off.0.as_secs_f64());
                let whole = (length / (on + off)).floor();
                let rest = (length - whole * (on + off)).clamp(0.0, on);
                rate * self.load * (whole * on + rest)
            }
            Arrivals::Trace { times, .. } => {
                let within = |time: &std::time::Duration| time.as_secs_f64() / self.load < length;
                times.partition_point(within) as f64
            }
            Arrivals::Closed { callers, think } => {
                if length == 0.0 {
                    return 0.0;
                }
                let callers = (*callers as f64 * self.load).max(1.0);
                let model = self.model_index(source.model.as_deref());
                let (run, rate) =
                    model.map_or((f64::INFINITY, 0.0), |model| self.model[model].quickest());
                let refused = callers * length / (think.mean() + seconds(AFTER_REFUSAL));
                // Each caller as fast as one run, or all of them as fast as the devices.
                let answered = (callers * length / (think.mean() + run))
                    .min(rate * length / source.count as f64);
                callers + answered + refused
            }
        };
        each * source.count as f64
    }
}

// === impl Model ===

impl Model {
    /// The shortest run, in seconds, and how many pictures all its devices run in a second, at the best of times.
    fn quickest(&self) -> (f64, f64) {
        let (mut run, mut rate) = (f64::INFINITY, 0.0);
        for devices in self.device.iter().filter(|devices| devices.count > 0) {
            let slow = devices.fault.iter().filter_map(|fault| fault.slow);
            let quick: f64 = slow.map(|slow| slow.min(1.0)).product();
            let mut best: f64 = 0.0;
            for bucket in devices.buckets() {
                let time = quick * bucket.cost.as_secs_f64();
                run = run.min(time);
                best = best.max(bucket.size as f64 / time);
            }
            rate += best * devices.count as f64;
        }
        (run, rate)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::simulation::{Document, simulate};

    fn document(arrivals: &str) -> Document {
        let text = format!(
            r#"
            duration = "10s"
            workers = 4
            [[model]]
            name = "a"
            prepare = "1ms"
            device = [{{ count = 2, latency = {{ 1 = "5ms", 4 = "8ms" }} }}]
            [[source]]
            name = "s"
            count = 2
            start = "1s"
            arrivals = {arrivals}
            [plan]
            p99 = "1s"
            devices = [1, 64]
            workers = [1, 64]
            "#
        );
        Document::parse(&text, "it", Path::new("")).unwrap()
    }

    #[test]
    fn what_is_expected_is_what_comes() {
        for (arrivals, exact) in [
            ("{ poisson = { rate = 100 } }", true),
            (
                "{ burst = { rate = 100, on = \"700ms\", off = \"1300ms\" } }",
                true,
            ),
            ("{ constant = { rate = 25 } }", true),
            ("{ closed = { callers = 8, think = \"5ms\" } }", false),
            ("{ closed = { callers = 1000 } }", false),
        ] {
            let scenario = document(arrivals).scenario().unwrap();
            let expected = scenario.expected(&scenario.source[0]);
            let sent = simulate(&scenario).tally.offered as f64;
            assert!(sent <= 1.1 * expected, "{arrivals}: {sent} {expected}");
            assert!(
                !exact || sent >= 0.9 * expected,
                "{arrivals}: {sent} {expected}"
            );
        }
    }

    #[test]
    fn too_much_is_refused_before_it_is_done() {
        let scenario = document("{ poisson = { rate = 1e7 } }").scenario();
        let told = scenario.unwrap_err().to_string();
        assert!(told.contains("source.s.arrivals"), "{told}");
        assert!(told.contains("1.80e8") && told.contains("1e8"), "{told}");
        // Once it may be done, but not as often as a plan or a sweep does.
        let mut document = document("{ poisson = { rate = 4e6 } }");
        document.scenario().unwrap();
        let told = crate::simulation::plan(&document).unwrap_err().to_string();
        assert!(told.contains(": plan:"), "{told}");
        document.set_text("sweep={ load = [1.0, 0.9] }").unwrap();
        let told = crate::simulation::sweep(&document).unwrap_err().to_string();
        assert!(told.contains(": sweep:"), "{told}");
    }

    #[test]
    fn a_crowd_is_counted_before_it_is_made() {
        for (pair, named) in [
            ("source.s.count=10001", "10000"),
            ("model.a.device.0.count=1025", "1024"),
            ("workers=1025", "1024"),
            ("plan.devices=[1, 1000000]", "1024"),
            (
                "source.s.arrivals={ closed = { callers = 600000 } }",
                "1000000",
            ),
        ] {
            let mut document = document("{ poisson = { rate = 1 } }");
            document.set_text(pair).unwrap();
            let told = document.scenario().unwrap_err().to_string();
            assert!(told.contains(named), "{pair}: {told}");
        }
        // Few requests, but each looks at a thousand devices.
        let mut document = document("{ poisson = { rate = 1e6 } }");
        document.set_text("model.a.device.0.count=1000").unwrap();
        let told = document.scenario().unwrap_err().to_string();
        assert!(told.contains("times devices and sources"), "{told}");
    }
}
