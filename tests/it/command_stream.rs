//! `detectd detect --stream`: what it goes on from, how long it waits, and what it prints.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use detectd::config::Config;
use detectd::device::synthetic::{Fault, Synthetic, SyntheticNetwork, Target};
use detectd::grpc::pb;
use detectd::grpc::pb::detect_stream_request::Payload as Sent;
use detectd::grpc::pb::detect_stream_response::Payload as Told;
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::support::{PATIENCE, Server, fixtures, flat_png, repository};

/// A folder of so many pictures, f0.png and on.
fn pictures(count: u8) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for n in 0..count {
        let name = folder.path().join(format!("f{n}.png"));
        std::fs::write(name, flat_png([n, 20, 30], 16)).unwrap();
    }
    folder
}

/// A picture's name on what cannot be read.
fn make_unreadable(folder: &TempDir, name: &str) {
    let path = folder.path().join(name);
    drop(std::fs::remove_file(&path));
    std::fs::create_dir(path).unwrap();
}

fn start(address: SocketAddr, folder: &Path, more: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_detectd"));
    command.args(["detect", "--stream", "--addr", &address.to_string()]);
    command.arg(folder).args(more);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// What a command printed; a test that waits for ever is ended by its patience.
async fn ended(child: Child) -> Output {
    let output = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap());
    let output = tokio::time::timeout(PATIENCE, output).await;
    output.expect("the command ends").unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn objects(output: &Output) -> Vec<Value> {
    let text = text(&output.stdout);
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn frame_ids(objects: &[Value]) -> Vec<u64> {
    let ids = objects.iter().map(|object| object["frame_id"].as_u64());
    ids.map(Option::unwrap).collect()
}

/// An address behind which servers come and go.
struct Relay {
    address: SocketAddr,
    target: Arc<Mutex<Option<SocketAddr>>>,
    cut: Arc<Notify>,
}

impl Relay {
    async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let target = Arc::new(Mutex::new(Some(target)));
        let cut = Arc::new(Notify::new());
        let relay = Self {
            address,
            target: Arc::clone(&target),
            cut: Arc::clone(&cut),
        };
        tokio::spawn(async move {
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                // Where there is nobody the connection ends at once.
                let Some(target) = *target.lock().unwrap() else {
                    continue;
                };
                let cut = Arc::clone(&cut);
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(target).await.unwrap();
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                        () = cut.notified() => {}
                    }
                });
            }
        });
        relay
    }

    /// Where connections go from now on; those that there are stay where they are.
    fn lead_to(&self, target: Option<SocketAddr>) {
        *self.target.lock().unwrap() = target;
    }

    /// Cuts all connections, and lets nobody through from now on.
    fn cut(&self) {
        self.lead_to(None);
        self.cut.notify_waiters();
    }
}

/// A server whose only engine holds what it is given, until the fault is lifted.
async fn held(change: impl FnOnce(&mut Config)) -> (Server, Synthetic) {
    let latency = vec![(1, Duration::from_millis(1))];
    let engines = Synthetic::new(SyntheticNetwork::detr(16, latency));
    let card = "max_batch_size = 1\n[[instances]]\ndevice = \"cpu\"\ncount = 1\n";
    let server = Server::start_synthetic(&[("thing", card)], &engines, |config| {
        config.pipeline.devices.watchdog = Duration::from_secs(600);
        change(config);
    })
    .await;
    engines.faults().set(Target::All, Fault::Hangs);
    (server, engines)
}

/// Returns once a stream on `server` has been told of the drain that `stop` begins.
async fn drains(server: &mut Server) {
    let config = pb::DetectStreamRequest {
        payload: Some(Sent::Config(pb::StreamConfig::default())),
    };
    let messages = tokio_stream::StreamExt::chain(
        tokio_stream::once(config),
        tokio_stream::pending::<pb::DetectStreamRequest>(),
    );
    let answers = server.client().detect_stream(messages).await;
    let mut answers = answers.unwrap().into_inner();
    server.stop();
    loop {
        let told = answers.message().await.unwrap().unwrap();
        if let Some(Told::Draining(_)) = told.payload {
            return;
        }
    }
}

const ACCEPTED: &str = "detectd_frames_accepted_total";

#[tokio::test(flavor = "multi_thread")]
async fn after_a_drain_the_frames_without_an_answer_go_to_the_next_server() {
    let (mut first, engines) = held(|_| {}).await;
    let second = Server::start(&["echo"]).await;
    let relay = Relay::start(first.tcp()).await;
    let folder = pictures(40);
    make_unreadable(&folder, "f1.png");
    let more = ["--json", "--max-in-flight", "3"];
    let client = start(relay.address, folder.path(), &more);
    first.counter_reaches(ACCEPTED, 3).await;
    relay.lead_to(Some(second.tcp()));
    drains(&mut first).await;
    engines.faults().lift(Target::All);
    let output = ended(client).await;
    first.ended().await.unwrap();
    // What could not be read before the drain is not forgotten, and not told again.
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let objects = objects(&output);
    let mut ids = frame_ids(&objects);
    ids.sort_unstable();
    assert_eq!(ids, (0..40).collect::<Vec<_>>());
    let failed: Vec<_> = objects
        .iter()
        .filter(|o| o.get("error").is_some())
        .collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(failed[0]["frame_id"], 1);
    let by_first = objects.iter().filter(|o| o["model"]["name"] == "thing");
    let by_first = by_first.count() as u64;
    assert!((3..39).contains(&by_first), "{by_first}");
    assert_eq!(second.counter(ACCEPTED).await, 39 - by_first);
    let complaints = text(&output.stderr);
    assert!(
        complaints.contains("the server goes away; going on with"),
        "{complaints}"
    );
}

/// A real server process, ready.
async fn spawn_server(models: &Path) -> (Child, SocketAddr) {
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
    let line = log.find_map(|line| Some(line.unwrap()).filter(|line| line.contains("grpc=")));
    let line = line.expect("the server listens");
    std::thread::spawn(move || log.for_each(drop));
    let address = line.split("grpc=").nth(1).unwrap();
    let address: SocketAddr = address.split(' ').next().unwrap().parse().unwrap();
    let channel = Channel::from_shared(format!("http://{address}")).unwrap();
    let mut health = HealthClient::new(channel.connect().await.unwrap());
    let watch = health.watch(HealthCheckRequest::default()).await;
    let mut watch = watch.unwrap().into_inner();
    while watch.message().await.unwrap().unwrap().status() != ServingStatus::Serving {}
    (server, address)
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_server_was_killed_the_frames_without_an_answer_go_to_the_next_one() {
    let models = repository(&[fixtures().join("echo")]);
    let (mut first, address) = spawn_server(models.path()).await;
    let second = Server::start(&["echo"]).await;
    let relay = Relay::start(address).await;
    let folder = pictures(40);
    let mut client = start(relay.address, folder.path(), &["--json", "--fps", "20"]);
    // One frame is answered, and the last is nearly two seconds away.
    let mut said = BufReader::new(client.stdout.take().unwrap()).lines();
    let mut seen = vec![said.next().unwrap().unwrap()];
    relay.lead_to(None);
    first.kill().unwrap();
    first.wait().unwrap();
    let mut complaints = BufReader::new(client.stderr.take().unwrap()).lines();
    let complaint = complaints.next().unwrap().unwrap();
    assert!(complaint.contains("going on with"), "{complaint}");
    relay.lead_to(Some(second.tcp()));
    let reading = tokio::task::spawn_blocking(move || said.map(Result::unwrap).collect::<Vec<_>>());
    let output = ended(client).await;
    assert!(
        output.status.success(),
        "{:?}",
        complaints.collect::<Vec<_>>()
    );
    let before = seen.len();
    seen.extend(reading.await.unwrap());
    let objects: Vec<Value> = seen
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(frame_ids(&objects), (0..40).collect::<Vec<_>>());
    assert!(objects.iter().all(|object| object["total_detections"] == 3));
    let by_second = second.counter(ACCEPTED).await;
    assert!((1..=40 - before as u64).contains(&by_second), "{by_second}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stays_away_is_given_up_with_the_cause() {
    let (server, engines) = held(|_| {}).await;
    let relay = Relay::start(server.tcp()).await;
    let folder = pictures(5);
    let client = start(relay.address, folder.path(), &["--retry-for", "700ms"]);
    server.counter_reaches(ACCEPTED, 5).await;
    relay.cut();
    let output = ended(client).await;
    engines.faults().lift(Target::All);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let complaints = text(&output.stderr);
    assert!(complaints.contains("no answer for 0.7 s: "), "{complaints}");
    let said = text(&output.stdout);
    assert!(
        said.starts_with("5 frames  0 answered  5 left undone"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn between_the_frames_of_a_slow_camera_no_answer_is_late() {
    let server = Server::start(&["echo"]).await;
    let folder = pictures(2);
    // An answer has as long as half of the time between two frames.
    let more = ["--fps", "0.25", "--timeout", "2"];
    let output = ended(start(server.tcp(), folder.path(), &more)).await;
    assert!(output.status.success(), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_that_is_not_answered_in_time_ends_the_command() {
    let (server, engines) = held(|_| {}).await;
    let folder = pictures(3);
    let output = ended(start(server.tcp(), folder.path(), &["--timeout", "0.4"])).await;
    engines.faults().lift(Target::All);
    assert_eq!(output.status.code(), Some(1));
    let complaints = text(&output.stderr);
    assert!(
        complaints.contains("no answer within 0.4 s"),
        "{complaints}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_takes_a_connection_and_says_nothing_is_not_waited_for_longer() {
    // Connections are made by the system, and nobody takes them.
    let silent = StdTcpListener::bind("127.0.0.1:0").unwrap();
    let folder = pictures(1);
    let began = Instant::now();
    let address = silent.local_addr().unwrap();
    let output = ended(start(address, folder.path(), &["--timeout", "0.4"])).await;
    assert_eq!(output.status.code(), Some(1));
    let complaints = text(&output.stderr);
    assert!(
        complaints.contains("no answer within 0.4 s"),
        "{complaints}"
    );
    // A bound on a hang.
    assert!(began.elapsed() < Duration::from_secs(30));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_frame_is_a_line_of_json_and_an_error_has_its_reason() {
    let server = Server::start(&["echo"]).await;
    let folder = pictures(4);
    std::fs::write(folder.path().join("f1.png"), b"no picture").unwrap();
    make_unreadable(&folder, "f3.png");
    let output = ended(start(server.tcp(), folder.path(), &["--json"])).await;
    assert_eq!(output.status.code(), Some(1));
    let mut objects = objects(&output);
    objects.sort_by_key(|object| object["frame_id"].as_u64());
    assert_eq!(frame_ids(&objects), [0, 1, 2, 3]);
    for (n, object) in objects.iter().enumerate() {
        let file = object["file"].as_str().unwrap();
        assert!(file.ends_with(&format!("f{n}.png")), "{object}");
    }
    for n in [0, 2] {
        assert_eq!(objects[n]["detections"].as_array().unwrap().len(), 3);
    }
    assert_eq!(objects[1]["error"]["code"], "InvalidArgument");
    assert_eq!(objects[1]["error"]["reason"], "UNSUPPORTED_FORMAT");
    let message = objects[3]["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("cannot read it: "), "{message}");
    let complaints = text(&output.stderr);
    assert!(
        complaints.contains("f1.png: InvalidArgument UNSUPPORTED_FORMAT: "),
        "{complaints}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_frame_is_a_line_of_json_with_its_reason() {
    let (server, engines) = held(|config| config.pipeline.cpu.workers = 1).await;
    let folder = pictures(20);
    let more = ["--json", "--policy", "latest", "--max-in-flight", "2"];
    let client = start(server.tcp(), folder.path(), &more);
    server.counter_reaches(ACCEPTED, 20).await;
    engines.faults().lift(Target::All);
    let output = ended(client).await;
    assert!(output.status.success(), "{output:?}");
    let objects = objects(&output);
    assert_eq!(frame_ids(&objects), (0..20).collect::<Vec<_>>());
    assert_eq!(objects[18]["dropped"], "SUPERSEDED");
    assert_eq!(objects[19]["total_detections"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_above_the_servers_message_limit_fails_alone() {
    let server = Server::start_with(&["echo"], |config| {
        config.grpc.max_message_size = 100_000;
    })
    .await;
    let folder = pictures(12);
    std::fs::write(folder.path().join("f5.png"), vec![0; 200_000]).unwrap();
    let output = ended(start(server.tcp(), folder.path(), &["--json"])).await;
    assert_eq!(output.status.code(), Some(1));
    let objects = objects(&output);
    let mut ids = frame_ids(&objects);
    ids.sort_unstable();
    assert_eq!(ids, (0..12).collect::<Vec<_>>());
    let failed: Vec<&Value> = objects.iter().filter(|of| !of["error"].is_null()).collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0]["error"]["reason"], "MESSAGE_TOO_LARGE");
    assert!(failed[0]["file"].as_str().unwrap().ends_with("f5.png"));
}
