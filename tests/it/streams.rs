//! Streams of frames over the wire: order, policies, errors, readers, and ends.

use std::process::{Command, Output};
use std::time::Duration;

use detectd::config::Config;
use detectd::device::synthetic::{Fault, Synthetic, SyntheticNetwork, Target};
use detectd::grpc::pb;
use detectd::grpc::pb::detect_stream_request::Payload as Sent;
use detectd::grpc::pb::detect_stream_response::Payload as Told;
use detectd::grpc::pb::frame_result::Outcome;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};
use tonic_types::StatusExt;

use crate::support::{Client, PATIENCE, Server, flat_png, reason, within};

/// No test sends more without a wait.
const MOST: usize = 32_768;

const MS: Duration = Duration::from_millis(1);

/// A stream from a client's side.
struct Stream {
    frames: Option<mpsc::Sender<pb::DetectStreamRequest>>,
    answers: Streaming<pb::DetectStreamResponse>,
}

impl Stream {
    /// A stream to which nothing was sent.
    async fn silent(mut client: Client) -> Self {
        let (frames, sent) = mpsc::channel(MOST);
        let answers = client.detect_stream(ReceiverStream::new(sent));
        Self {
            frames: Some(frames),
            answers: answers.await.unwrap().into_inner(),
        }
    }

    /// One that was told its config and has told its terms.
    async fn start(client: Client, config: pb::StreamConfig) -> (Self, pb::StreamStarted) {
        let mut stream = Self::silent(client).await;
        stream.send(Sent::Config(config));
        match stream.next().await.unwrap() {
            Told::Started(started) => (stream, started),
            other => panic!("{other:?} before the start"),
        }
    }

    fn send(&self, payload: Sent) {
        let payload = Some(payload);
        let frames = self.frames.as_ref().expect("the side is open");
        // A stream that has ended takes nothing more.
        drop(frames.try_send(pb::DetectStreamRequest { payload }));
    }

    /// Says that nothing more comes.
    fn close(&mut self) {
        self.frames = None;
    }

    async fn next(&mut self) -> Option<Told> {
        self.try_next().await.unwrap()
    }

    async fn try_next(&mut self) -> Result<Option<Told>, Status> {
        let message = tokio::time::timeout(PATIENCE, self.answers.message()).await;
        let message = message.expect("something is told")?;
        Ok(message.map(|message| message.payload.expect("messages say something")))
    }

    async fn result(&mut self) -> pb::FrameResult {
        match self.next().await {
            Some(Told::Result(result)) => result,
            other => panic!("{other:?} is no result"),
        }
    }

    /// How the stream ends, with no result before it.
    async fn ends(&mut self) -> Status {
        match self.try_next().await {
            Err(status) => status,
            Ok(told) => panic!("{told:?} is not an error's end"),
        }
    }
}

fn policy(policy: pb::FramePolicy) -> pb::StreamConfig {
    let mut config = pb::StreamConfig::default();
    config.set_frame_policy(policy);
    config
}

fn frame(frame_id: u64, encoded: impl Into<Vec<u8>>) -> Sent {
    Sent::Frame(pb::Frame {
        frame_id,
        captured_at: Some(captured_at(frame_id)),
        image: Some(pb::Image {
            source: Some(pb::image::Source::Encoded(encoded.into().into())),
        }),
        options: None,
    })
}

fn captured_at(frame_id: u64) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: 1_700_000_000 + frame_id as i64,
        nanos: 5,
    }
}

fn picture(frame_id: u64) -> Sent {
    frame(frame_id, flat_png([(frame_id % 256) as u8, 0, 0], 16))
}

fn detections(result: pb::FrameResult) -> pb::DetectResponse {
    match result.outcome {
        Some(Outcome::Detections(found)) => found,
        other => panic!("{other:?} are no detections"),
    }
}

/// One engine that takes so long for a picture.
fn engines(latency: Duration) -> Synthetic {
    Synthetic::new(SyntheticNetwork::detr(16, vec![(1, latency)]))
}

async fn serve(engines: &Synthetic, change: impl FnOnce(&mut Config)) -> Server {
    let card = "max_batch_size = 1\n[[instances]]\ndevice = \"cpu\"\ncount = 1\n";
    Server::start_synthetic(&[("thing", card)], engines, change).await
}

/// Lifts its faults when a test ends, however it ends: a thread that hangs would outlive it.
struct Lifted(detectd::device::synthetic::Faults);

impl Drop for Lifted {
    fn drop(&mut self) {
        self.0.lift(Target::All);
    }
}

/// A server whose only engine holds what it is given, until the fault is lifted.
async fn held(change: impl FnOnce(&mut Config)) -> (Server, Lifted) {
    let engines = engines(MS);
    let server = serve(&engines, |config| {
        config.pipeline.devices.watchdog = Duration::from_secs(600);
        change(config);
    })
    .await;
    let faults = Lifted(engines.faults());
    faults.0.set(Target::All, Fault::Hangs);
    (server, faults)
}

#[tokio::test(flavor = "multi_thread")]
async fn thirty_two_streams_of_five_hundred_frames_each_get_their_own_in_order() {
    const FRAMES: u64 = 500;
    let server = Server::start(&["echo"]).await;
    let mut streams = tokio::task::JoinSet::new();
    for number in 0..32u8 {
        let client = server.client();
        streams.spawn(async move {
            let colour = |frame: u64| [number * 8, (frame % 256) as u8, (frame / 256 * 100) as u8];
            let (mut stream, _) = Stream::start(client, policy(pb::FramePolicy::All)).await;
            for id in 0..FRAMES {
                stream.send(frame(id, flat_png(colour(id), 16)));
            }
            stream.close();
            for id in 0..FRAMES {
                let result = stream.result().await;
                assert_eq!(result.frame_id, id);
                assert_eq!(result.captured_at, Some(captured_at(id)));
                let found = detections(result);
                let [r, g, b] = colour(id).map(|level| f32::from(level) / 255.0);
                let bbox = found.detections[0].r#box.unwrap();
                let told = [bbox.x_min, bbox.y_min, bbox.x_max, bbox.y_max];
                let expected = [4.0 * r, 4.0 * g, 8.0 + 8.0 * b, 8.0 + 8.0 * r];
                for (told, expected) in told.iter().zip(expected) {
                    let own = (told - expected).abs() < 0.01;
                    assert!(own, "stream {number}, frame {id}: {bbox:?}");
                }
                let timings = found.timings.unwrap();
                assert!(timings.order_wait.is_some());
                assert_eq!(found.effective_options, None);
            }
            assert_eq!(stream.next().await, None);
        });
    }
    streams.join_all().await;
    assert_eq!(
        server.counter("detectd_frames_accepted_total").await,
        32 * FRAMES
    );
    assert_eq!(server.counter("detectd_frames_total").await, 32 * FRAMES);
    server.gauge_becomes("detectd_streams", 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_tells_what_is_in_force_before_anything_else() {
    let server = Server::start_with(&["echo"], |config| {
        config.pipeline.streams.max_in_flight = 5.try_into().unwrap();
    })
    .await;
    let config = pb::StreamConfig {
        max_in_flight: 1_000,
        options: Some(pb::DetectOptions {
            score_threshold: Some(0.5),
            ..Default::default()
        }),
        ..policy(pb::FramePolicy::Latest)
    };
    let (_stream, started) = Stream::start(server.client(), config).await;
    assert_eq!(started.model.clone().unwrap().name, "echo");
    assert_eq!(started.max_in_flight, 5);
    assert_eq!(started.frame_policy(), pb::FramePolicy::Latest);
    let options = started.effective_options.unwrap();
    assert_eq!(options.score_threshold, Some(0.5));
    assert_eq!(options.max_detections, Some(100));
    // What is unset is the server's.
    let (_stream, started) = Stream::start(server.client(), pb::StreamConfig::default()).await;
    assert_eq!(started.frame_policy(), pb::FramePolicy::All);
    assert_eq!(started.max_in_flight, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_stream_of_a_config_and_rising_frames_ends_it() {
    let server = Server::start(&["echo"]).await;
    let invalid = (Code::InvalidArgument, "INVALID_STREAM".to_owned());
    // No config first.
    let mut stream = Stream::silent(server.client()).await;
    stream.send(picture(1));
    assert_eq!(reason(&stream.ends().await), invalid);
    let mut stream = Stream::silent(server.client()).await;
    stream.close();
    assert_eq!(reason(&stream.ends().await), invalid);
    // What was taken in before is answered.
    let config = || Sent::Config(pb::StreamConfig::default());
    for wrong in [config(), picture(7), picture(3)] {
        let (mut stream, _) = Stream::start(server.client(), pb::StreamConfig::default()).await;
        stream.send(picture(7));
        stream.send(wrong);
        stream.send(picture(8));
        assert_eq!(stream.result().await.frame_id, 7);
        assert_eq!(reason(&stream.ends().await), invalid);
    }
    let (mut stream, _) = Stream::start(server.client(), pb::StreamConfig::default()).await;
    let nothing = pb::DetectStreamRequest { payload: None };
    stream.frames.as_ref().unwrap().try_send(nothing).unwrap();
    assert_eq!(reason(&stream.ends().await), invalid);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_or_an_option_that_there_is_not_ends_the_stream_at_its_start() {
    let server = Server::start(&["echo"]).await;
    let options = |options| pb::StreamConfig {
        options: Some(options),
        ..Default::default()
    };
    let not_found = pb::StreamConfig {
        model: "unheard-of".to_owned(),
        ..Default::default()
    };
    let label = pb::DetectOptions {
        labels: vec!["unicorn".to_owned()],
        ..Default::default()
    };
    let threshold = pb::DetectOptions {
        score_threshold: Some(7.0),
        ..Default::default()
    };
    let heartbeat = pb::StreamConfig {
        heartbeat: Some(prost_types::Duration::default()),
        ..Default::default()
    };
    for (config, expected) in [
        (not_found, (Code::NotFound, "MODEL_NOT_FOUND")),
        (options(label), (Code::InvalidArgument, "INVALID_OPTION")),
        (
            options(threshold),
            (Code::InvalidArgument, "INVALID_OPTION"),
        ),
        (heartbeat, (Code::InvalidArgument, "INVALID_OPTION")),
    ] {
        let mut stream = Stream::silent(server.client()).await;
        stream.send(Sent::Config(config));
        let (code, text) = reason(&stream.ends().await);
        assert_eq!((code, text.as_str()), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_frame_is_that_frames_error_and_the_stream_goes_on() {
    let server = Server::start(&["echo"]).await;
    let config = pb::StreamConfig {
        options: Some(pb::DetectOptions {
            max_detections: Some(1),
            ..Default::default()
        }),
        ..Default::default()
    };
    let (mut stream, _) = Stream::start(server.client(), config).await;
    let with = |id, options| {
        let Sent::Frame(mut frame) = picture(id) else {
            unreachable!("a picture is a frame")
        };
        frame.options = Some(options);
        Sent::Frame(frame)
    };
    stream.send(picture(1));
    stream.send(frame(2, *b"this is no picture"));
    stream.send(Sent::Frame(pb::Frame {
        frame_id: 3,
        ..Default::default()
    }));
    let wrong = pb::DetectOptions {
        iou_threshold: Some(-1.0),
        ..Default::default()
    };
    stream.send(with(4, wrong));
    let more = pb::DetectOptions {
        max_detections: Some(2),
        ..Default::default()
    };
    stream.send(with(5, more));
    stream.send(picture(6));
    stream.close();
    assert_eq!(detections(stream.result().await).detections.len(), 1);
    for (id, expected) in [
        (2, "UNSUPPORTED_FORMAT"),
        (3, "EMPTY_IMAGE"),
        (4, "INVALID_OPTION"),
    ] {
        let result = stream.result().await;
        assert_eq!(result.frame_id, id);
        let Some(Outcome::Error(error)) = result.outcome else {
            panic!("{result:?}");
        };
        assert_eq!(error.code, i32::from(Code::InvalidArgument));
        let info = error.details.iter().find_map(|detail| {
            detail
                .type_url
                .ends_with("/google.rpc.ErrorInfo")
                .then(|| prost::Message::decode(&detail.value[..]).unwrap())
        });
        let info: tonic_types::pb::ErrorInfo = info.expect("an error tells its reason");
        assert_eq!(
            (info.reason.as_str(), info.domain.as_str()),
            (expected, "detectd")
        );
    }
    // A frame's own options are its own.
    assert_eq!(detections(stream.result().await).detections.len(), 2);
    assert_eq!(detections(stream.result().await).detections.len(), 1);
    assert_eq!(stream.next().await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn under_all_no_more_than_the_window_is_taken_in() {
    let (server, faults) = held(|_| {}).await;
    let config = pb::StreamConfig {
        max_in_flight: 3,
        ..policy(pb::FramePolicy::All)
    };
    let (mut stream, _) = Stream::start(server.client(), config).await;
    for id in 0..20 {
        stream.send(picture(id));
    }
    server
        .counter_reaches("detectd_frames_accepted_total", 3)
        .await;
    // Somebody else is served meanwhile, by all that has to be done for a frame to be taken in.
    let (mut other, _) = Stream::start(server.client(), policy(pb::FramePolicy::All)).await;
    other.send(picture(0));
    server
        .counter_reaches("detectd_frames_accepted_total", 4)
        .await;
    assert_eq!(server.counter("detectd_frames_accepted_total").await, 4);
    faults.0.lift(Target::All);
    for id in 0..20 {
        assert_eq!(stream.result().await.frame_id, id);
    }
    other.result().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn under_latest_the_newest_waits_and_what_it_replaces_costs_nothing() {
    let (server, faults) = held(|config| {
        config.pipeline.cpu.workers = 1;
    })
    .await;
    let config = pb::StreamConfig {
        max_in_flight: 2,
        ..policy(pb::FramePolicy::Latest)
    };
    let (mut stream, _) = Stream::start(server.client(), config).await;
    // One runs, one is ready: no worker begins a third while the device holds on.
    for id in 0..2 {
        stream.send(picture(id));
        server
            .counter_reaches("detectd_pictures_prepared_total", id + 1)
            .await;
    }
    for id in 2..100 {
        stream.send(picture(id));
    }
    server
        .counter_reaches("detectd_frames_accepted_total", 100)
        .await;
    faults.0.lift(Target::All);
    stream.close();
    let mut answered = Vec::new();
    for id in 0..100 {
        let result = stream.result().await;
        assert_eq!(result.frame_id, id);
        match result.outcome.unwrap() {
            Outcome::Detections(_) => answered.push(id),
            Outcome::Dropped(dropped) => {
                assert_eq!(dropped.reason(), pb::DropReason::Superseded);
            }
            Outcome::Error(error) => panic!("{error:?}"),
        }
    }
    assert_eq!(answered, [0, 1, 99]);
    assert_eq!(server.counter("detectd_pictures_prepared_total").await, 3);
    assert_eq!(stream.next().await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_without_a_picture_replaces_none_that_waits() {
    let (server, faults) = held(|config| {
        config.pipeline.cpu.workers = 1;
    })
    .await;
    let (mut stream, _) = Stream::start(server.client(), policy(pb::FramePolicy::Latest)).await;
    // One runs, one is ready, one waits.
    for id in 0..2 {
        stream.send(picture(id));
        server
            .counter_reaches("detectd_pictures_prepared_total", id + 1)
            .await;
    }
    stream.send(picture(2));
    stream.send(Sent::Frame(pb::Frame {
        frame_id: 3,
        ..Default::default()
    }));
    server
        .counter_reaches("detectd_frames_accepted_total", 4)
        .await;
    faults.0.lift(Target::All);
    for id in 0..3 {
        let result = stream.result().await;
        assert_eq!(result.frame_id, id);
        detections(result);
    }
    let result = stream.result().await;
    assert!(
        matches!(result.outcome, Some(Outcome::Error(_))),
        "{result:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn many_latest_streams_on_a_slow_device_account_for_every_frame() {
    const STREAMS: u64 = 32;
    const FRAMES: u64 = 500;
    let engines = engines(4 * MS);
    engines.faults().set(Target::All, Fault::SlowedDown(2.0));
    let server = serve(&engines, |_| {}).await;
    let mut streams = tokio::task::JoinSet::new();
    for _ in 0..STREAMS {
        let client = server.client();
        streams.spawn(async move {
            let (mut stream, _) = Stream::start(client, policy(pb::FramePolicy::Latest)).await;
            let mut tick = tokio::time::interval(5 * MS);
            let feed = stream.frames.take().unwrap();
            let feeding = tokio::spawn(async move {
                for id in 0..FRAMES {
                    tick.tick().await;
                    let payload = Some(picture(id));
                    feed.send(pb::DetectStreamRequest { payload })
                        .await
                        .unwrap();
                }
            });
            let (mut answered, mut superseded) = (0, 0);
            for id in 0..FRAMES {
                let result = stream.result().await;
                assert_eq!(result.frame_id, id);
                match result.outcome.unwrap() {
                    Outcome::Detections(_) => answered += 1,
                    Outcome::Dropped(dropped) => {
                        assert_eq!(dropped.reason(), pb::DropReason::Superseded);
                        superseded += 1;
                    }
                    Outcome::Error(error) => panic!("{error:?}"),
                }
            }
            assert_eq!(stream.next().await, None);
            feeding.await.unwrap();
            (answered, superseded)
        });
    }
    let counts = streams.join_all().await;
    let answered: u64 = counts.iter().map(|(answered, _)| answered).sum();
    let superseded: u64 = counts.iter().map(|(_, superseded)| superseded).sum();
    assert_eq!(answered + superseded, STREAMS * FRAMES);
    // How they are shared is measured by the bench; here a busy machine may feed one less than another.
    assert!(superseded > 0);
    assert!(
        counts.iter().all(|(answered, _)| *answered > 0),
        "{counts:?}"
    );
    // No replaced frame was decoded.
    let prepared = server.counter("detectd_pictures_prepared_total").await;
    assert_eq!(prepared, answered);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_that_has_become_too_old_is_dropped_and_costs_nothing() {
    let (server, faults) = held(|config| {
        config.pipeline.cpu.workers = 1;
    })
    .await;
    let config = pb::StreamConfig {
        max_frame_age: Some(prost_types::Duration {
            seconds: 0,
            nanos: 200_000_000,
        }),
        ..policy(pb::FramePolicy::All)
    };
    let (mut stream, _) = Stream::start(server.client(), config).await;
    for id in 0..2 {
        stream.send(picture(id));
        server
            .counter_reaches("detectd_pictures_prepared_total", id + 1)
            .await;
    }
    stream.send(picture(2));
    server
        .counter_reaches("detectd_requests_let_go_total", 1)
        .await;
    faults.0.lift(Target::All);
    for id in 0..2 {
        // What was begun is finished.
        assert_eq!(stream.result().await.frame_id, id);
    }
    let result = stream.result().await;
    let Some(Outcome::Dropped(dropped)) = result.outcome else {
        panic!("{result:?}");
    };
    assert_eq!(dropped.reason(), pb::DropReason::TooOld);
    assert_eq!(server.counter("detectd_pictures_prepared_total").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_of_a_client_that_has_gone_leave_the_line_at_once() {
    let (server, faults) = held(|config| {
        config.pipeline.cpu.workers = 1;
    })
    .await;
    let (stream, _) = Stream::start(server.client(), policy(pb::FramePolicy::All)).await;
    for id in 0..8 {
        stream.send(picture(id));
    }
    server
        .counter_reaches("detectd_frames_accepted_total", 8)
        .await;
    server
        .counter_reaches("detectd_pictures_prepared_total", 2)
        .await;
    drop(stream);
    // The device still holds what it was given; the six that waited are gone.
    server
        .counter_reaches("detectd_requests_let_go_total", 6)
        .await;
    server.gauge_becomes("detectd_streams", 0).await;
    assert_eq!(server.counter("detectd_pictures_prepared_total").await, 2);
    drop(faults);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_is_told_so_and_others_go_on() {
    let server = Server::start_with(&["echo"], |config| {
        config.grpc.stream.slow_reader_timeout = 200 * MS;
    })
    .await;
    let (mut stream, _) = Stream::start(server.client(), policy(pb::FramePolicy::All)).await;
    // Far more than the client's window holds of answers.
    let feed = stream.frames.take().unwrap();
    for id in 0..20_000 {
        let payload = Some(picture(id));
        feed.try_send(pb::DetectStreamRequest { payload }).unwrap();
    }
    server.gauge_becomes("detectd_streams", 0).await;
    let (mut other, _) = Stream::start(server.client(), policy(pb::FramePolicy::All)).await;
    other.send(picture(5));
    assert_eq!(other.result().await.frame_id, 5);
    // What was sent before is read in order, and then why there is no more.
    let mut next = 0;
    let status = loop {
        match stream.try_next().await {
            Ok(Some(Told::Result(result))) => {
                assert_eq!(result.frame_id, next);
                next += 1;
            }
            Ok(other) => panic!("{other:?}"),
            Err(status) => break status,
        }
    };
    assert_eq!(
        reason(&status),
        (Code::ResourceExhausted, "SLOW_READER".into())
    );
    assert!(next > 0 && next < 20_000, "{next}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draining_server_answers_what_it_took_in_and_says_where_to_go_on() {
    let (mut server, faults) = held(|_| {}).await;
    let mut busy = Vec::new();
    for _ in 0..16 {
        let (stream, _) = Stream::start(server.client(), policy(pb::FramePolicy::All)).await;
        for id in [10, 20, 30] {
            stream.send(picture(id));
        }
        busy.push(stream);
    }
    let mut idle = Vec::new();
    for _ in 0..4 {
        let (stream, _) = Stream::start(server.client(), policy(pb::FramePolicy::Latest)).await;
        idle.push(stream);
    }
    server
        .counter_reaches("detectd_frames_accepted_total", 48)
        .await;
    server.stop();
    for stream in &mut idle {
        let draining = pb::StreamDraining {
            last_frame_id: None,
        };
        assert_eq!(stream.next().await, Some(Told::Draining(draining)));
        assert_eq!(stream.next().await, None);
    }
    for stream in &mut busy {
        let draining = pb::StreamDraining {
            last_frame_id: Some(30),
        };
        assert_eq!(stream.next().await, Some(Told::Draining(draining)));
        stream.send(picture(40));
    }
    faults.0.lift(Target::All);
    for stream in &mut busy {
        for id in [10, 20, 30] {
            assert_eq!(stream.result().await.frame_id, id);
        }
        assert_eq!(stream.next().await, None);
    }
    server.ended().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_comes_of_age_ends_its_streams_as_a_drain_does() {
    let server = Server::start_with(&["echo"], |config| {
        config.grpc.connection.max_age = 300 * MS;
    })
    .await;
    let (mut stream, _) = Stream::start(server.client(), policy(pb::FramePolicy::All)).await;
    stream.send(picture(1));
    let mut told = Vec::new();
    while let Some(next) = stream.next().await {
        told.push(next);
    }
    let draining = pb::StreamDraining {
        last_frame_id: Some(1),
    };
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told.contains(&Told::Draining(draining)), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quiet_stream_tells_that_it_lives_if_it_is_asked_to() {
    let server = Server::start(&["echo"]).await;
    let config = pb::StreamConfig {
        heartbeat: Some(prost_types::Duration {
            seconds: 0,
            nanos: 100_000_000,
        }),
        ..Default::default()
    };
    let (mut stream, _) = Stream::start(server.client(), config).await;
    for _ in 0..3 {
        let heartbeat = Told::Heartbeat(pb::StreamHeartbeat {});
        assert_eq!(stream.next().await, Some(heartbeat));
    }
    stream.close();
    while let Some(told) = stream.next().await {
        assert!(matches!(told, Told::Heartbeat(_)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_on_which_nothing_comes_ends_where_that_is_wanted() {
    let server = Server::start_with(&["echo"], |config| {
        config.grpc.stream.idle_timeout = 100 * MS;
    })
    .await;
    let (mut stream, _) = Stream::start(server.client(), pb::StreamConfig::default()).await;
    let expected = (Code::DeadlineExceeded, "STREAM_IDLE".to_owned());
    assert_eq!(reason(&stream.ends().await), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn heartbeats_do_not_keep_a_stream_from_being_idle() {
    let server = Server::start_with(&["echo"], |config| {
        config.grpc.stream.idle_timeout = 500 * MS;
    })
    .await;
    let config = pb::StreamConfig {
        heartbeat: Some(prost_types::Duration {
            seconds: 0,
            nanos: 100_000_000,
        }),
        ..Default::default()
    };
    let (mut stream, _) = Stream::start(server.client(), config).await;
    let status = loop {
        match stream.try_next().await {
            Ok(told) => assert!(matches!(told, Some(Told::Heartbeat(_))), "{told:?}"),
            Err(status) => break status,
        }
    };
    let expected = (Code::DeadlineExceeded, "STREAM_IDLE".to_owned());
    assert_eq!(reason(&status), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn durations_beyond_any_clock_are_never() {
    let server = Server::start(&["echo"]).await;
    let longest = Some(prost_types::Duration {
        seconds: i64::MAX,
        nanos: 0,
    });
    let config = pb::StreamConfig {
        heartbeat: longest,
        max_frame_age: longest,
        ..Default::default()
    };
    let (mut stream, _) = Stream::start(server.client(), config).await;
    stream.send(picture(1));
    detections(stream.result().await);
    assert_eq!(server.counter("detectd_panics_total").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_whose_config_never_comes_ends() {
    let server = Server::start_with(&["echo"], |config| {
        config.grpc.connection.message_patience = 100 * MS;
    })
    .await;
    let mut stream = Stream::silent(server.client()).await;
    let expected = (Code::DeadlineExceeded, "MESSAGE_STALLED".to_owned());
    assert_eq!(reason(&stream.ends().await), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_streams_are_opened_than_may_be() {
    let server = Server::start_with(&["echo"], |config| {
        config.pipeline.streams.max_open = 2;
    })
    .await;
    let (first, _) = Stream::start(server.client(), pb::StreamConfig::default()).await;
    let (_second, _) = Stream::start(server.client(), pb::StreamConfig::default()).await;
    let mut third = Stream::silent(server.client()).await;
    third.send(Sent::Config(pb::StreamConfig::default()));
    let expected = (Code::ResourceExhausted, "TOO_MANY_STREAMS".to_owned());
    assert_eq!(reason(&third.ends().await), expected);
    drop(first);
    server.gauge_becomes("detectd_streams", 1).await;
    Stream::start(server.client(), pb::StreamConfig::default()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_wait_for_room_where_calls_would_be_refused() {
    let (server, faults) = held(|config| {
        config.pipeline.admission.max_requests = 4;
        config.pipeline.cpu.workers = 1;
    })
    .await;
    let mut streams = Vec::new();
    for _ in 0..6 {
        let (stream, _) = Stream::start(server.client(), policy(pb::FramePolicy::All)).await;
        for id in 0..5 {
            stream.send(picture(id));
        }
        streams.push(stream);
    }
    server
        .counter_reaches("detectd_frames_accepted_total", 4)
        .await;
    faults.0.lift(Target::All);
    for stream in &mut streams {
        stream.close();
        for id in 0..5 {
            let result = stream.result().await;
            assert_eq!(result.frame_id, id);
            detections(result);
        }
        assert_eq!(stream.next().await, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_above_the_message_limit_ends_the_stream_after_what_came_before() {
    let server = Server::start_with(&["echo"], |config| {
        config.grpc.max_message_size = 10_000;
    })
    .await;
    let (mut stream, _) = Stream::start(server.client(), pb::StreamConfig::default()).await;
    stream.send(picture(1));
    stream.send(frame(2, vec![0; 20_000]));
    assert_eq!(stream.result().await.frame_id, 1);
    let status = stream.ends().await;
    let expected = (Code::ResourceExhausted, "MESSAGE_TOO_LARGE".to_owned());
    assert_eq!(reason(&status), expected);
    assert!(status.get_error_details().error_info().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn followed_objects_keep_their_numbers_and_replies_show_what_was_asked_for() {
    let server = Server::start(&["echo"]).await;
    let config = |track| pb::StreamConfig {
        track,
        options: Some(pb::DetectOptions {
            max_detections: Some(2),
            ..Default::default()
        }),
        ..policy(pb::FramePolicy::All)
    };
    let (mut followed, started) = Stream::start(server.client(), config(true)).await;
    let (mut plain, _) = Stream::start(server.client(), config(false)).await;
    // What is in force is what was asked for, not what detection runs at.
    let options = started.effective_options.unwrap();
    assert_eq!(options.score_threshold, Some(0.25));
    // Boxes that move a little from frame to frame.
    for id in 0..30u8 {
        let picture = flat_png([3 * id, 2 * id, 50], 16);
        followed.send(frame(id.into(), picture.clone()));
        plain.send(frame(id.into(), picture));
    }
    let mut numbers = Vec::new();
    for _ in 0..30 {
        let found = detections(followed.result().await);
        let without = detections(plain.result().await);
        let tracks: Vec<_> = found
            .detections
            .iter()
            .map(|found| found.track_id)
            .collect();
        numbers.push(tracks);
        assert_eq!(found.total_detections, without.total_detections);
        let unnamed = found.detections.into_iter().map(|found| pb::Detection {
            track_id: None,
            ..found
        });
        assert_eq!(unnamed.collect::<Vec<_>>(), without.detections);
    }
    let [Some(first), Some(second)] = numbers[0][..] else {
        panic!("{numbers:?}");
    };
    assert_ne!(first, second);
    assert!(
        numbers.iter().all(|frame| *frame == numbers[0]),
        "{numbers:?}"
    );
}

/// `detectd detect --stream` against `server`, over a folder with these pictures; what it printed, line by line.
async fn streamed(server: &Server, pictures: &[(&str, Vec<u8>)], more: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in pictures {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_detectd"));
    command.args(["detect", "--stream", "--addr"]);
    command.arg(server.tcp().to_string()).arg(folder.path());
    command.args(more);
    // The folder lives until the command has ended.
    let output = tokio::task::spawn_blocking(move || command.output().unwrap());
    output.await.unwrap()
}

fn lines(bytes: Vec<u8>) -> Vec<String> {
    String::from_utf8(bytes)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_is_streamed_in_the_order_of_its_names_and_one_bad_frame_is_told() {
    let server = Server::start(&["echo"]).await;
    let picture = || flat_png([10, 20, 30], 16);
    let pictures = [
        ("f1.png", picture()),
        ("f2.png", b"no picture".to_vec()),
        ("f10.png", picture()),
        ("notes.txt", Vec::new()),
    ];
    let output = streamed(&server, &pictures, &["--track"]).await;
    assert!(!output.status.success());
    let errors = lines(output.stderr);
    let [error] = &errors[..] else {
        panic!("{errors:?}");
    };
    assert!(error.contains("f2.png: Invalid"), "{error}");
    let said = lines(output.stdout);
    let heads: Vec<_> = said.iter().filter(|line| line.contains("16x16")).collect();
    assert!(heads[0].contains("f1.png") && heads[1].contains("f10.png"));
    assert!(said.iter().any(|line| line.ends_with("#1")), "{said:?}");
    let last = said.last().unwrap();
    assert!(last.starts_with("3 frames  2 answered  1 failed"), "{last}");
}

#[tokio::test(flavor = "multi_thread")]
async fn streamed_json_is_an_object_a_frame_and_drawings_are_written() {
    let server = Server::start(&["echo"]).await;
    let pictures = [
        ("a.png", flat_png([10, 20, 30], 16)),
        ("b.png", flat_png([90, 20, 30], 16)),
    ];
    let out = tempfile::tempdir().unwrap();
    let drawn = out.path().to_str().unwrap();
    let more = [
        "--json", "--policy", "latest", "--fps", "20", "--out", drawn,
    ];
    let output = streamed(&server, &pictures, &more).await;
    assert!(output.status.success(), "{output:?}");
    let objects: Vec<serde_json::Value> = lines(output.stdout)
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(objects.len(), 2);
    assert_eq!(objects[0]["total_detections"], 3);
    assert!(out.path().join("b-boxes.jpg").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_cannot_be_is_told_with_its_reason() {
    let server = Server::start(&["echo"]).await;
    let pictures = [("a.png", flat_png([10, 20, 30], 16))];
    let output = streamed(&server, &pictures, &["--model", "unheard-of"]).await;
    assert!(!output.status.success());
    let errors = lines(output.stderr);
    assert!(errors[0].contains("NotFound MODEL_NOT_FOUND"), "{errors:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_is_looked_at_in_tiles_and_stays_in_its_place() {
    let server = Server::start(&["echo"]).await;
    let config = pb::StreamConfig {
        options: Some(pb::DetectOptions {
            tiling: Some(pb::Tiling {
                tile_size: 32,
                overlap: Some(0.0),
            }),
            ..Default::default()
        }),
        ..policy(pb::FramePolicy::All)
    };
    let (mut stream, _) = Stream::start(server.client(), config).await;
    // Sixteen tiles and the look at all of it, then one that is no larger than a tile.
    stream.send(frame(1, flat_png([10, 20, 30], 128)));
    stream.send(frame(2, flat_png([10, 20, 30], 32)));
    stream.close();
    for (id, tiles) in [(1, 17), (2, 1)] {
        let result = stream.result().await;
        assert_eq!(result.frame_id, id);
        assert_eq!(detections(result).timings.unwrap().tiles, tiles);
    }
    assert_eq!(stream.next().await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_does_not_make_calls_infeasible() {
    let server = Server::start(&["echo"]).await;
    let config = pb::StreamConfig {
        max_in_flight: 64,
        ..policy(pb::FramePolicy::All)
    };
    // A few answers fit in its window, so the others wait in the server.
    let (mut stream, _) = Stream::start(server.client_with_window(1_024), config).await;
    for id in 0..300 {
        stream.send(picture(id));
    }
    let mut reading = tokio::time::interval(50 * MS);
    for _ in 0..50 {
        reading.tick().await;
        stream.result().await;
    }
    drop(stream);
    server.gauge_becomes("detectd_streams", 0).await;
    let Sent::Frame(pb::Frame { image, .. }) = picture(1) else {
        unreachable!("a picture is a frame")
    };
    let request = pb::DetectRequest {
        image,
        ..Default::default()
    };
    let call = within(Duration::from_secs(1), request);
    server.client().detect(call).await.unwrap();
}
