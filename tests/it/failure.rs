//! Engines that fail, hang and lie: what it costs, and that the server mends itself. The engines are synthetic,
//! everything around them is the real server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use detectd::config::Config;
use detectd::device::synthetic::{Fault, Faults, Synthetic, SyntheticNetwork, Target};
use detectd::grpc::pb;
use detectd::model::Device;
use tokio::task::JoinSet;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckResponse;
use tonic_health::pb::health_check_response::ServingStatus;

use crate::support::{Client, PATIENCE, Server, flat_png, reason, request, within};

const MS: Duration = Duration::from_millis(1);

/// The red of a picture that is poison.
const POISON: u8 = 255;

fn engines() -> Synthetic {
    // Batches pay: four cost as much as two alone.
    Synthetic::new(SyntheticNetwork::detr(
        16,
        vec![(1, 2 * MS), (4, 4 * MS), (16, 4 * MS)],
    ))
}

/// An instance that hangs is given up soon, though not as soon as a busy machine may hold up a healthy one.
fn impatient(config: &mut Config) {
    config.pipeline.devices.watchdog = Duration::from_secs(2);
}

fn picture(red: u8) -> pb::DetectRequest {
    request(flat_png([red, 0, 0], 16))
}

/// The right edge of the only box, which tells the picture's red.
fn edge(response: &pb::DetectResponse) -> f32 {
    let [found] = &response.detections[..] else {
        panic!("{response:?}");
    };
    found.r#box.unwrap().x_max
}

fn expected_edge(red: u8) -> f32 {
    16.0 * (1.0 + 9.0 * f32::from(red) / 255.0) / 10.0
}

async fn detect(client: &mut Client, red: u8) -> Result<(), Status> {
    // Generous: nobody but the engines may make a call fail.
    let call = within(PATIENCE / 2, picture(red));
    let response = client.detect(call).await?.into_inner();
    assert!((edge(&response) - expected_edge(red)).abs() < 0.05, "{red}");
    Ok(())
}

async fn wait_for(watch: &mut tonic::Streaming<HealthCheckResponse>, status: ServingStatus) {
    let told = async { while watch.message().await.unwrap().unwrap().status() != status {} };
    tokio::time::timeout(PATIENCE, told)
        .await
        .unwrap_or_else(|_| panic!("health becomes {status:?}"));
}

async fn state(server: &Server) -> (pb::ModelState, String) {
    let models = server.client().list_models(pb::ListModelsRequest {}).await;
    let model = models.unwrap().into_inner().models.remove(0);
    (model.state(), model.state_detail)
}

/// Calls until told to stop; every one of them has to be answered.
fn keep_busy(server: &Server, callers: u8) -> (JoinSet<u64>, Arc<AtomicBool>) {
    let stop = Arc::new(AtomicBool::new(false));
    let mut busy = JoinSet::new();
    for red in 0..callers {
        let (mut client, stop) = (server.client(), stop.clone());
        busy.spawn(async move {
            let mut answered = 0;
            while !stop.load(Ordering::Relaxed) {
                detect(&mut client, red).await.unwrap();
                answered += 1;
            }
            answered
        });
    }
    (busy, stop)
}

/// Lifts its faults when a test ends, however it ends: a thread that hangs would outlive it.
struct Lifted(Faults);

impl Drop for Lifted {
    fn drop(&mut self) {
        self.0.lift(Target::All);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_poison_in_a_batch_of_sixteen_fails_alone_and_costs_eight_more_runs() {
    let engines = engines();
    // An instance waits for a full batch rather than for nothing.
    let card = "max_batch_size = 16\nmax_queue_delay = \"10s\"\n[[instances]]\ndevice = \"cpu\"\ncount = 1\n";
    let server = Server::start_synthetic(&[("thing", card)], &engines, |_| {}).await;
    engines.faults().set(Target::All, Fault::Poison(1.0));
    let mut calls = JoinSet::new();
    for n in 0..16 {
        let mut client = server.client();
        let red = if n == 11 { POISON } else { n * 10 };
        calls.spawn(async move { (red, detect(&mut client, red).await) });
    }
    for (red, outcome) in calls.join_all().await {
        match outcome {
            Ok(()) => assert_ne!(red, POISON),
            Err(status) => {
                assert_eq!(red, POISON, "{status:?}");
                assert_eq!(reason(&status), (Code::Internal, "INTERNAL".into()));
            }
        }
    }
    assert_eq!(server.counter("detectd_executions_total").await, 1 + 8);
    assert_eq!(server.counter("detectd_instances_lost_total").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_instance_of_four_that_hangs_costs_no_request_and_is_replaced() {
    let engines = engines();
    let card = "max_batch_size = 4\n[[instances]]\ndevice = \"cpu\"\ncount = 4\n";
    let server = Server::start_synthetic(&[("thing", card)], &engines, impatient).await;
    let faults = Lifted(engines.faults());
    let mut watch = server.watch("").await;
    let statuses = tokio::spawn(async move {
        let mut statuses = Vec::new();
        while let Ok(Some(told)) = watch.message().await {
            statuses.push(told.status());
        }
        statuses
    });
    assert_eq!(server.counter("detectd_instances").await, 4);
    let (busy, stop) = keep_busy(&server, 24);
    faults.0.set(Target::Engine(1), Fault::Hangs);
    server.gauge_becomes("detectd_instances", 3).await;
    server
        .gauge_becomes("detectd_instances_left_behind", 1)
        .await;
    server.gauge_becomes("detectd_instances", 4).await;
    assert_eq!(engines.built(), 5);
    stop.store(true, Ordering::Relaxed);
    let answered: u64 = busy.join_all().await.into_iter().sum();
    println!("{answered} calls were answered meanwhile");
    assert_eq!(server.counter("detectd_instances_lost_total").await, 1);
    // It comes back, and is let go.
    faults.0.lift(Target::Engine(1));
    server
        .gauge_becomes("detectd_instances_left_behind", 0)
        .await;
    assert_eq!(server.counter("detectd_instances").await, 4);
    let mut server = server;
    server.stop();
    server.ended().await.unwrap();
    let statuses = statuses.await.unwrap();
    assert_eq!(
        statuses,
        [ServingStatus::Serving, ServingStatus::NotServing]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_whose_instances_all_hang_is_stuck_until_they_come_back() {
    let engines = engines();
    let card = "max_batch_size = 4\n[[instances]]\ndevice = \"cpu\"\ncount = 2\n";
    let server = Server::start_synthetic(&[("thing", card)], &engines, impatient).await;
    let faults = Lifted(engines.faults());
    let mut all = server.watch("").await;
    let mut model = server.watch("detectd.v1.DetectionService/thing").await;
    let mut liveness = server.watch("liveness").await;
    for watch in [&mut all, &mut model, &mut liveness] {
        wait_for(watch, ServingStatus::Serving).await;
    }
    faults.0.set(Target::All, Fault::Hangs);
    // The first instance hangs with it, then the second.
    let status = detect(&mut server.client(), 1).await.unwrap_err();
    assert_eq!(
        reason(&status),
        (Code::Unavailable, "MODEL_NOT_READY".into())
    );
    for watch in [&mut all, &mut model, &mut liveness] {
        wait_for(watch, ServingStatus::NotServing).await;
    }
    let status = detect(&mut server.client(), 1).await.unwrap_err();
    assert_eq!(
        reason(&status),
        (Code::Unavailable, "MODEL_NOT_READY".into())
    );
    assert!(server.get("/livez").await.starts_with("HTTP/1.1 503"));
    let page = server.get("/readyz").await;
    assert!(
        page.starts_with("HTTP/1.1 503") && page.contains("thing: unavailable"),
        "{page}"
    );
    let (listed, detail) = state(&server).await;
    assert_eq!(listed, pb::ModelState::Failed);
    assert!(detail.contains("threads hang"), "{detail}");
    // Both instances, and perhaps one that was made in place of the first before the second was given up.
    let hung = server.counter("detectd_instances_left_behind").await;
    assert!(hung == 2 || hung == 3, "{hung}");
    assert_eq!(hung, engines.built() as u64, "no more are made");

    faults.0.lift(Target::All);
    for watch in [&mut liveness, &mut model, &mut all] {
        wait_for(watch, ServingStatus::Serving).await;
    }
    assert!(server.get("/livez").await.starts_with("HTTP/1.1 200"));
    detect(&mut server.client(), 1).await.unwrap();
    server.gauge_becomes("detectd_instances", 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_whose_engines_all_fail_comes_back_by_itself() {
    let engines = engines();
    let card = "max_batch_size = 4\n[[instances]]\ndevice = \"cpu\"\ncount = 2\n";
    let server = Server::start_synthetic(&[("thing", card)], &engines, |_| {}).await;
    let mut model = server.watch("detectd.v1.DetectionService/thing").await;
    wait_for(&mut model, ServingStatus::Serving).await;
    let mut client = server.client();
    engines.faults().set(Target::All, Fault::Fails);
    let refused = loop {
        let status = detect(&mut client, 1).await.unwrap_err();
        match status.code() {
            Code::Internal => {}
            _ => break status,
        }
    };
    assert_eq!(
        reason(&refused),
        (Code::Unavailable, "MODEL_NOT_READY".into())
    );
    wait_for(&mut model, ServingStatus::NotServing).await;
    // Others are being made, so the process is not to be ended.
    assert!(server.get("/livez").await.starts_with("HTTP/1.1 200"));
    assert_eq!(state(&server).await.0, pb::ModelState::Loading);
    engines.faults().lift(Target::All);
    wait_for(&mut model, ServingStatus::Serving).await;
    detect(&mut client, 1).await.unwrap();
    assert_eq!(state(&server).await, (pb::ModelState::Ready, String::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_dies_costs_no_request_and_is_used_again_when_it_is_back() {
    let engines = engines();
    let card = "max_batch_size = 4\n[[instances]]\ndevice = \"cuda:0\"\n[[instances]]\ndevice = \"cuda:1\"\n";
    let server = Server::start_synthetic(&[("thing", card)], &engines, |_| {}).await;
    let dead = Target::Device(Device::Cuda(0));
    let (busy, stop) = keep_busy(&server, 24);
    engines.faults().set(dead, Fault::DeviceLost);
    server.gauge_becomes("detectd_instances", 1).await;
    // It was tried again, in vain.
    let tried = async {
        while engines.built() < 3 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, tried).await.unwrap();
    engines.faults().lift(dead);
    server.gauge_becomes("detectd_instances", 2).await;
    stop.store(true, Ordering::Relaxed);
    busy.join_all().await;
    assert_eq!(server.counter("detectd_instances_lost_total").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn outputs_that_make_no_sense_cost_their_requests_and_nothing_else() {
    let engines = engines();
    let card = "max_batch_size = 4\n[[instances]]\ndevice = \"cpu\"\ncount = 1\n";
    let server = Server::start_synthetic(&[("thing", card)], &engines, |_| {}).await;
    let mut client = server.client();
    engines.faults().set(Target::All, Fault::WrongShapes);
    for _ in 0..8 {
        let status = detect(&mut client, 1).await.unwrap_err();
        assert_eq!(reason(&status), (Code::Internal, "INTERNAL".into()));
    }
    engines.faults().set(Target::All, Fault::NotNumbers);
    let response = client.detect(picture(1)).await.unwrap().into_inner();
    assert_eq!(response.detections, []);
    assert_eq!(server.counter("detectd_dropped_candidates_total").await, 1);
    engines.faults().lift(Target::All);
    detect(&mut client, 1).await.unwrap();
    assert_eq!(server.counter("detectd_instances_lost_total").await, 0);
    assert_eq!(server.counter("detectd_panics_total").await, 0);
}
