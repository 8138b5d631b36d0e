//! Repositories in temporary folders, and the project's own.

use std::fs;

use tempfile::TempDir;

use super::*;
use crate::heads::{AnchorSpec, HeadSpec, SsdSpec};
use crate::vision::ClassId;

const GOOD_CARD: &str = r#"
[input]
size = [32, 32]
resize = { mode = "stretch" }
color = "rgb"
[head]
family = "detr"
[defaults]
score_threshold = 0.5
"#;

/// Of a card that says where its network comes from.
const SOURCE: &str = r#"
[source]
file = "x.onnx"
url = "https://example.com/x.onnx"
sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
"#;

/// Makes a repository of these files and folders (a trailing `/` makes a folder).
fn repository(files: &[(&str, &str)]) -> TempDir {
    let root = TempDir::new().unwrap();
    for (path, text) in files {
        let full = root.path().join(path);
        if path.ends_with('/') {
            fs::create_dir_all(full).unwrap();
            continue;
        }
        fs::create_dir_all(full.parent().unwrap()).unwrap();
        fs::write(full, text).unwrap();
    }
    root
}

#[test]
fn models_are_listed_by_name_and_versions_by_number() {
    let root = repository(&[
        ("b/model.toml", GOOD_CARD),
        ("b/9/model.onnx", ""),
        ("b/10/model.onnx", ""),
        ("b/labels.txt", "person\ncar\n"),
        ("a/model.toml", GOOD_CARD),
        ("fetch.py", ""),
        ("README.md", ""),
        (".git/", ""),
    ]);
    let models = ModelRepository::open(root.path()).unwrap();
    let names: Vec<_> = models.entries().iter().map(|m| m.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(models.strays(), [""; 0]);

    let model = models.entry("b").unwrap();
    let numbers: Vec<_> = model.versions.iter().map(|v| v.get()).collect();
    assert_eq!(numbers, [9, 10]);
    let newest = model.newest().unwrap();
    assert_eq!(
        model.network(newest).unwrap(),
        root.path().join("b/10/model.onnx")
    );
    let labels = model.labels(model.spec.as_ref().unwrap()).unwrap();
    assert_eq!(labels.label(ClassId(1)), Some("car"));
    assert!(models.entry("c").is_none());
}

#[test]
fn a_bad_card_is_told_by_its_path_and_hides_no_other_model() {
    let root = repository(&[
        ("bad/model.toml", &GOOD_CARD.replace("score_t", "scor_t")),
        ("bad/1/model.onnx", ""),
        ("good/model.toml", GOOD_CARD),
        ("none/1/model.onnx", ""),
    ]);
    let models = ModelRepository::open(root.path()).unwrap();
    assert!(models.entry("good").unwrap().spec.is_ok());
    let error = |name: &str| {
        let error = models.entry(name).unwrap().spec.as_ref().unwrap_err();
        let root = format!("{}/", root.path().display());
        error.to_string().replace(&root, "")
    };
    assert_eq!(
        error("bad"),
        "bad/model.toml: line 9, `scor_threshold = 0.5`: unknown key `scor_threshold`; \
         the nearest known one is `score_threshold`"
    );
    assert_eq!(error("none"), "none has no model.toml");
}

#[test]
fn an_absent_network_says_what_to_do() {
    let root = repository(&[
        ("a/model.toml", GOOD_CARD),
        ("b/model.toml", GOOD_CARD),
        ("b/1/model.onnx", ""),
        ("b/2/", ""),
        ("c/model.toml", &format!("{GOOD_CARD}\n{SOURCE}")),
    ]);
    let models = ModelRepository::open(root.path()).unwrap();
    let error = |name| {
        models
            .entry(name)
            .unwrap()
            .newest()
            .unwrap_err()
            .to_string()
    };
    let absent = "1/model.onnx is absent; ";
    let put = "put the network there";
    assert!(
        error("a").ends_with(&format!("a/{absent}{put}")),
        "{}",
        error("a")
    );
    let fetched = format!("c/{absent}run `make models`, or {put}");
    assert!(error("c").ends_with(&fetched), "{}", error("c"));
    // A version whose file is still being copied is no version yet.
    let model = models.entry("b").unwrap();
    assert_eq!(model.newest().unwrap(), ModelVersion::FIRST);
    assert!(models.strays()[0].ends_with("b/2 holds no model.onnx"));
    let error = model.network("2".parse().unwrap()).unwrap_err();
    assert!(matches!(error, ModelError::NoNetwork { .. }));
}

#[test]
fn folders_that_are_no_model_or_no_version_are_told() {
    let root = repository(&[
        ("Big/model.toml", GOOD_CARD),
        ("a/model.toml", GOOD_CARD),
        ("a/v2/model.onnx", ""),
        ("a/02/model.onnx", ""),
        ("a/.tmp/", ""),
    ]);
    let models = ModelRepository::open(root.path()).unwrap();
    assert_eq!(models.entries().len(), 1);
    assert!(models.entries()[0].versions.is_empty());
    let strays = models.strays().join("\n");
    for stray in [
        "Big: \"Big\" is no name",
        "v2: \"v2\" is no version",
        "02: ",
    ] {
        assert!(strays.contains(stray), "{strays}");
    }
    assert_eq!(models.strays().len(), 3);
}

#[test]
fn a_folder_that_is_not_there_and_labels_that_are_wrong_are_told_by_path() {
    let root = repository(&[
        ("a/model.toml", GOOD_CARD),
        ("b/model.toml", GOOD_CARD),
        ("b/labels.txt", "x\n\ny"),
    ]);
    let error = ModelRepository::open(root.path().join("nowhere")).unwrap_err();
    assert!(error.to_string().contains("nowhere cannot be read: "));
    let models = ModelRepository::open(root.path()).unwrap();
    for (name, reason) in [
        ("a", "a/labels.txt cannot be read: "),
        ("b", "b/labels.txt: line 2 is blank"),
    ] {
        let model = models.entry(name).unwrap();
        let error = model.labels(model.spec.as_ref().unwrap()).unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
    }
}

const SSD_CARD: &str = r#"
[input]
size = [300, 300]
resize = { mode = "stretch" }
color = "rgb"
[head]
family = "ssd"
coding = "tensorflow"
anchors = "anchors.npy"
[defaults]
score_threshold = 0.5
iou_threshold = 0.6
"#;

/// The anchors in a model's folder, as the only model of a repository reads them.
fn anchors_of(folder: &Path) -> Result<Vec<[f32; 4]>, String> {
    let models = ModelRepository::open(folder).unwrap();
    let spec = models.entries()[0].spec.as_ref();
    match &spec.map_err(|error| error.to_string())?.head {
        HeadSpec::Ssd(SsdSpec {
            anchors: AnchorSpec::Table(table),
            ..
        }) => Ok(table.anchors().to_vec()),
        head => panic!("{head:?}"),
    }
}

#[test]
fn anchors_lie_beside_the_card_and_are_told_by_path_when_they_are_wrong() {
    let root = repository(&[("a/model.toml", SSD_CARD)]);
    let file = root.path().join("a/anchors.npy");
    let error = anchors_of(root.path()).unwrap_err();
    assert!(error.contains("a/anchors.npy cannot be read: "), "{error}");
    fs::write(&file, "0.5 0.5 0.1 0.1").unwrap();
    let error = anchors_of(root.path()).unwrap_err();
    assert!(
        error.ends_with("a/anchors.npy: it is no .npy file"),
        "{error}"
    );

    let write = |numbers: [f32; 4]| {
        let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 4), }\n";
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.bytes());
        bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        fs::write(&file, bytes).unwrap();
    };
    write([0.5, 0.5, 0.25, 0.125]);
    assert_eq!(anchors_of(root.path()).unwrap(), [[0.5, 0.5, 0.25, 0.125]]);
    write([0.5, 0.5, 0.25, 0.0]);
    let error = anchors_of(root.path()).unwrap_err();
    assert!(
        error.contains("anchors.npy: the anchors are wrong: number 0, "),
        "{error}"
    );
}

#[test]
fn the_anchors_of_ssd_mobilenet_are_read_whole() {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../shared/models/ssd_mobilenet_v1_coco_300_anchors.npy");
    let Ok(bytes) = fs::read(shared) else {
        println!("skipped: the anchors of SSD-MobileNet (../shared is absent)");
        return;
    };
    let root = repository(&[("a/model.toml", SSD_CARD)]);
    fs::write(root.path().join("a/anchors.npy"), bytes).unwrap();
    let anchors = anchors_of(root.path()).unwrap();
    assert_eq!(anchors.len(), 1917);
    // What NumPy says of them.
    let sums = [957.96974, 957.96974, 567.70154, 567.70154];
    for (number, expected) in sums.into_iter().enumerate() {
        let sum: f64 = anchors.iter().map(|a| f64::from(a[number])).sum();
        assert!((sum - expected).abs() < 1e-4, "{number}: {sum}");
    }
    assert_eq!(
        anchors[1000],
        [0.922_787_67, 0.554_963_23, 0.141_967_33, 0.283_934_65]
    );
}

#[test]
fn the_projects_own_cards_are_sound() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/models");
    let models = ModelRepository::open(folder).unwrap();
    let names: Vec<_> = models.entries().iter().map(|m| m.name.as_str()).collect();
    assert_eq!(names, ["deimv2-femto", "ssd300-vgg16", "yolox-nano"]);
    for model in models.entries() {
        let spec = model.spec.as_ref().unwrap();
        let labels = model.labels(spec).unwrap().len();
        assert_eq!(spec.batching.max_batch_size.get(), 4);
        match &spec.source {
            Some(_) => {
                assert_eq!(labels, 80);
                assert!(spec.license.contains("Apache-2.0"));
            }
            // Its network is the user's own, and nobody has to have one.
            None => assert!(labels == 20 && !spec.required),
        }
    }
}
