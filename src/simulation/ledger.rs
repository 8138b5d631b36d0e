//! [`Ledger`]: what is counted while the world goes on.
//!
//! A request counts when it was sent after the warm-up; rates and utilisation are those of the time between the
//! warm-up and the end of the scenario, so what is answered after that belongs to nobody's throughput.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use super::agenda::{Nanoseconds, seconds};
use super::caller::Caller;
use super::counts::{Counts, Ending, histogram};
use super::device::{Device, Ran};
use super::remarks::remark;
use super::report::{
    Batches, Breakdown, DeviceUse, Fairness, Moment, Offline, Percentiles, Report, SourceReport,
};
use super::scenario::Scenario;
use super::world::Request;

/// Points of the course of a run.
const MOMENTS: u64 = 200;

/// What is counted.
#[derive(Debug)]
pub(super) struct Ledger<'a> {
    scenario: &'a Scenario,
    from: Nanoseconds,
    to: Nanoseconds,
    groups: Vec<Counts>,
    /// Of each source: its group, its answers, and what they cost.
    sources: Vec<(usize, u64, f64)>,
    stages: [Histogram<u64>; 6],
    devices: Vec<Used>,
    models: Vec<usize>,
    sizes: BTreeMap<usize, u64>,
    slots: u64,
    worked: Nanoseconds,
    cores: [f64; 2],
    moments: Vec<Moment>,
    moment_length: Nanoseconds,
    moment: Current,
    in_line: i64,
}

#[derive(Debug, Default)]
struct Used {
    name: String,
    busy: Nanoseconds,
    batches: u64,
    pictures: u64,
    ejected: u64,
}

/// The moment that goes on.
#[derive(Debug, Default)]
struct Current {
    since: Nanoseconds,
    offered: u64,
    answered: u64,
    in_time: u64,
    latencies: Vec<u32>,
    /// Requests times nanoseconds in the line.
    line_area: u128,
    line_at: Nanoseconds,
}

// === impl Ledger ===

impl<'a> Ledger<'a> {
    pub(super) fn new(
        scenario: &'a Scenario,
        devices: &[Device<'_>],
        callers: &[Caller<'_>],
    ) -> Self {
        let used = |device: &Device<'_>| Used {
            name: device.name.clone(),
            ..Used::default()
        };
        let to = scenario.duration.0.as_nanos() as Nanoseconds;
        Self {
            scenario,
            from: scenario.warm_up.0.as_nanos() as Nanoseconds,
            to,
            groups: scenario.source.iter().map(|_| Counts::new()).collect(),
            sources: callers
                .iter()
                .map(|caller| (caller.group, 0, 0.0))
                .collect(),
            stages: std::array::from_fn(|_| histogram()),
            devices: devices.iter().map(used).collect(),
            models: devices.iter().map(|device| device.model).collect(),
            sizes: BTreeMap::new(),
            slots: 0,
            worked: 0,
            cores: [0.0; 2],
            moments: Vec::new(),
            moment_length: (to / MOMENTS).max(1),
            moment: Current::default(),
            in_line: 0,
        }
    }

    /// Time goes on to `now`, by which the cores have been busy for so many seconds.
    pub(super) fn roll(&mut self, now: Nanoseconds, cores_busy: f64) {
        if now <= self.from {
            self.cores[0] = cores_busy;
        }
        if now <= self.to {
            self.cores[1] = cores_busy;
        }
        let length = self.moment_length;
        while self.moment.since + length <= now.min(self.to) {
            let end = self.moment.since + length;
            self.line(0, end);
            let moment = std::mem::take(&mut self.moment);
            self.moments.push(moment.close(length));
            self.moment.since = end;
            self.moment.line_at = end;
        }
    }

    pub(super) fn offered(&mut self, group: usize, now: Nanoseconds) {
        self.moment.offered += 1;
        let counts = &mut self.groups[group];
        counts.sent += 1;
        if now >= self.from {
            counts.tally.offered += 1;
        }
    }

    /// So many more are in the line.
    pub(super) fn line(&mut self, more: i64, now: Nanoseconds) {
        let passed = now.saturating_sub(self.moment.line_at);
        self.moment.line_area += u128::from(passed) * self.in_line.unsigned_abs() as u128;
        self.moment.line_at = now;
        self.in_line += more;
    }

    pub(super) fn ended(&mut self, request: &Request, ending: Ending, now: Nanoseconds) {
        let microseconds = |from: Nanoseconds, to: Nanoseconds| to.saturating_sub(from) / 1_000;
        let latency = microseconds(request.sent, now);
        let answered = matches!(ending, Ending::Answered { .. });
        let in_time = ending == Ending::Answered { in_time: true };
        if answered {
            self.moment.answered += 1;
            self.moment.in_time += u64::from(in_time);
            let microseconds = u32::try_from(latency).unwrap_or(u32::MAX);
            self.moment.latencies.push(microseconds);
        }
        let group = request.group;
        if answered && (self.from..=self.to).contains(&now) {
            let counts = &mut self.groups[group];
            counts.answers += 1;
            counts.answers_in_time += u64::from(in_time);
            let source = &mut self.sources[request.caller];
            source.1 += 1;
            source.2 += request.cost;
        }
        if request.sent < self.from {
            return;
        }
        self.groups[group].take(ending, latency);
        if answered {
            let marks = [
                request.sent,
                request.arrived,
                request.taken_up,
                request.ready,
                request.ran_from,
                request.ran_to,
                now,
            ];
            for (stage, pair) in self.stages.iter_mut().zip(marks.windows(2)) {
                stage.saturating_record(microseconds(pair[0], pair[1]));
            }
        }
    }

    pub(super) fn ran(&mut self, device: usize, ran: &Ran, now: Nanoseconds) {
        let used = &mut self.devices[device];
        used.busy += self.to.min(now).saturating_sub(self.from.max(ran.started));
        if (self.from..=self.to).contains(&now) {
            let size = ran.flight.requests.len();
            used.batches += 1;
            used.pictures += size as u64;
            *self.sizes.entry(size).or_default() += 1;
            self.slots += ran.flight.bucket as u64;
        }
    }

    pub(super) fn ejected(&mut self, device: usize) {
        self.devices[device].ejected += 1;
    }

    /// A worker was busy since then.
    pub(super) fn worked(&mut self, since: Nanoseconds, now: Nanoseconds) {
        self.worked += self.to.min(now).saturating_sub(self.from.max(since));
    }

    /// `events` happened, and of `told` the machine was told.
    pub(super) fn report(mut self, events: u64, told: u64) -> Report {
        self.roll(self.to, self.cores[1]);
        let window = seconds(self.to - self.from);
        let scenario = self.scenario;
        let (batches, pictures) = self
            .devices
            .iter()
            .fold((0, 0), |(batches, pictures), used| {
                (batches + used.batches, pictures + used.pictures)
            });
        let ratio = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        let devices = self
            .devices
            .iter()
            .zip(&self.models)
            .map(|(used, model)| DeviceUse {
                name: used.name.clone(),
                model: scenario.model[*model].name.clone(),
                utilisation: seconds(used.busy) / window,
                batches: used.batches,
                pictures: used.pictures,
                ejected: used.ejected,
            });
        let sources = scenario.source.iter().zip(&self.groups).enumerate();
        let sources = sources.map(|(group, (source, counts))| {
            let members = || self.sources.iter().filter(|member| member.0 == group);
            SourceReport {
                name: source.name.clone(),
                count: source.count,
                jain_answers: jain(members().map(|member| member.1 as f64)),
                tally: counts.tally(window),
                latency: Percentiles::of(&counts.latency),
                cost_share: 0.0,
            }
        });
        let mut sources: Vec<SourceReport> = sources.collect();
        let cost: f64 = self.sources.iter().map(|member| member.2).sum();
        for (group, source) in sources.iter_mut().enumerate() {
            let own = self.sources.iter().filter(|member| member.0 == group);
            source.cost_share = ratio(own.map(|member| member.2).sum(), cost);
        }
        let mut all = Counts::new();
        self.groups.iter().for_each(|counts| all += counts);
        let remarks = scenario.source.iter().zip(&self.groups);
        let remarks = remarks.filter_map(|(source, counts)| remark(scenario, source, counts));
        let [transport, line, prepare, batch_wait, run, finish] = &self.stages;
        Report {
            seed: scenario.seed,
            duration_s: seconds(self.to),
            warm_up_s: seconds(self.from),
            workers: scenario.workers,
            cores: scenario.cores(),
            offline: scenario
                .model
                .iter()
                .map(|model| Offline {
                    model: model.name.clone(),
                    per_second: scenario.offline(model),
                })
                .collect(),
            tally: all.tally(window),
            latency: Percentiles::of(&all.latency),
            breakdown: Breakdown {
                transport: Percentiles::of(transport),
                line: Percentiles::of(line),
                prepare: Percentiles::of(prepare),
                batch_wait: Percentiles::of(batch_wait),
                run: Percentiles::of(run),
                finish: Percentiles::of(finish),
            },
            longest_wait_ms: line.max() as f64 / 1e3,
            batches: Batches {
                count: batches,
                mean_size: ratio(pictures as f64, batches as f64),
                filled: ratio(pictures as f64, self.slots as f64),
                sizes: self.sizes.clone(),
            },
            devices: devices.collect(),
            workers_utilisation: seconds(self.worked) / window / scenario.workers as f64,
            cores_utilisation: (self.cores[1] - self.cores[0]) / window / scenario.cores(),
            fairness: Fairness {
                jain_answers: jain(self.sources.iter().map(|member| member.1 as f64)),
                jain_cost: jain(self.sources.iter().map(|member| member.2)),
            },
            remarks: remarks.collect(),
            sources,
            events,
            told,
            course: self.moments,
        }
    }
}

// === impl Current ===

impl Current {
    fn close(mut self, length: Nanoseconds) -> Moment {
        self.latencies.sort_unstable();
        let quantile = |part: f64| {
            let last = self.latencies.len().checked_sub(1)?;
            let at = (last as f64 * part).round() as usize;
            Some(f64::from(self.latencies[at]) / 1e3)
        };
        Moment {
            at_s: seconds(self.since),
            offered_per_s: self.offered as f64 / seconds(length),
            answered_per_s: self.answered as f64 / seconds(length),
            in_time_per_s: self.in_time as f64 / seconds(length),
            in_line: self.line_area as f64 / length as f64,
            p50_ms: quantile(0.5),
            p99_ms: quantile(0.99),
        }
    }
}

/// Jain's index: 1 when all have the same, 1/n when one has all. 1 when there is nothing.
fn jain(shares: impl Iterator<Item = f64>) -> f64 {
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for share in shares {
        count += 1.0;
        sum += share;
        squares += share * share;
    }
    match squares > 0.0 {
        true => sum * sum / (count * squares),
        false => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jains_index_is_one_for_equals_and_one_nth_for_one_of_n() {
        assert_eq!(jain([3.0; 8].into_iter()), 1.0);
        assert_eq!(jain([0.0, 0.0, 5.0, 0.0].into_iter()), 0.25);
        assert_eq!(jain([0.0; 3].into_iter()), 1.0);
    }
}
