//! Trained networks of families that no card in `models/` has, on photos: found is what another program finds.
//! The networks are those beside the checkout.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use detectd::device::ort::{OrtModel, Runtime};
use detectd::device::{EngineFactory, NetworkFile};
use detectd::grpc::pb;
use detectd::heads::Decoded;
use detectd::model::{Device, ModelRepository};
use detectd::tensor::Tensor;
use detectd::vision::{DecodeLimits, Preprocessor, decode};
use futures_util::future::join_all;
use serde::Deserialize;
use tempfile::TempDir;

use crate::support::{Server, photos, request};

/// One instance, so that pictures come together in batches.
const BATCHES: &str =
    "[batching]\nmax_batch_size = 4\n[[instances]]\ndevice = \"cpu\"\ncount = 1\n";

const END_TO_END: &str = r#"
[input]
size = [416, 416]
resize = { mode = "letterbox", anchor = "top_left", pad = [114, 114, 114] }
color = "bgr"
[head]
family = "end_to_end"
columns = ["batch", "x0", "y0", "x1", "y1", "class", "score"]
[defaults]
score_threshold = 0.25
"#;

const SSD_MOBILENET: &str = r#"
[input]
size = [300, 300]
resize = { mode = "stretch" }
color = "rgb"
mean = [128, 128, 128]
std = [128, 128, 128]
[head]
family = "ssd"
coding = "tensorflow"
anchors = "anchors.npy"
boxes = "box_encodings"
label_offset = 0
multi_label = true
[defaults]
score_threshold = 0.25
iou_threshold = 0.6
"#;

const ULTRAFACE: &str = r#"
[input]
size = [320, 240]
resize = { mode = "stretch" }
color = "rgb"
mean = [127, 127, 127]
std = [128, 128, 128]
[head]
family = "ssd"
coding = "ssd_pytorch"
[head.anchors]
clip = true
maps = [
  { cells = [40, 30], min_sizes = [10, 16, 24] },
  { cells = [20, 15], min_sizes = [32, 48] },
  { cells = [10, 8], min_sizes = [64, 96] },
  { cells = [5, 4], min_sizes = [128, 192, 256] },
]
[defaults]
score_threshold = 0.7
iou_threshold = 0.3
"#;

/// An object that the other program finds.
#[derive(Deserialize)]
struct Reference {
    label: String,
    score: f32,
    r#box: [f32; 4],
}

/// The objects of each photo, by its name.
type References = HashMap<String, Vec<Reference>>;

/// A file beside the checkout, or `None` with a line that says so.
fn shared(path: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../shared")
        .join(path);
    if path.exists() {
        return Some(path);
    }
    println!(
        "skipped: a test of trained networks ({} is absent)",
        path.display()
    );
    None
}

/// A model's folder: a card, and files beside it, each with where it comes from.
fn model(card: &str, files: &[(&str, &str)]) -> Option<(TempDir, PathBuf)> {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("model");
    std::fs::create_dir_all(folder.join("1")).unwrap();
    std::fs::write(folder.join("model.toml"), format!("{card}{BATCHES}")).unwrap();
    for (name, source) in files {
        std::fs::copy(shared(source)?, folder.join(name)).unwrap();
    }
    Some((root, folder))
}

/// What the server finds in each photo, all of them asked for at once.
async fn found_in_photos(folder: PathBuf) -> Option<HashMap<String, Vec<pb::Detection>>> {
    let photos = shared("images/coco_val_ccby27")?;
    let server = Server::serve(&[folder], |_| {}).await;
    server.ready().await;
    let entries = std::fs::read_dir(photos).unwrap();
    let answers = entries.map(|entry| {
        let path = entry.unwrap().path();
        let mut client = server.client();
        async move {
            let photo = std::fs::read(&path).unwrap();
            let reply = client.detect(request(photo)).await.unwrap().into_inner();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, reply.detections)
        }
    });
    Some(join_all(answers).await.into_iter().collect())
}

fn references(network: &str) -> Option<References> {
    let text = std::fs::read_to_string(shared("models/reference_detections.json")?).unwrap();
    let mut networks: HashMap<String, References> = serde_json::from_str(&text).unwrap();
    networks.remove(network)
}

fn corners(found: &pb::Detection) -> [f32; 4] {
    let found = found.r#box.unwrap();
    [found.x_min, found.y_min, found.x_max, found.y_max]
}

fn iou(a: [f32; 4], b: [f32; 4]) -> f32 {
    let area = |b: [f32; 4]| (b[2] - b[0]).max(0.0) * (b[3] - b[1]).max(0.0);
    let shared = area([
        a[0].max(b[0]),
        a[1].max(b[1]),
        a[2].min(b[2]),
        a[3].min(b[3]),
    ]);
    shared / (area(a) + area(b) - shared)
}

/// Compares the sure objects. Resize kernels differ a little between libraries, so a few may.
fn assert_same(found: &HashMap<String, Vec<pb::Detection>>, references: &References) {
    const SURE: f32 = 0.4;
    let (mut all, mut same) = (0, 0);
    for (name, references) in references {
        let found = &found[name];
        for wanted in references.iter().filter(|object| object.score >= SURE) {
            all += 1;
            let is_it = |found: &pb::Detection| {
                found.label == wanted.label
                    && (found.score - wanted.score).abs() < 0.05
                    && iou(corners(found), wanted.r#box) > 0.9
            };
            same += usize::from(found.iter().any(is_it));
        }
        let sure = found.iter().filter(|object| object.score >= SURE + 0.05);
        let known = sure.filter(|found| {
            references.iter().any(|wanted| {
                wanted.label == found.label && iou(corners(found), wanted.r#box) > 0.9
            })
        });
        all += found.iter().filter(|f| f.score >= SURE + 0.05).count();
        same += known.count();
    }
    println!("{same} of {all} objects are the other program's");
    assert!(all > 50 && same * 100 >= all * 96, "{same} of {all}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_suppresses_for_itself_finds_what_it_should() {
    let files = [
        ("1/model.onnx", "models/yolox_nano_416_e2e_nms.onnx"),
        ("labels.txt", "models/coco80.names"),
    ];
    let Some((_root, folder)) = model(END_TO_END, &files) else {
        return;
    };
    let (Some(found), Some(references)) =
        (found_in_photos(folder).await, references("yolox_nano_416"))
    else {
        return;
    };
    assert_same(&found, &references);
}

#[test]
fn rows_of_a_batch_in_one_list_are_those_of_the_pictures_alone() {
    let files = [
        ("1/model.onnx", "models/yolox_nano_416_e2e_nms.onnx"),
        ("labels.txt", "models/coco80.names"),
    ];
    let (Some((root, _)), Some(photos)) = (model(END_TO_END, &files), photos()) else {
        return;
    };
    let repository = ModelRepository::open(root.path()).unwrap();
    let entry = &repository.entries()[0];
    let spec = entry.spec.as_ref().unwrap();
    let library = std::env::var("DETECTD_ONNXRUNTIME").expect("cargo sets it");
    let network = OrtModel {
        runtime: Runtime::load(Path::new(&library)).unwrap(),
        file: NetworkFile {
            path: entry.network(entry.newest().unwrap()).unwrap(),
            input: None,
            size_input: None,
        },
    };
    let mut engine = network.build(Device::Cpu, 1).unwrap();
    let outputs = &engine.signature().outputs;
    let head = spec.head.bind(spec.input.size, 80, outputs).unwrap();
    let dtype = engine.signature().input.dtype;
    let preprocessor = Preprocessor::new(spec.input.clone(), dtype).unwrap();
    let shape = preprocessor.tensor_shape();

    let inputs: Vec<Tensor> = photos[..3]
        .iter()
        .map(|photo| {
            let picture = decode(photo, &DecodeLimits::default()).unwrap();
            let mut tensor = Tensor::zeros(dtype, &shape);
            preprocessor.run(&picture, &mut tensor);
            tensor
        })
        .collect();
    // Three pictures and a row of padding.
    let mut batch = Tensor::zeros(dtype, &[&[4], &shape[..]].concat());
    batch.fill_rows(&inputs);
    let together = engine.run(4, &batch).unwrap();
    for (index, input) in inputs.iter().enumerate() {
        let alone = engine.run(1, input).unwrap();
        let alone = head.decode(&alone, 0, 0.1).unwrap();
        assert!(!alone.boxes.is_empty());
        assert_eq!(head.decode(&together, index, 0.1).unwrap(), alone);
    }
    // A picture of nothing has no row at all.
    let nothing = engine.run(1, &Tensor::zeros(dtype, &shape)).unwrap();
    assert_eq!(nothing[0].shape(), [0, 7]);
    assert_eq!(head.decode(&nothing, 0, 0.0).unwrap(), Decoded::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raw_ssd_with_anchors_from_a_file_finds_what_it_should() {
    let files = [
        ("1/model.onnx", "models/ssd_mobilenet_v1_coco_300_raw.onnx"),
        (
            "anchors.npy",
            "models/ssd_mobilenet_v1_coco_300_anchors.npy",
        ),
        ("labels.txt", "models/ssd_mobilenet_v1_coco_labelmap91.txt"),
    ];
    let Some((_root, folder)) = model(SSD_MOBILENET, &files) else {
        return;
    };
    let (Some(found), Some(references)) = (
        found_in_photos(folder).await,
        references("ssd_mobilenet_v1_coco_300"),
    ) else {
        return;
    };
    assert_same(&found, &references);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raw_ssd_with_computed_anchors_finds_faces_where_people_are() {
    let files = [("1/model.onnx", "models/ultraface_rfb320_raw.onnx")];
    let Some((_root, folder)) = model(ULTRAFACE, &files) else {
        return;
    };
    std::fs::write(folder.join("labels.txt"), "face\n").unwrap();
    let (Some(found), Some(references)) = (
        found_in_photos(folder).await,
        references("deimv2_femto_416"),
    ) else {
        return;
    };
    let (mut faces, mut of_people) = (0, 0);
    for (name, found) in &found {
        for face in found.iter().filter(|face| face.score >= 0.9).map(corners) {
            faces += 1;
            let (x, y) = ((face[0] + face[2]) / 2.0, (face[1] + face[3]) / 2.0);
            let person = references[name].iter().any(|object| {
                let [x_min, y_min, x_max, y_max] = object.r#box;
                // A face is in the upper half of a body.
                let upper = y_min - 5.0..(y_min + y_max) / 2.0;
                object.label == "person" && (x_min..x_max).contains(&x) && upper.contains(&y)
            });
            of_people += usize::from(person);
        }
    }
    println!("{of_people} of {faces} faces are a person's");
    assert!(
        faces >= 5 && of_people * 10 >= faces * 8,
        "{of_people} of {faces}"
    );
}
