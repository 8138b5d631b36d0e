//! `detectd eval`: what it makes of annotations and pictures, and what it tells of. Its arithmetic is tested where it is.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{PATIENCE, Server, flat_png};

/// Pictures, and a file of annotations about them.
struct Set {
    folder: TempDir,
    annotations: Value,
}

// === impl Set ===

impl Set {
    /// So many pictures, each with the object that the network echo calls alpha.
    fn new(count: u8) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (mut images, mut annotations) = (Vec::new(), Vec::new());
        for n in 0..count {
            // A colour is a place, see tests/fixtures/make_models.py.
            let rgb = [8 * n, 20, 30];
            let name = format!("{n}.png");
            std::fs::write(folder.path().join(&name), flat_png(rgb, 16)).unwrap();
            images.push(json!({"id": n, "file_name": name, "width": 16, "height": 16}));
            let [red, green, blue] = rgb.map(|value| f64::from(value) / 255.0);
            let (x, y) = (4.0 * red, 4.0 * green);
            let bbox = [x, y, 8.0 + 8.0 * blue - x, 8.0 + 8.0 * red - y];
            annotations.push(json!({"id": n, "image_id": n, "category_id": 7, "bbox": bbox}));
        }
        let categories = json!([{"id": 7, "name": "alpha"}]);
        Self {
            folder,
            annotations: json!({
                "images": images,
                "annotations": annotations,
                "categories": categories,
            }),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self) -> PathBuf {
        let path = self.path("annotations.json");
        std::fs::write(&path, self.annotations.to_string()).unwrap();
        path
    }

    /// Runs the command on it.
    async fn measured(&self, server: &Server, more: &[&str]) -> Output {
        let coco = self.write();
        run(server, &coco, self.folder.path(), more).await
    }

    /// The object that it prints, and its exit code.
    async fn report(&self, server: &Server, more: &[&str]) -> (Value, Option<i32>) {
        let output = self.measured(server, &[&["--json"], more].concat()).await;
        let told = stderr(&output);
        let printed = serde_json::from_slice(&output.stdout).expect(&told);
        (printed, output.status.code())
    }
}

async fn run(server: &Server, coco: &Path, images: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_detectd"));
    command.args(["eval", "--model", "echo", "--timeout", "100", "--addr"]);
    command.arg(server.addresses.grpc.to_string());
    command.arg("--coco").arg(coco);
    command.arg("--images").arg(images).args(more);
    command.stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap());
    let output = tokio::time::timeout(PATIENCE, output).await;
    output.expect("the command ends").unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn ap(report: &Value) -> f64 {
    report["scores"]["ap"].as_f64().unwrap()
}

#[tokio::test]
async fn what_a_model_finds_everywhere_has_full_marks() {
    let server = Server::start(&["echo"]).await;
    let set = Set::new(20);
    let out = set.path("found.json");
    let (report, code) = set.report(&server, &["--out", out.to_str().unwrap()]).await;
    assert_eq!(code, Some(0));
    assert!(ap(&report) > 0.999, "{report}");
    assert_eq!(report["categories"]["matched_by"], "name");
    // They were not asked for: there is one box a picture.
    let others = &report["categories"]["labels_without_category"];
    assert_eq!(*others, json!(["beta", "gamma", "delta"]));
    assert_eq!(report["boxes"], 20);
    let found: Value = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
    let found = found.as_array().unwrap();
    let pictures: Vec<u64> = found
        .iter()
        .map(|one| one["image_id"].as_u64().unwrap())
        .collect();
    assert_eq!(pictures, (0..20).collect::<Vec<_>>());
    assert!(found.iter().all(|one| one["category_id"] == 7));
    let there = &set.annotations["annotations"][5]["bbox"];
    for side in 0..4 {
        let gap = found[5]["bbox"][side].as_f64().unwrap() - there[side].as_f64().unwrap();
        assert!(gap.abs() < 0.1, "{} is not {there}", found[5]["bbox"]);
    }
}

#[tokio::test]
async fn a_missing_or_refused_picture_is_told_of_counted_and_never_a_hole() {
    let server = Server::start(&["echo"]).await;
    let set = Set::new(4);
    std::fs::remove_file(set.path("1.png")).unwrap();
    std::fs::write(set.path("2.png"), "this is no picture").unwrap();
    let output = set.measured(&server, &[]).await;
    assert_eq!(output.status.code(), Some(1));
    let told = stderr(&output);
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), 2, "{told}");
    let about = |name: &str| *lines.iter().find(|line| line.contains(name)).expect(&told);
    assert!(about("1.png").contains("cannot read it"), "{told}");
    assert!(about("2.png").contains("UNSUPPORTED_FORMAT"), "{told}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("2 of 4 pictures"), "{text}");
    assert!(text.contains("pictures not looked at: 2"), "{text}");
    // Half of what there is was not found: 51 of the 101 recalls are reached.
    assert!(text.contains("AP50        0.505"), "{text}");
    let (report, code) = set.report(&server, &[]).await;
    assert_eq!((code, &report["pictures_failed"]), (Some(1), &json!(2)));
}

#[tokio::test]
async fn what_matches_no_category_is_told_and_ids_count_where_no_name_does() {
    let server = Server::start(&["echo"]).await;
    let mut set = Set::new(4);
    set.annotations["categories"] = json!([{"id": 7, "name": "alpha"}, {"id": 0, "name": "omega"}]);
    let another = json!({"id": 9, "image_id": 0, "category_id": 0, "bbox": [8, 8, 4, 4]});
    set.annotations["annotations"]
        .as_array_mut()
        .unwrap()
        .push(another);
    let (report, code) = set.report(&server, &[]).await;
    // Of a category that the model does not know nothing is found, and it counts as much as the other.
    assert!((ap(&report) - 0.5).abs() < 0.01, "{report}");
    assert_eq!(code, Some(0));
    assert_eq!(report["categories"]["without_label"], json!(["omega"]));
    let remarks = report["remarks"].to_string();
    assert!(remarks.contains("objects of them, which count as not found: 1"));

    let mut set = Set::new(4);
    set.annotations["categories"] = json!([{"id": 0, "name": "something"}]);
    for n in 0..4 {
        set.annotations["annotations"][n]["category_id"] = json!(0);
    }
    let (report, _) = set.report(&server, &[]).await;
    assert!(ap(&report) > 0.999, "{report}");
    assert_eq!(report["categories"]["matched_by"], "id");
    let text = set.measured(&server, &[]).await.stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("1 of 1 categories matched by id"), "{text}");

    set.annotations["categories"][0]["id"] = json!(90);
    let out = set.path("found.json");
    let output = set
        .measured(&server, &["--out", out.to_str().unwrap()])
        .await;
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("is a label of echo"));
    assert!(!out.exists(), "nothing was measured, nothing is written");
}

#[tokio::test]
async fn what_makes_marks_worthless_is_remarked_upon() {
    let server = Server::start(&["echo"]).await;
    let mut set = Set::new(3);
    set.annotations["images"][1]["width"] = json!(32);
    set.annotations["annotations"][2]["image_id"] = json!(99);
    let (report, _) = set.report(&server, &[]).await;
    let remarks = report["remarks"].to_string();
    assert!(remarks.contains("1.png is 16x16, not 32x16"), "{remarks}");
    assert!(remarks.contains("left out: 1"), "{remarks}");
    let (report, _) = set.report(&server, &["--limit", "1"]).await;
    assert_eq!(report["pictures"], 1);
    assert!(ap(&report) > 0.999, "{report}");
}

#[tokio::test]
async fn what_cannot_be_measured_or_written_is_one_line_before_anything_is_asked() {
    let server = Server::start(&["echo"]).await;
    let set = Set::new(1);
    let coco = set.write();
    let (coco, folder) = (coco.as_path(), set.folder.path());
    let nowhere = set.path("none/found.json");
    let nowhere = nowhere.to_str().unwrap();
    let before = std::fs::read(coco).unwrap();
    for (coco, images, more, part) in [
        (&*set.path("0.png"), folder, &[][..], "COCO"),
        (&*set.path("none.json"), folder, &[], "cannot read"),
        (coco, &*set.path("0.png"), &[], "is no folder"),
        (
            coco,
            folder,
            &["--out", coco.to_str().unwrap()],
            "annotations",
        ),
        (coco, folder, &["--out", nowhere], "cannot write"),
    ] {
        let output = run(&server, coco, images, more).await;
        assert_eq!(output.status.code(), Some(1));
        let told = stderr(&output);
        assert!(told.lines().count() == 1 && told.contains(part), "{told}");
    }
    assert_eq!(std::fs::read(coco).unwrap(), before);
    let mut other = Command::new(env!("CARGO_BIN_EXE_detectd"));
    other.args(["eval", "--model", "ecco", "--addr"]);
    other.arg(server.addresses.grpc.to_string());
    other.arg("--coco").arg(coco).arg("--images").arg(folder);
    let output = tokio::task::spawn_blocking(move || other.output().unwrap());
    let told = stderr(&output.await.unwrap());
    assert!(
        told.contains("the server has no model ecco; it has echo"),
        "{told}"
    );
}
