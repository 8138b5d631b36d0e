//! The walls of the house: who may import whom, and what no room may know. `docs/ARCHITECTURE.md` draws it.

use std::fs;
use std::path::{Path, PathBuf};

/// The rooms, lowest level first. A room may import from its own level and those below.
const LEVELS: [&[&str]; 6] = [
    &["tensor", "telemetry"],
    &["vision", "heads", "model", "tracking"],
    &["scheduling", "device"],
    &["pipeline", "simulation"],
    &["grpc", "http"],
    &["config", "app", "cli"],
];

/// Inside a level: these may import those, never the other way round.
const NEIGHBOURS: [(&str, &[&str]); 11] = [
    ("vision", &[]),
    ("heads", &["vision"]),
    ("model", &["heads", "vision"]),
    ("tracking", &["vision"]),
    ("scheduling", &[]),
    ("device", &["scheduling"]),
    ("pipeline", &[]),
    ("simulation", &[]),
    ("grpc", &[]),
    ("http", &[]),
    ("config", &[]),
];

fn source_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(source_files(&path)),
            false if path.extension().is_some_and(|extension| extension == "rs") => {
                files.push(path)
            }
            false => {}
        }
    }
    files
}

/// Each file's path below `src/` and its code, without comments.
fn sources() -> Vec<(String, String)> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let read = |path: PathBuf| {
        let name = path
            .strip_prefix(&src)
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        let text = fs::read_to_string(&path).unwrap();
        let code: Vec<&str> = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .collect();
        (name, code.join("\n"))
    };
    source_files(&src).into_iter().map(read).collect()
}

fn room(file: &str) -> &str {
    let first = file.split('/').next().unwrap();
    first.strip_suffix(".rs").unwrap_or(first)
}

fn level(room: &str) -> Option<usize> {
    LEVELS.iter().position(|level| level.contains(&room))
}

/// The rooms that a file names: `crate::room`, alone or in a braced list.
fn imports(code: &str) -> Vec<String> {
    let mut rooms = Vec::new();
    for after in code.split("crate::").skip(1) {
        match after.strip_prefix('{') {
            None => rooms.push(word(after)),
            Some(list) => {
                let list = &list[..list.find(';').unwrap_or(list.len())];
                rooms.extend(list.split([',', '{', '}']).map(|item| word(item.trim())));
            }
        }
    }
    rooms.retain(|room| level(room).is_some());
    rooms
}

fn word(text: &str) -> String {
    text.chars()
        .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
        .collect()
}

/// Whether `code` names the crate or module `name`.
fn names(code: &str, name: &str) -> bool {
    code.match_indices(&format!("{name}::")).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        !before.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
    })
}

#[test]
fn imports_run_downwards_only() {
    let mut wrong = Vec::new();
    for (file, code) in sources() {
        let from = room(&file);
        let Some(from_level) = level(from) else {
            continue;
        };
        for to in imports(&code) {
            let to_level = level(&to).unwrap();
            let neighbour = NEIGHBOURS.iter().find(|(room, _)| *room == from);
            let allowed = to == from
                || to_level < from_level
                || (to_level == from_level
                    && neighbour.is_none_or(|(_, may)| may.contains(&to.as_str())));
            if !allowed {
                wrong.push(format!("{file} imports {to}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_room_has_its_level() {
    for (file, _) in sources() {
        let room = room(&file);
        assert!(
            ["lib", "main"].contains(&room) || level(room).is_some(),
            "{file} is in no level"
        );
    }
}

#[test]
fn what_a_room_must_not_know_it_does_not_name() {
    let mut wrong = Vec::new();
    for (file, code) in sources() {
        let room = room(&file);
        let mut forbid = |what: &str, here: bool| {
            if here && names(&code, what) {
                wrong.push(format!("{file} names {what}"));
            }
        };
        forbid("ort", file != "device/ort.rs");
        forbid("pb", !["grpc", "cli"].contains(&room));
        forbid("tonic", !["grpc", "cli"].contains(&room));
        forbid("axum", !["grpc", "http"].contains(&room));
        forbid("image", room != "vision");
        let domain = ["vision", "heads", "tracking", "model"].contains(&room);
        forbid("tokio", domain);
        // Tests read what cargo tells them.
        let reads_env = room == "cli"
            || file == "app.rs"
            || file.ends_with("/tests.rs")
            || file.contains("/tests/");
        forbid("std::env", !reads_env);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn there_is_no_mod_rs_and_every_file_says_what_it_is_for() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for path in source_files(&src) {
        assert!(!path.ends_with("mod.rs"), "{}", path.display());
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            text.starts_with("//! "),
            "{} does not begin with its purpose",
            path.display()
        );
    }
}
