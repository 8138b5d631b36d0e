//! The binary: what stops a start, in one line, and what its other commands print.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{fixtures, repository};

fn detectd(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_detectd"));
    command.args(arguments);
    command.output().unwrap()
}

/// The one line on standard error of a command that must fail, log lines left out.
fn complaint(arguments: &[&str]) -> String {
    let output = detectd(arguments);
    assert!(!output.status.success(), "{arguments:?} succeeded");
    let text = String::from_utf8(output.stderr).unwrap();
    let ours: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("detectd: "))
        .collect();
    assert_eq!(ours.len(), 1, "{arguments:?} said: {text}");
    ours[0].to_owned()
}

fn serve(models: &Path, more: &[&str]) -> String {
    let common = [
        "serve",
        "--models",
        models.to_str().unwrap(),
        "--grpc-addr",
        "127.0.0.1:0",
        "--http-addr",
        "127.0.0.1:0",
    ];
    complaint(&[&common[..], more].concat())
}

#[test]
fn a_port_in_use_is_named_with_its_setting() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let models = repository(&[fixtures().join("echo")]);
    let line = complaint(&[
        "serve",
        "--models",
        models.path().to_str().unwrap(),
        "--grpc-addr",
        &address,
    ]);
    assert!(
        line.contains(&address) && line.contains("grpc.address"),
        "{line}"
    );
}

#[test]
fn a_model_that_cannot_be_loaded_stops_the_start_with_its_reason() {
    for (model, reason) in [("ir99", "99"), ("wrong-shape", "[?, 20, 9]")] {
        let line = serve(repository(&[fixtures().join(model)]).path(), &[]);
        assert!(line.contains(model) && line.contains(reason), "{line}");
    }
}

#[test]
fn a_gpu_that_cannot_be_had_stops_the_start_and_never_becomes_a_cpu() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("echo");
    std::fs::create_dir(&model).unwrap();
    for file in ["labels.txt", "1"] {
        std::os::unix::fs::symlink(fixtures().join("echo").join(file), model.join(file)).unwrap();
    }
    let card = std::fs::read_to_string(fixtures().join("echo/model.toml")).unwrap();
    // The highest number that a card can say: no machine has so many.
    std::fs::write(
        model.join("model.toml"),
        format!("{card}\n[[instances]]\ndevice = \"cuda:4000000\"\n"),
    )
    .unwrap();
    let line = serve(folder.path(), &[]);
    assert!(
        line.contains("device cuda:4000000 is not available"),
        "{line}"
    );
}

#[test]
fn an_unknown_default_model_is_named_with_those_there_are() {
    let line = serve(
        repository(&[fixtures().join("echo")]).path(),
        &["--default-model", "ecco"],
    );
    assert!(line.contains("ecco") && line.contains("echo"), "{line}");
}

#[test]
fn an_empty_repository_is_named() {
    let empty = tempfile::tempdir().unwrap();
    assert!(serve(empty.path(), &[]).contains("there is no model"));
}

#[test]
fn a_missing_runtime_library_says_where_it_was_looked_for_and_what_to_do() {
    let line = serve(
        repository(&[fixtures().join("echo")]).path(),
        &["--onnxruntime", "/nowhere/libonnxruntime.so"],
    );
    assert!(
        line.contains("/nowhere/libonnxruntime.so") && line.contains("--onnxruntime"),
        "{line}"
    );
}

#[test]
fn a_wrong_configuration_is_a_usage_error() {
    let output = Command::new(env!("CARGO_BIN_EXE_detectd"))
        .args(["serve", "--print-config"])
        .env("DETECTD_GRPC_ADRESS", "127.0.0.1:1")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(64));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.contains("DETECTD_GRPC_ADRESS; did you mean DETECTD_GRPC_ADDRESS?"),
        "{text}"
    );
}

#[test]
fn the_effective_configuration_is_printed_as_a_file_that_gives_it() {
    let printed = detectd(&["serve", "--print-config", "--grpc-addr", "127.0.0.1:7"]);
    let text = String::from_utf8(printed.stdout).unwrap();
    assert!(text.contains("address = \"127.0.0.1:7\""), "{text}");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &text).unwrap();
    let again = detectd(&[
        "serve",
        "--print-config",
        "--config",
        file.path().to_str().unwrap(),
    ]);
    assert_eq!(String::from_utf8(again.stdout).unwrap(), text);
}

#[test]
fn models_are_listed_and_checked() {
    let models = repository(&["echo", "ir99"].map(|name| fixtures().join(name)));
    let path = models.path().to_str().unwrap();
    let list = String::from_utf8(detectd(&["models", "list", "--models", path]).stdout).unwrap();
    assert!(
        list.contains("echo  [1]") && list.contains("ir99  [1]"),
        "{list}"
    );
    let check = detectd(&["models", "check", "--models", path]);
    assert!(!check.status.success());
    let text = String::from_utf8(check.stdout).unwrap();
    assert!(text.contains("echo  ok  input 16x16, 4 labels"), "{text}");
    assert!(text.contains("ir99  FAILED"), "{text}");
}

/// A server of these models whose ports are open and whose models are being loaded.
fn loading(models: &Path) -> Child {
    let mut server = Command::new(env!("CARGO_BIN_EXE_detectd"))
        .args([
            "serve",
            "--grpc-addr",
            "127.0.0.1:0",
            "--http-addr",
            "127.0.0.1:0",
            "--models",
        ])
        .arg(models)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(server.stderr.take().unwrap()).lines();
    assert!(
        log.any(|line| line.unwrap().contains("listening")),
        "the server listens"
    );
    // Read on, so that it never waits for a reader.
    std::thread::spawn(move || log.for_each(drop));
    server
}

#[test]
fn a_signal_while_models_load_ends_the_server_cleanly() {
    let models = repository(&[fixtures().join("echo-slow")]);
    // What went wrong once went wrong in one start of ten.
    for _ in 0..12 {
        let mut server = loading(models.path());
        kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
        assert_eq!(server.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn the_echo_of_a_signal_does_not_cut_the_drain_short() {
    let models = repository(&[fixtures().join("echo-slow")]);
    let mut server = loading(models.path());
    for _ in 0..2 {
        kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
    }
    assert_eq!(server.wait().unwrap().code(), Some(0));
}

#[test]
fn a_repository_of_nothing_but_strays_is_told_of_and_fails() {
    let models = tempfile::tempdir().unwrap();
    std::fs::create_dir(models.path().join("yolox nano")).unwrap();
    let output = detectd(&[
        "models",
        "list",
        "--models",
        models.path().to_str().unwrap(),
    ]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.contains("yolox nano") && text.contains("there is no model"),
        "{text}"
    );
}
