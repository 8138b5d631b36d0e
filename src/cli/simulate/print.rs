//! Reports, sweeps and plans as text.

use std::collections::BTreeSet;

use crate::simulation::report::{Percentiles, Report, Tally};
use crate::simulation::{Plan, Row};

/// A run.
pub(super) fn report(report: &Report) -> Vec<String> {
    let tally = &report.tally;
    let mut lines = vec![format!(
        "{} s from {} s on, {} workers on {} cores, seed {}",
        report.duration_s, report.warm_up_s, report.workers, report.cores, report.seed
    )];
    for offline in &report.offline {
        lines.push(format!(
            "  {} offline {:.1}/s",
            offline.model, offline.per_second
        ));
    }
    lines.push(String::new());
    lines.push(format!(
        "offered     {:>9}  {:>8.1}/s",
        tally.offered, tally.offered_per_s
    ));
    lines.push(format!("admitted    {:>9}", tally.admitted));
    lines.push(format!(
        "refused     {:>9}  overloaded {}, infeasible {}, no instance {}",
        tally.refused.total(),
        tally.refused.overloaded,
        tally.refused.infeasible,
        tally.refused.no_instance
    ));
    lines.push(format!("expired     {:>9}", tally.expired));
    lines.push(format!("lost        {:>9}", tally.lost));
    lines.push(format!(
        "answered    {:>9}  {:>8.1}/s",
        tally.answered, tally.throughput_per_s
    ));
    lines.push(format!(
        "in time     {:>9}  {:>8.1}/s  {:.2} % of the admitted",
        tally.in_time,
        tally.goodput_per_s,
        100.0 * tally.kept()
    ));
    lines.push(String::new());
    lines.push(
        "ms              mean      p50      p90      p95      p99    p99.9      max".to_owned(),
    );
    let breakdown = &report.breakdown;
    for (name, percentiles) in [
        ("latency", &report.latency),
        ("  transport", &breakdown.transport),
        ("  line", &breakdown.line),
        ("  prepare", &breakdown.prepare),
        ("  batch wait", &breakdown.batch_wait),
        ("  run", &breakdown.run),
        ("  finish", &breakdown.finish),
    ] {
        lines.push(format!("{name:<12}{}", columns(percentiles)));
    }
    lines.push(String::new());
    let batches = &report.batches;
    lines.push(format!(
        "batches     {:>9}  {:.1} pictures each, {:.1} % of their places filled",
        batches.count,
        batches.mean_size,
        100.0 * batches.filled
    ));
    lines.push(format!("  sizes     {}", sizes(report)));
    lines.push(format!(
        "busy        workers {:.1} %, cores {:.1} %",
        100.0 * report.workers_utilisation,
        100.0 * report.cores_utilisation
    ));
    for device in &report.devices {
        let ejected = match device.ejected {
            0 => String::new(),
            times => format!(", given up {times} times"),
        };
        lines.push(format!(
            "  {:<14} {:>5.1} %  {} batches, {} pictures{ejected}",
            device.name,
            100.0 * device.utilisation,
            device.batches,
            device.pictures
        ));
    }
    lines.push(String::new());
    lines.push(
        "source            count   offered  refused  expired  in time/s      p50      p99     Jain  of the cost"
            .to_owned(),
    );
    for source in &report.sources {
        let tally = &source.tally;
        lines.push(format!(
            "{:<16} {:>6} {:>9} {:>8} {:>8} {:>10.1} {:>8.1} {:>8.1} {:>8.4} {:>10.1} %",
            source.name,
            source.count,
            tally.offered,
            tally.refused.total(),
            tally.expired,
            tally.goodput_per_s,
            source.latency.p50_ms,
            source.latency.p99_ms,
            source.jain_answers,
            100.0 * source.cost_share
        ));
    }
    lines.push(format!(
        "Jain of all sources: answers {:.4}, cost {:.4}; longest wait {:.1} ms",
        report.fairness.jain_answers, report.fairness.jain_cost, report.longest_wait_ms
    ));
    lines.extend(remarks([report]));
    lines
}

/// What is odd, each remark once.
fn remarks<'a>(reports: impl IntoIterator<Item = &'a Report>) -> impl Iterator<Item = String> {
    let all: BTreeSet<&String> = reports
        .into_iter()
        .flat_map(|report| &report.remarks)
        .collect();
    all.into_iter().map(|remark| format!("remark: {remark}"))
}

/// A sweep.
pub(super) fn rows(rows: &[Row]) -> Vec<String> {
    let mut lines = vec![format!("{HEAD}  set")];
    for row in rows {
        let set: Vec<String> = row
            .set
            .iter()
            .map(|(path, value)| format!("{path}={value}"))
            .collect();
        lines.push(format!("{}  {}", short(&row.report), set.join(" ")));
    }
    lines.extend(remarks(rows.iter().map(|row| &row.report)));
    lines
}

/// A plan.
pub(super) fn plan(plan: &Plan) -> Vec<String> {
    let mut lines = vec![format!("devices workers enough {HEAD}")];
    for tried in &plan.tried {
        lines.push(format!(
            "{:>7} {:>7} {:>6} {}",
            tried.host.devices,
            tried.host.workers,
            if tried.enough { "yes" } else { "no" },
            short(&tried.report)
        ));
    }
    lines.extend(remarks(plan.tried.iter().map(|tried| &tried.report)));
    lines.push(String::new());
    let target = format!(
        "p99 {} ms with at most {} % failed",
        plan.p99_ms,
        100.0 * plan.max_refused
    );
    lines.push(match plan.answer {
        Some(host) => format!(
            "enough for {target}: {} devices and {} workers with a core each",
            host.devices, host.workers
        ),
        None => format!("nothing in the range is enough for {target}"),
    });
    lines
}

const HEAD: &str = "offered/s   thru/s   good/s  refused %  expired %   kept %      p50      p99  batch   dev %  cpu %     Jain";

fn short(report: &Report) -> String {
    let Tally {
        offered,
        refused,
        expired,
        ..
    } = &report.tally;
    let of_offered = |part: u64| 100.0 * part as f64 / (*offered).max(1) as f64;
    let devices = report.devices.len().max(1) as f64;
    let busy: f64 = report.devices.iter().map(|device| device.utilisation).sum();
    format!(
        "{:>9.1} {:>8.1} {:>8.1} {:>10.2} {:>10.2} {:>8.2} {:>8.1} {:>8.1} {:>6.1} {:>7.1} {:>6.1} {:>8.4}",
        report.tally.offered_per_s,
        report.tally.throughput_per_s,
        report.tally.goodput_per_s,
        of_offered(refused.total()),
        of_offered(*expired),
        100.0 * report.tally.kept(),
        report.latency.p50_ms,
        report.latency.p99_ms,
        report.batches.mean_size,
        100.0 * busy / devices,
        100.0 * report.workers_utilisation,
        report.fairness.jain_answers
    )
}

fn columns(percentiles: &Percentiles) -> String {
    let Percentiles {
        mean_ms,
        p50_ms,
        p90_ms,
        p95_ms,
        p99_ms,
        p999_ms,
        max_ms,
    } = percentiles;
    [mean_ms, p50_ms, p90_ms, p95_ms, p99_ms, p999_ms, max_ms]
        .map(|ms| format!(" {ms:>8.2}"))
        .concat()
}

fn sizes(report: &Report) -> String {
    let all = report.batches.count.max(1) as f64;
    let sizes = report.batches.sizes.iter();
    let parts: Vec<String> = sizes
        .map(|(size, count)| (size, 100.0 * *count as f64 / all))
        .filter(|(_, part)| *part >= 0.5)
        .map(|(size, part)| format!("{size}: {part:.0} %"))
        .collect();
    parts.join(", ")
}
