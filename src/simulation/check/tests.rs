//! What a scenario may not say.

use std::path::Path;

use toml::Value;

use crate::simulation::Document;

/// Every number and every time that a scenario can hold.
const FULL: &str = r#"
        seed = 1
        duration = "1s"
        warm_up = "100ms"
        workers = 2
        cores = 2.0
        max_wait = "1s"
        watchdog = "1s"
        load = 1.0
        admission = { max_requests = 10, max_requests_per_source = 5 }
        [[model]]
        name = "a"
        prepare = { lognormal = { median = "1ms", spread = 0.4 } }
        postprocess = { kinds = [{ weight = 9.0, time = "1ms" }] }
        transport = { uniform = ["1ms", "2ms"] }
        [[model.device]]
        count = 2
        jitter = 0.1
        max_queue_delay = "1ms"
        latency = { 1 = "5ms", 2 = "6ms" }
        fault = [
            { device = 1, slow = 2.0, from = "100ms", to = "200ms" },
            { device = 0, hang = "100ms", up = "200ms" },
        ]
        [[source]]
        name = "poisson"
        count = 2
        streams = 2
        tiles = 3
        prepare_tile = { uniform = ["1ms", "2ms"] }
        deadline = "1s"
        start = "1ms"
        stop = "900ms"
        arrivals = { poisson = { rate = 10.0 } }
        [[source]]
        name = "burst"
        arrivals = { burst = { rate = 10.0, on = "10ms", off = "10ms" } }
        [[source]]
        name = "constant"
        arrivals = { constant = { rate = 10.0, jitter = 0.1 } }
        [[source]]
        name = "closed"
        arrivals = { closed = { callers = 2, think = "1ms" } }
        [plan]
        p99 = "1s"
        max_refused = 0.1
        devices = [2, 3]
        workers = [1, 2]
    "#;

fn document() -> Document {
    Document::parse(FULL, "it", Path::new("")).unwrap()
}

fn refusal(path: &str, value: Value) -> Option<String> {
    let mut document = document();
    document.set(path, value).unwrap();
    document.scenario().err().map(|error| error.to_string())
}

/// The paths of all values that are no table, no list, and no name.
fn leaves(value: &Value, path: &str, found: &mut Vec<(String, Value)>) {
    let below = |key: &str| match path.is_empty() {
        true => key.to_owned(),
        false => format!("{path}.{key}"),
    };
    match value {
        Value::Table(table) => {
            for (key, value) in table.iter().filter(|(key, _)| *key != "name") {
                leaves(value, &below(key), found);
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                leaves(value, &below(&index.to_string()), found);
            }
        }
        leaf => found.push((path.to_owned(), leaf.clone())),
    }
}

#[test]
fn no_number_is_taken_that_is_none_or_is_beyond_all_bounds() {
    document().scenario().unwrap();
    let mut found = Vec::new();
    leaves(&FULL.parse().map(Value::Table).unwrap(), "", &mut found);
    assert!(found.len() > 40, "{found:?}");
    for (path, value) in found {
        let wrong: Vec<Value> = match value {
            Value::Integer(_) => [-1, i64::MAX].map(Value::Integer).into(),
            Value::Float(_) => [f64::NAN, f64::INFINITY, -1.0, 1e300]
                .map(Value::Float)
                .into(),
            _ => ["nans", "-1s", "1e300s", "99999h"].map(Value::from).into(),
        };
        let field = path.split('.').rfind(|key| key.parse::<u32>().is_err());
        for value in wrong {
            if path == "seed" && value == Value::Integer(i64::MAX) {
                continue;
            }
            let told = refusal(&path, value.clone());
            let told = told.unwrap_or_else(|| panic!("{path} = {value} is taken"));
            assert!(told.contains(field.unwrap()), "{path} = {value}: {told}");
        }
    }
}

#[test]
fn nothing_is_taken_where_something_is_needed() {
    for path in ["duration", "max_wait", "watchdog", "plan.p99"] {
        let told = refusal(path, Value::from("0s"));
        assert!(told.is_some_and(|told| told.contains(path)), "{path}");
    }
    for path in [
        "workers",
        "cores",
        "load",
        "admission.max_requests",
        "admission.max_requests_per_source",
        "source.poisson.count",
        "source.poisson.streams",
        "source.poisson.tiles",
        "source.poisson.arrivals.poisson.rate",
        "source.closed.arrivals.closed.callers",
        "plan.devices.0",
    ] {
        let told = refusal(path, Value::Integer(0));
        let named = path.trim_end_matches(".0");
        assert!(told.is_some_and(|told| told.contains(named)), "{path}");
    }
}

#[test]
fn a_batch_size_is_told_once() {
    let told = refusal("model.a.device.0.latency.01", Value::from("5ms"));
    assert!(told.unwrap().contains("each once"));
}
