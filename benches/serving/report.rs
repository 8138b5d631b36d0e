//! Figures: medians of rounds, percentiles of waits, CPU time of a process.

use std::fmt;
use std::time::Duration;

/// One figure, measured once a round.
pub(crate) struct Series {
    name: &'static str,
    unit: &'static str,
    values: Vec<f64>,
}

impl Series {
    pub(crate) fn new(name: &'static str, unit: &'static str) -> Self {
        Self {
            name,
            unit,
            values: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, value: f64) {
        self.values.push(value);
    }
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut values = self.values.clone();
        values.sort_by(f64::total_cmp);
        let (least, median, most) = (
            values[0],
            values[values.len() / 2],
            values[values.len() - 1],
        );
        write!(
            f,
            "  {:<36} {median:>8.3} {}  ({least:.3} to {most:.3})",
            self.name, self.unit
        )
    }
}

/// How much was done, and for how much of the processor.
pub(crate) struct Rate {
    /// A second.
    pub(crate) rate: f64,
    /// CPU time of one.
    pub(crate) cpu_each: Duration,
}

impl Rate {
    pub(crate) fn new(count: usize, elapsed: Duration, cpu: Duration) -> Self {
        Self {
            rate: count as f64 / elapsed.as_secs_f64(),
            cpu_each: cpu / u32::try_from(count.max(1)).unwrap(),
        }
    }
}

/// User and system time that a process has used, all threads.
pub(crate) fn cpu_time(process: &str) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    // Behind the name, which may hold anything, fields 14 and 15 are clock ticks of a hundredth of a second.
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

/// The smallest time that at least `percent` of `times` do not pass.
pub(crate) fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort();
    times[(times.len() * percent).div_ceil(100).saturating_sub(1)]
}

/// Waits of many calls.
pub(crate) struct Waits(pub(crate) Vec<Duration>);

impl Waits {
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        percentile(&mut self.0.clone(), percent)
    }
}
