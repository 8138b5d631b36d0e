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
    assert!(String::from_utf8_lossy(&text.stdout).contains("\nanswered "));
    assert!(String::from_utf8_lossy(&text.stderr).contains("times as fast"));
    let json = detectd(&[bursts, "--json", "-", "--set", "duration=1s"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["duration_s"], 1.0);
    let wrong = detectd(&[bursts, "--set", "source.service.deadlin=1s"]);
    assert!(!wrong.status.success());
    assert!(String::from_utf8(wrong.stderr).unwrap().contains("deadlin"));
}

#[test]
fn nothing_happens_but_what_the_scheduler_has_to_know() {
    let report = run("ssd300", &["duration=3s", "warm_up=0s"]);
    assert!(report.events <= report.told, "{}", report.events);
    // Arrived, prepared, and a run of some 30 pictures finished.
    let each = report.told as f64 / report.tally.offered as f64;
    assert!((2.0..2.2).contains(&each), "{each}");
    // However long the cores are busy at a stretch.
    let long = run(
        "ssd300",
        &[
            "source.callers.arrivals.poisson.rate=20000",
            "duration=1s",
            "warm_up=0s",
            "model.ssd300.prepare=40h",
        ],
    );
    assert!(long.events < 3 * long.tally.offered, "{}", long.events);
}

#[test]
fn the_command_prints_the_same_for_the_same_seed() {
    let (bursts, flood) = (path("bursts"), path("flood"));
    let (bursts, flood) = (bursts.to_str().unwrap(), flood.to_str().unwrap());
    let sweep = ["--set", "sweep={ load = [0.5, 1.0] }"];
    let plan = ["--plan", "--set"];
    let target = "plan={ p99 = \"1s\", max_refused = 0.5, devices = [1, 2], workers = [1, 2] }";
    for arguments in [
        vec![bursts],
        [&[bursts][..], &sweep].concat(),
        [&[bursts][..], &plan, &[target]].concat(),
        vec![flood, "--set", "duration=6s"],
    ] {
        let first = detectd(&arguments);
        assert!(first.status.success(), "{arguments:?}: {first:?}");
        assert!(!first.stdout.is_empty());
        assert_eq!(first.stdout, detectd(&arguments).stdout, "{arguments:?}");
    }
}

#[test]
fn a_source_that_never_sends_is_remarked_upon() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("empty.trace"), "# nothing yet\n").unwrap();
    let sources = [
        (
            "rare",
            "",
            "poisson = { rate = 1e-6 }",
            "were to be expected",
        ),
        (
            "late",
            "start = \"9s\"",
            "constant = { rate = 9 }",
            "begin at 9 s",
        ),
        (
            "silent",
            "",
            "trace = { file = \"empty.trace\" }",
            "its trace",
        ),
        (
            "slow",
            "",
            "closed = { callers = 1, think = \"9s\" }",
            "its callers",
        ),
        (
            "early",
            "stop = \"900ms\"",
            "constant = { rate = 9 }",
            "after warm_up",
        ),
        ("steady", "", "constant = { rate = 9 }", ""),
    ];
    let mut text = std::fs::read_to_string(path("bursts")).unwrap();
    text.truncate(text.find("[[source]]").unwrap());
    for (name, more, arrivals, _) in sources {
        text += &format!("[[source]]\nname = \"{name}\"\n{more}\narrivals = {{ {arrivals} }}\n");
    }
    let file = folder.path().join("quiet.toml");
    std::fs::write(&file, text).unwrap();
    let run = |more: &[&str]| {
        let set = ["--set", "duration=3s", "--set", "warm_up=1s"];
        let file = [file.to_str().unwrap()];
        let out = detectd(&[&file[..], &set, more].concat());
        assert!(out.status.success(), "{out:?}");
        String::from_utf8(out.stdout).unwrap()
    };
    let text = run(&[]);
    let json: serde_json::Value = serde_json::from_str(&run(&["--json", "-"])).unwrap();
    let remarks = json["remarks"].as_array().unwrap();
    assert_eq!(remarks.len(), sources.len() - 1, "{remarks:?}");
    for ((name, _, _, why), remark) in sources.iter().zip(remarks) {
        let remark = remark.as_str().unwrap();
        assert!(remark.contains(name) && remark.contains(why), "{remark}");
        assert!(text.contains(&format!("remark: {remark}\n")), "{text}");
    }
}

#[test]
fn the_command_refuses_what_would_never_end() {
    let ssd300 = path("ssd300");
    let ssd300 = ssd300.to_str().unwrap();
    for (set, field) in [
        ("source.0.arrivals.poisson.rate=1e12", "rate"),
        ("load=1e5", "source.callers.arrivals"),
        ("source.0.count=100000000", "count"),
        ("model.0.device.0.count=1000000", "count"),
        ("plan.max_refused=nan", "max_refused"),
    ] {
        let refused = detectd(&[ssd300, "--set", set]);
        assert!(!refused.status.success(), "{set}");
        let told = String::from_utf8(refused.stderr).unwrap();
        assert!(told.contains(field) && told.lines().count() == 1, "{told}");
    }
}

#[test]
fn pictures_in_tiles_are_answered_once_and_their_tiles_fill_batches() {
    let tiled = ["source.callers.arrivals.poisson.rate=120", "duration=6s"];
    let of_seven = [
        "source.callers.tiles=7",
        "source.callers.prepare_tile=0.5ms",
    ];
    let whole = run("ssd300", &tiled);
    let cut = run("ssd300", &[&tiled[..], &of_seven].concat());
    assert!(cut.tally.offered > 0);
    assert_eq!(cut.tally.answered, cut.tally.offered);
    assert_eq!(cut.tally.offered, whole.tally.offered);
    // Those that are on their way when the warm-up and the run end are counted on one side only.
    let (pictures, inputs) = (cut.devices.iter().map(|device| device.pictures), 7);
    let (pictures, all) = (pictures.sum::<u64>(), inputs * cut.tally.answered);
    assert!(pictures.abs_diff(all) <= all / 20, "{pictures} {all}");
    assert!(cut.batches.mean_size > 1.5 * whole.batches.mean_size);
    // Six tiles of 0.5 ms after one picture of 1.5 ms.
    let ratio = cut.workers_utilisation / whole.workers_utilisation;
    assert!((2.9..3.1).contains(&ratio), "{ratio}");
}

#[test]
fn a_picture_in_tiles_that_is_late_or_lost_ends_once() {
    let tiled = ["source.callers.tiles=5", "load=0.6"];
    let late = run(
        "overload",
        &[&tiled[..], &["duration=6s", "sweep={}"]].concat(),
    );
    assert!(late.tally.refused.total() > 0);
    assert!(late.tally.kept() >= 0.95, "{:?}", late.tally);
    // Two of three devices go twice, with pieces of all pictures in hand; the third has most of the pieces still to run,
    // and leaves them.
    let twice = |device: u8| {
        format!(
            "{{ device = {device}, down = \"300ms\", up = \"301ms\" }}, \
             {{ device = {device}, down = \"304ms\", up = \"400ms\" }}"
        )
    };
    let faults = [twice(0), twice(1)].join(", ");
    let lost = run(
        "hang",
        &[
            "duration=3s",
            "warm_up=0s",
            "source.callers.tiles=800",
            "source.callers.deadline=20s",
            "source.callers.stop=250ms",
            "source.callers.arrivals={ constant = { rate = 4 } }",
            "model.quick.device.0.count=3",
            &format!("model.quick.device.0.fault=[{faults}]"),
        ],
    );
    assert!(lost.tally.lost > 0, "{:?}", lost.tally);
    let pieces: u64 = lost.devices.iter().map(|device| device.pictures).sum();
    let most = 800 * lost.tally.answered + 400 * lost.tally.lost;
    assert!(pieces < most, "{pieces} {most}");
    // Room is given back: with room for eight, pictures go on being let in to the end.
    let few = ["admission.max_requests=8", "duration=6s", "sweep={}"];
    let few = run("overload", &[&tiled[..], &few].concat());
    assert!(mean(&few.course, 5.0, 6.0) > 0.5 * mean(&few.course, 1.0, 5.0));
}
