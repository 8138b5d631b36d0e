//! Loading, with the real runtime and the tiny networks of the tests.

use std::path::Path;

use prometheus_client::registry::Registry as MetricsRegistry;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::device::ort::Runtime;
use crate::model::ModelRepository;
use crate::pipeline::{Config, Pipeline};

/// A pipeline over the echo network, its card extended by `card`, on a machine with these GPUs.
fn pipeline(card: &str, gpus: &[u32]) -> (tempfile::TempDir, Pipeline) {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/models/echo");
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("echo");
    std::fs::create_dir(&model).unwrap();
    for file in ["labels.txt", "1"] {
        std::os::unix::fs::symlink(fixture.join(file), model.join(file)).unwrap();
    }
    let text = std::fs::read_to_string(fixture.join("model.toml")).unwrap();
    std::fs::write(model.join("model.toml"), format!("{text}\n{card}")).unwrap();

    let library =
        std::env::var("DETECTD_ONNXRUNTIME").expect("cargo sets it; see .cargo/config.toml");
    let engines = Arc::new(Runtime::load(Path::new(&library)).unwrap());
    let repository = ModelRepository::open(folder.path()).unwrap();
    let stop = CancellationToken::new();
    let metrics = &mut MetricsRegistry::default();
    let mut pipeline =
        Pipeline::new(&Config::default(), repository, None, engines, stop, metrics).unwrap();
    pipeline.loader.machine = Machine {
        cores: 2,
        gpus: gpus.to_vec(),
    };
    (folder, pipeline)
}

async fn load(card: &str, gpus: &[u32]) -> Result<WarmModel, LoadError> {
    let (_folder, pipeline) = pipeline(card, gpus);
    pipeline
        .loader
        .load(&pipeline.repository.entries()[0])
        .await
}

#[tokio::test]
async fn auto_falls_back_from_a_gpu_that_cannot_be_used_and_says_so() {
    // The tests' ONNX Runtime has no CUDA.
    let model = load("", &[0]).await.unwrap();
    assert_eq!(model.devices, [Device::Cpu; 2]);
    assert!(
        model
            .detail
            .contains("cuda:0 cannot be used, running on the CPU"),
        "{}",
        model.detail
    );
}

#[tokio::test]
async fn auto_without_a_gpu_runs_on_the_cpu_and_says_so() {
    let model = load("", &[]).await.unwrap();
    assert_eq!(model.devices, [Device::Cpu; 2]);
    assert!(model.detail.contains("there is no GPU"), "{}", model.detail);
}

#[tokio::test]
async fn a_card_that_asks_for_the_cpu_gets_it_without_a_word() {
    let model = load("[[instances]]\ndevice = \"cpu\"\ncount = 3\n", &[0])
        .await
        .unwrap();
    assert_eq!(model.devices, [Device::Cpu; 3]);
    assert_eq!(model.detail, "");
}

#[tokio::test]
async fn a_gpu_that_a_card_names_is_never_replaced() {
    let outcome = load("[[instances]]\ndevice = \"cuda:0\"\n", &[0]).await;
    let Err(LoadError::Engine(EngineError::DeviceUnavailable { device, .. })) = outcome else {
        panic!("loaded without its device");
    };
    assert_eq!(device, Device::Cuda(0));
}
