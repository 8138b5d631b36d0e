//! The documents say what the code does.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The reasons in a text: words of capitals in backticks or quotes.
fn reasons(text: &str, quote: char) -> BTreeSet<String> {
    let capitals =
        |word: &&str| word.len() > 5 && word.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    text.split(quote)
        .filter(capitals)
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_error_table_has_exactly_the_reasons_that_the_server_gives() {
    let code = read("src/grpc/status.rs");
    let body = code.split("/// The status of an error.").next().unwrap();
    let table: String = read("docs/ERRORS.md")
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    assert_eq!(reasons(&table, '`'), reasons(body, '"'));
}

#[test]
fn the_metrics_list_has_every_metric() {
    let listed = read("docs/OPERATING.md");
    for file in [
        "src/device/metrics.rs",
        "src/grpc/metrics.rs",
        "src/pipeline/metrics.rs",
    ] {
        let code = read(file);
        let registered = code.split("registry.register").skip(1);
        for name in registered.map(|after| after.split('"').nth(1).unwrap()) {
            assert!(
                listed.contains(&format!("detectd_{name}")),
                "{name} is not in docs/OPERATING.md"
            );
        }
    }
}

#[test]
fn every_setting_is_in_the_documents() {
    let listed = read("docs/CONFIGURATION.md");
    let config = detectd::config::Config::default().to_toml();
    let mut section = String::new();
    for line in config.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = format!("{}.", name.trim_end_matches(']'));
        } else if let Some((key, _)) = line.split_once(" = ") {
            assert!(
                listed.contains(&format!("`{section}{key}`")),
                "{section}{key} is not in docs/CONFIGURATION.md"
            );
        }
    }
}
