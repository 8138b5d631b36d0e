//! What the policies are worth, in virtual time: the scenarios of `docs/scenarios/` and what has to come out of them.
//! Nothing here depends on how fast the machine is.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use detectd::simulation::report::Moment;
use detectd::simulation::{Document, Report, Scenario, chart, plan, simulate, sweep};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("docs/scenarios/{name}.toml"))
}

fn document(name: &str, set: &[&str]) -> Document {
    let mut document = Document::read(&path(name)).unwrap();
    for pair in set {
        document.set_text(pair).unwrap();
    }
    document
}

fn scenario(name: &str, set: &[&str]) -> Scenario {
    document(name, set).scenario().unwrap()
}

fn run(name: &str, set: &[&str]) -> Report {
    let report = simulate(&scenario(name, set));
    let tally = &report.tally;
    let ended = tally.refused.total() + tally.expired + tally.lost + tally.answered;
    assert_eq!(ended, tally.offered, "every request ends once");
    report
}

fn mean(course: &[Moment], from: f64, to: f64) -> f64 {
    let within = course
        .iter()
        .filter(|moment| (from..to).contains(&moment.at_s));
    let rates: Vec<f64> = within.map(|moment| moment.answered_per_s).collect();
    rates.iter().sum::<f64>() / rates.len() as f64
}

#[test]
fn throughput_grows_with_the_devices() {
    let rows = sweep(&document("scaling", &["duration=900ms", "warm_up=300ms"])).unwrap();
    let one = rows[0].report.tally.throughput_per_s;
    for (row, devices) in rows.iter().zip([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]) {
        let throughput = row.report.tally.throughput_per_s;
        assert!(
            throughput >= 0.95 * devices * one,
            "{devices} devices: {throughput}, one: {one}"
        );
    }
}

#[test]
fn four_gpus_answer_97_percent_of_the_offline_rate_within_75_ms() {
    let report = run("ssd300", &["duration=15s", "warm_up=3s"]);
    let offline = report.offline[0].per_second;
    assert!((offline - 3_076.9).abs() < 0.1, "{offline}");
    // The rate of the scenario; what chance makes of it differs by a part of a percent.
    assert!(report.tally.offered_per_s > 0.965 * offline);
    assert_eq!(report.tally.answered, report.tally.offered);
    assert!(report.latency.p99_ms <= 75.0, "{:?}", report.latency);
}

#[test]
fn goodput_does_not_fall_under_overload() {
    let rows = sweep(&document("overload", &["duration=10s", "warm_up=3s"])).unwrap();
    let peak = rows
        .iter()
        .map(|row| row.report.tally.goodput_per_s)
        .fold(0.0, f64::max);
    for row in &rows {
        let (tally, load) = (&row.report.tally, &row.set[0].1);
        let load: f64 = load.parse().unwrap();
        assert!(
            load < 1.0 || tally.goodput_per_s >= 0.95 * peak,
            "load {load}: {tally:?}"
        );
        assert!(
            tally.kept() >= 0.99,
            "load {load}: {:.4} of the admitted",
            tally.kept()
        );
    }
}

#[test]
fn a_flood_takes_nothing_from_the_modest() {
    for deadlines in [true, false] {
        let mut scenario = scenario("flood", &["duration=10s", "warm_up=3s"]);
        if !deadlines {
            scenario
                .source
                .iter_mut()
                .for_each(|source| source.deadline = None);
        }
        let report = simulate(&scenario);
        let [modest, flood] = &report.sources[..] else {
            panic!("two kinds of sources");
        };
        assert_eq!(
            modest.tally.in_time, modest.tally.offered,
            "deadlines: {deadlines}"
        );
        assert!(flood.tally.refused.total() > flood.tally.offered / 2);
        let offline = report.offline[0].per_second;
        assert!(
            report.tally.goodput_per_s > 0.95 * offline,
            "{:?}",
            report.tally
        );
    }
}

#[test]
fn equal_sources_fare_alike_whichever_model_they_ask() {
    for deadlines in [true, false] {
        let mut scenario = scenario("two-models", &["duration=12s", "warm_up=3s"]);
        if !deadlines {
            scenario
                .source
                .iter_mut()
                .for_each(|source| source.deadline = None);
        }
        let report = simulate(&scenario);
        assert!(report.fairness.jain_cost >= 0.95, "{:?}", report.fairness);
        for source in &report.sources {
            assert!(source.jain_answers >= 0.95, "{source:?}");
            assert!((0.45..0.55).contains(&source.cost_share), "{source:?}");
        }
    }
    let report = run(
        "overload",
        &[
            "load=3",
            "source.callers.count=16",
            "duration=6s",
            "warm_up=2s",
        ],
    );
    assert!(
        report.fairness.jain_answers >= 0.95,
        "{:?}",
        report.fairness
    );
}

#[test]
fn a_seed_gives_one_report_and_another_seed_another() {
    let json = |seed: &str| {
        let report = run("bursts", &[seed]);
        serde_json::to_string(&report).unwrap()
    };
    assert_eq!(json("seed=1"), json("seed=1"));
    assert_ne!(json("seed=1"), json("seed=2"));
}

#[test]
fn a_trace_is_replayed_and_bursts_come_and_go() {
    let report = run("bursts", &[]);
    assert_eq!(report.sources[0].tally.offered, 135); // lines of the trace
    assert_eq!(report.sources[0].tally.in_time, 135);
    let off = report
        .course
        .iter()
        .filter(|moment| (0.6..1.9).contains(&moment.at_s));
    let busiest = report
        .course
        .iter()
        .map(|moment| moment.offered_per_s)
        .fold(0.0, f64::max);
    let calm: Vec<f64> = off.map(|moment| moment.offered_per_s).collect();
    assert!(calm.iter().sum::<f64>() / (calm.len() as f64) < busiest / 2.0);
}

#[test]
fn a_hanging_device_costs_its_part_until_it_is_back() {
    let report = run("hang", &["duration=26s", "load=0.95"]);
    assert_eq!(report.devices[3].ejected, 1);
    assert_eq!(report.tally.lost, 0);
    let before = mean(&report.course, 4.0, 10.0);
    let without = mean(&report.course, 13.0, 20.0);
    let after = mean(&report.course, 22.0, 26.0);
    assert!(
        (0.71..0.79).contains(&(without / before)),
        "{before} {without}"
    );
    assert!((0.96..1.04).contains(&(after / before)), "{before} {after}");
}

#[test]
fn a_plan_finds_the_smallest_host_or_says_that_there_is_none() {
    // 0.4 of the load is 1194 a second: two GPUs do 1538.
    let set = ["load=0.4", "duration=4s", "warm_up=1s"];
    let found = plan(&document("ssd300", &set)).unwrap();
    let host = found.answer.expect("eight GPUs are enough");
    assert_eq!(host.devices, 2);
    assert!(host.workers <= 4, "{host:?}"); // 1194 x 1.5 ms are 1.8 cores
    let too_few = [&set[..], &["plan.devices=[1, 1]"]].concat();
    assert_eq!(plan(&document("ssd300", &too_few)).unwrap().answer, None);
}

#[test]
fn a_chart_has_its_axes_and_is_whole() {
    let svg = chart::draw(&run("bursts", &[]));
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    for label in [
        "latency, ms",
        "time, s",
        "busy, % of the time",
        "yolox-nano#3",
    ] {
        assert!(svg.contains(label), "{label}");
    }
}

fn detectd(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_detectd"));
    command.arg("simulate").args(arguments);
    command.output().unwrap()
}

#[test]
fn the_command_prints_text_or_json_and_says_what_is_wrong() {
    let bursts = path("bursts");
    let bursts = bursts.to_str().unwrap();
    let text = detectd(&[bursts]);
    assert!(text.status.success());
    assert!(
        String::from_utf8(text.stdout)
            .unwrap()
            .contains("times as fast")
    );
    let json = detectd(&[bursts, "--json", "-", "--set", "duration=1s"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["duration_s"], 1.0);
    let wrong = detectd(&[bursts, "--set", "source.service.deadlin=1s"]);
    assert!(!wrong.status.success());
    assert!(String::from_utf8(wrong.stderr).unwrap().contains("deadlin"));
}
