//! Calls and connections as nobody should make them.

use std::io::Write;
use std::time::Duration;

use bytes::Bytes;
use detectd::grpc::pb;
use detectd::grpc::pb::detection_service_client::DetectionServiceClient;
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tonic::{Code, Status};

use crate::support::{PATIENCE, Server, flat_png, reason, request};

const DETECT: &str = "/detectd.v1.DetectionService/Detect";

type Body = BoxBody<Bytes, std::convert::Infallible>;

type Headers<'h> = &'h [(&'h str, &'h str)];

/// One HTTP/2 connection, byte by byte the test's own.
struct Connection {
    sender: hyper::client::conn::http2::SendRequest<Body>,
    closed: JoinHandle<hyper::Result<()>>,
    origin: String,
}

impl Connection {
    async fn open(server: &Server) -> Self {
        let stream = TcpStream::connect(server.tcp()).await.unwrap();
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .unwrap();
        let closed = tokio::spawn(connection);
        Self {
            sender,
            closed,
            origin: format!("http://{}", server.tcp()),
        }
    }

    /// Starts a gRPC call with these headers and this body.
    fn call(
        &mut self,
        path: &str,
        headers: Headers<'_>,
        body: Body,
    ) -> impl Future<Output = hyper::Result<Response<Incoming>>> + use<> {
        let mut request = Request::post(format!("{}{path}", self.origin))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.sender.send_request(request.body(body).unwrap())
    }
}

fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).boxed()
}

/// A message with its prefix, which says `flag` and `len`.
fn framed(flag: u8, len: usize, message: &[u8]) -> Vec<u8> {
    let mut bytes = vec![flag];
    bytes.extend(u32::try_from(len).unwrap().to_be_bytes());
    bytes.extend(message);
    bytes
}

fn good_message() -> Vec<u8> {
    let message = request(flat_png([1, 2, 3], 16)).encode_to_vec();
    framed(0, message.len(), &message)
}

/// A body that is sent as the test sends its parts; it ends when the sender goes.
fn trickled() -> (mpsc::Sender<Bytes>, Body) {
    let (sender, receiver) = mpsc::channel::<Bytes>(8);
    let frames = tokio_stream::StreamExt::map(
        tokio_stream::wrappers::ReceiverStream::new(receiver),
        |part| Ok(Frame::data(part)),
    );
    (sender, StreamBody::new(frames).boxed())
}

/// The status of a reply, from its headers or its trailers.
async fn status(response: Response<Incoming>) -> Status {
    if let Some(status) = Status::from_header_map(response.headers()) {
        return status;
    }
    let collected = response.into_body().collect().await.unwrap();
    Status::from_header_map(collected.trailers().unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_keeps_its_name_or_gets_one() {
    let server = Server::start(&["echo"]).await;
    let mut connection = Connection::open(&server).await;
    let named = connection
        .call(DETECT, &[("x-request-id", "frame-7")], full(good_message()))
        .await
        .unwrap();
    assert_eq!(named.headers()["x-request-id"], "frame-7");
    let unnamed = connection
        .call(DETECT, &[], full(good_message()))
        .await
        .unwrap();
    assert!(!unnamed.headers()["x-request-id"].is_empty());
    // A refusal has one too: that is when it is needed.
    let refused = connection
        .call(
            DETECT,
            &[("x-request-id", "bad-1")],
            full(framed(0, 3, b"abc")),
        )
        .await
        .unwrap();
    assert_eq!(refused.headers()["x-request-id"], "bad-1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_above_the_limit_is_refused_on_its_prefix_with_both_numbers() {
    let server =
        Server::start_with(&["echo"], |config| config.grpc.max_message_size = 10_000).await;
    let mut connection = Connection::open(&server).await;
    // Only the prefix is ever sent: the server does not wait for the rest.
    let (parts, body) = trickled();
    let call = connection.call(DETECT, &[], body);
    parts.send(framed(0, 10_001, b"").into()).await.unwrap();
    let status = status(call.await.unwrap()).await;
    assert_eq!(
        reason(&status),
        (Code::ResourceExhausted, "MESSAGE_TOO_LARGE".into())
    );
    assert!(
        status.message().contains("10001") && status.message().contains("10000"),
        "{}",
        status.message()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_inflates_above_the_limit_is_refused() {
    let server =
        Server::start_with(&["echo"], |config| config.grpc.max_message_size = 1 << 20).await;
    let mut zip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let zeros = vec![0; 1 << 20];
    // 64 MiB in some 300 KB.
    (0..64).for_each(|_| zip.write_all(&zeros).unwrap());
    let bomb = zip.finish().unwrap();
    let mut connection = Connection::open(&server).await;
    let body = full(framed(1, bomb.len(), &bomb));
    let response = connection
        .call(DETECT, &[("grpc-encoding", "gzip")], body)
        .await
        .unwrap();
    assert_eq!(
        reason(&status(response).await),
        (Code::ResourceExhausted, "MESSAGE_TOO_LARGE".into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_cannot_be_read_is_the_callers_mistake() {
    let server = Server::start(&["echo"]).await;
    let mut connection = Connection::open(&server).await;
    let cases: [(&str, Vec<u8>, Headers<'_>); 6] = [
        ("bytes that are no message", framed(0, 4, &[0xff; 4]), &[]),
        ("no message at all", vec![], &[]),
        ("half a prefix", vec![0, 0], &[]),
        ("half a message", framed(0, 100, &[0; 7]), &[]),
        ("a flag that is none", framed(7, 2, &[0; 2]), &[]),
        (
            "gzip that is none",
            framed(1, 4, b"nope"),
            &[("grpc-encoding", "gzip")],
        ),
    ];
    for (what, body, headers) in cases {
        let response = connection.call(DETECT, headers, full(body)).await.unwrap();
        assert_eq!(
            reason(&status(response).await),
            (Code::InvalidArgument, "MALFORMED_MESSAGE".into()),
            "{what}"
        );
    }
    let response = connection
        .call(DETECT, &[], full(good_message()))
        .await
        .unwrap();
    assert_eq!(status(response).await.code(), Code::Ok);
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_fields_are_passed_over_and_unknown_methods_told() {
    let server = Server::start(&["echo"]).await;
    let mut connection = Connection::open(&server).await;
    let mut message = request(flat_png([1, 2, 3], 16)).encode_to_vec();
    message.extend([0xfa, 0x3e, 0x03, b'n', b'e', b'w']); // field 1007: from a later version of the contract
    let response = connection
        .call(DETECT, &[], full(framed(0, message.len(), &message)))
        .await
        .unwrap();
    assert_eq!(status(response).await.code(), Code::Ok);
    for path in [
        "/detectd.v1.DetectionService/Nonsense",
        "/nonsense.Service/Detect",
        "/",
    ] {
        let response = connection
            .call(path, &[], full(good_message()))
            .await
            .unwrap();
        assert_eq!(status(response).await.code(), Code::Unimplemented, "{path}");
    }
    let response = connection
        .call(DETECT, &[("grpc-encoding", "snappy")], full(good_message()))
        .await
        .unwrap();
    assert_eq!(status(response).await.code(), Code::Unimplemented);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_line_refuses_on_the_headers_and_health_is_answered_all_the_same() {
    let server = Server::start_with(&["echo-slow"], |config| {
        config.pipeline.admission.max_requests = 2
    })
    .await;
    // Two messages that are announced and do not come take both places.
    let mut connection = Connection::open(&server).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let (parts, body) = trickled();
        let call = tokio::spawn(connection.call(DETECT, &[], body));
        parts.send(framed(0, 1_000, b"half").into()).await.unwrap();
        held.push((parts, call));
    }
    let refused = async {
        loop {
            // Headers and no more: a server that read the message first would wait for ever. The first calls
            // may come before the two have taken their places; those are given up.
            let (_parts, body) = trickled();
            let call = connection.call(DETECT, &[], body);
            if let Ok(Ok(response)) = tokio::time::timeout(Duration::from_millis(200), call).await {
                return status(response).await;
            }
        }
    };
    let refused = tokio::time::timeout(PATIENCE, refused)
        .await
        .expect("the line is full");
    assert_eq!(
        reason(&refused),
        (Code::ResourceExhausted, "QUEUE_FULL".into())
    );
    let health = tonic_health::pb::HealthCheckRequest::default();
    server.health().await.check(health).await.unwrap();
    // The places come back with the calls that are given up.
    drop(held);
    let answered = async {
        while server
            .client()
            .detect(request(flat_png([1, 2, 3], 16)))
            .await
            .is_err()
        {}
    };
    tokio::time::timeout(PATIENCE, answered)
        .await
        .expect("the places are free again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_stops_coming_gives_its_place_back() {
    let server = Server::start_with(&["echo"], |config| {
        config.pipeline.admission.max_requests = 1;
        config.grpc.connection.message_patience = Duration::from_millis(100);
    })
    .await;
    let mut connection = Connection::open(&server).await;
    let (parts, body) = trickled();
    let call = connection.call(DETECT, &[], body);
    parts.send(framed(0, 1_000, b"half").into()).await.unwrap();
    let status = status(call.await.unwrap()).await;
    assert_eq!(
        reason(&status),
        (Code::DeadlineExceeded, "MESSAGE_STALLED".into())
    );
    assert!(
        status.message().contains("4 of 1000 bytes"),
        "{}",
        status.message()
    );
    // One that never begins holds a call open, and is not waited for either.
    let (_parts, body) = trickled();
    let never_begun = self::status(connection.call(DETECT, &[], body).await.unwrap()).await;
    assert_eq!(
        reason(&never_begun),
        (Code::DeadlineExceeded, "MESSAGE_STALLED".into())
    );
    server
        .client()
        .detect(request(flat_png([1, 2, 3], 16)))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn places_taken_by_a_prefix_alone_are_soon_free_again() {
    let server = Server::start_with(&["echo"], |config| {
        config.grpc.connection.message_patience = Duration::from_millis(100);
    })
    .await;
    let mut connection = Connection::open(&server).await;
    let mut silent = JoinSet::new();
    for _ in 0..16 {
        let (parts, body) = trickled();
        let call = connection.call(DETECT, &[], body);
        // As much as may be announced, and then nothing.
        parts.send(framed(0, 32 << 20, b"").into()).await.unwrap();
        silent.spawn(async move {
            let outcome = status(call.await.unwrap()).await;
            drop(parts);
            outcome
        });
    }
    for outcome in silent.join_all().await {
        let (code, reason) = reason(&outcome);
        let told = (code, reason.as_str());
        assert!(
            told == (Code::DeadlineExceeded, "MESSAGE_STALLED")
                || told == (Code::ResourceExhausted, "QUEUE_FULL"),
            "{told:?}"
        );
    }
    let response = connection
        .call(DETECT, &[], full(good_message()))
        .await
        .unwrap();
    assert_eq!(status(response).await.code(), Code::Ok);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_end_does_not_come_is_ended() {
    let server = Server::start_with(&["echo"], |config| {
        config.grpc.connection.message_patience = Duration::from_millis(100);
    })
    .await;
    let mut connection = Connection::open(&server).await;
    for path in [DETECT, "/grpc.health.v1.Health/Check"] {
        let (parts, body) = trickled();
        let call = connection.call(path, &[], body);
        parts.send(framed(0, 0, b"").into()).await.unwrap();
        let outcome = status(call.await.unwrap()).await;
        assert_eq!(
            reason(&outcome),
            (Code::DeadlineExceeded, "MESSAGE_STALLED".into()),
            "{path}"
        );
        assert!(outcome.message().contains("not the end"), "{outcome}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_message_in_a_call_of_one_is_refused() {
    let server = Server::start(&["echo"]).await;
    let mut connection = Connection::open(&server).await;
    let two = [good_message(), framed(0, 0, b"")].concat();
    let response = connection.call(DETECT, &[], full(two)).await.unwrap();
    let at_once = status(response).await;
    let (parts, body) = trickled();
    let call = connection.call(DETECT, &[], body);
    parts.send(good_message().into()).await.unwrap();
    parts.send(framed(0, 0, b"").into()).await.unwrap();
    let later = status(call.await.unwrap()).await;
    for outcome in [at_once, later] {
        assert_eq!(
            reason(&outcome),
            (Code::InvalidArgument, "MALFORMED_MESSAGE".into())
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_deadline_counts_while_a_message_comes() {
    let server = Server::start(&["echo"]).await;
    let mut connection = Connection::open(&server).await;
    for sent in [&b""[..], &framed(0, 1_000, b"half"), &good_message()] {
        let (parts, body) = trickled();
        let call = connection.call(DETECT, &[("grpc-timeout", "100m")], body);
        parts.send(sent.to_vec().into()).await.unwrap();
        let outcome = status(call.await.unwrap()).await;
        assert_eq!(
            reason(&outcome),
            (Code::DeadlineExceeded, "DEADLINE_EXCEEDED".into()),
            "{} bytes",
            sent.len()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_that_are_begun_have_to_be_finished() {
    const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    // HEADERS of stream 1 without END_HEADERS: `:method: POST`, and nothing more.
    const BEGUN: &[u8] = b"\0\0\x01\x01\0\0\0\0\x01\x83";
    let server = Server::start_with(&["echo"], |config| {
        config.grpc.connection.handshake_timeout = Duration::from_millis(100);
    })
    .await;
    for said in [
        [HELLO, BEGUN].concat(),
        [HELLO, &BEGUN[..5]].concat(),
        HELLO[..24].to_vec(),
    ] {
        let mut peer = TcpStream::connect(server.tcp()).await.unwrap();
        peer.write_all(&said).await.unwrap();
        let mut heard = Vec::new();
        let ended = tokio::time::timeout(PATIENCE, peer.read_to_end(&mut heard)).await;
        drop(ended.expect("the server closes"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_does_not_take_its_reply_is_cut() {
    let server = Server::start_with(&["echo"], |config| {
        config.grpc.connection.handshake_timeout = Duration::from_millis(100);
        config.grpc.connection.message_patience = Duration::from_millis(100);
    })
    .await;
    let stream = TcpStream::connect(server.tcp()).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(0)
        .handshake(TokioIo::new(stream))
        .await
        .unwrap();
    let closed = tokio::spawn(connection);
    let request = Request::post(format!("http://{}{DETECT}", server.tcp()))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(full(good_message()))
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    let ended = tokio::time::timeout(PATIENCE, closed).await;
    drop(ended.expect("the server closes").unwrap());
    drop(response);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_grpc_is_told_what_http_says_about_it() {
    let server = Server::start(&["echo"]).await;
    let mut connection = Connection::open(&server).await;
    for (method, content_type, expected) in [
        ("GET", "application/grpc", 405),
        ("PUT", "application/grpc", 405),
        ("POST", "application/json", 415),
        ("POST", "application/grpcx", 415),
        ("POST", "application/grpc+proto", 200),
    ] {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{DETECT}", connection.origin))
            .header("content-type", content_type)
            .body(full(good_message()))
            .unwrap();
        let response = connection.sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), expected, "{method} {content_type}");
    }
    let response = connection
        .call(DETECT, &[("grpc-timeout", "soon")], full(good_message()))
        .await
        .unwrap();
    assert_eq!(
        reason(&status(response).await),
        (Code::InvalidArgument, "INVALID_OPTION".into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_that_compresses_everything_can_ask_for_health() {
    let server = Server::start(&["echo"]).await;
    let mut connection = Connection::open(&server).await;
    let mut zip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    zip.write_all(b"").unwrap();
    let zipped = zip.finish().unwrap();
    let response = connection
        .call(
            "/grpc.health.v1.Health/Check",
            &[("grpc-encoding", "gzip")],
            full(framed(1, zipped.len(), &zipped)),
        )
        .await
        .unwrap();
    assert_eq!(status(response).await.code(), Code::Ok);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_is_too_large_is_refused_with_both_numbers() {
    let server = Server::start(&["echo"]).await;
    let mut connection = Connection::open(&server).await;
    let response = connection
        .call(
            "/grpc.health.v1.Health/Check",
            &[],
            full(framed(0, 5_000, &[0; 5_000])),
        )
        .await
        .unwrap();
    let outcome = status(response).await;
    assert_eq!(
        reason(&outcome),
        (Code::ResourceExhausted, "MESSAGE_TOO_LARGE".into())
    );
    assert!(outcome.message().contains("5000") && outcome.message().contains("4096"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_does_not_speak_is_let_go() {
    let server = Server::start_with(&["echo"], |config| {
        config.grpc.connection.handshake_timeout = Duration::from_millis(100);
    })
    .await;
    // Opened first: when the silent ones have been let go, its own handshake's time is over too.
    let mut quiet = Connection::open(&server).await;
    for said in [&b""[..], b"PRI * HTTP/2.0\r\n"] {
        let mut silent = TcpStream::connect(server.tcp()).await.unwrap();
        silent.write_all(said).await.unwrap();
        let mut heard = Vec::new();
        // The server may have sent its own settings; what counts is that it ends.
        let ended = tokio::time::timeout(PATIENCE, silent.read_to_end(&mut heard)).await;
        drop(ended.expect("the server closes"));
    }
    // A peer that did speak may then be quiet for as long as it likes.
    let response = quiet.call(DETECT, &[], full(good_message())).await.unwrap();
    assert_eq!(status(response).await.code(), Code::Ok);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_of_age_is_told_to_finish_and_then_cut() {
    let server = Server::start_with(&["echo"], |config| {
        config.grpc.connection.max_age = Duration::from_millis(200);
        config.grpc.connection.max_age_grace = Duration::from_millis(200);
    })
    .await;
    let idle = Connection::open(&server).await;
    let mut busy = Connection::open(&server).await;
    let (parts, body) = trickled();
    let open_call = busy.call(DETECT, &[], body);
    parts.send(framed(0, 1_000, b"half").into()).await.unwrap();
    // GOAWAY ends a connection without calls cleanly, and one with an open call after the grace.
    tokio::time::timeout(PATIENCE, idle.closed)
        .await
        .expect("told to finish")
        .unwrap()
        .unwrap();
    drop(
        tokio::time::timeout(PATIENCE, busy.closed)
            .await
            .expect("cut"),
    );
    assert!(open_call.await.is_err());
    // Clients come back by themselves.
    server
        .client()
        .detect(request(flat_png([1, 2, 3], 16)))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_beyond_the_cap_are_closed_at_once() {
    let server = Server::start_with(&["echo"], |config| {
        config.grpc.connection.max_connections = 2
    })
    .await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut connection = Connection::open(&server).await;
        drop(
            connection
                .call(DETECT, &[], full(good_message()))
                .await
                .unwrap(),
        );
        held.push(connection);
    }
    let mut third = TcpStream::connect(server.tcp()).await.unwrap();
    let mut heard = Vec::new();
    let ended = tokio::time::timeout(PATIENCE, third.read_to_end(&mut heard)).await;
    drop(ended.expect("the server closes"));
    assert!(heard.is_empty());
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_megabyte_of_headers_is_refused_and_hurts_nobody() {
    let server = Server::start(&["echo"]).await;
    let mut connection = Connection::open(&server).await;
    let large = "a".repeat(1 << 20);
    for path in [DETECT, "/grpc.health.v1.Health/Check"] {
        let response = connection
            .call(path, &[("x-large", &large)], full(good_message()))
            .await
            .unwrap();
        let status = status(response).await;
        assert_eq!(
            reason(&status),
            (Code::ResourceExhausted, "HEADERS_TOO_LARGE".into()),
            "{path}"
        );
        assert!(
            status.message().ends_with("above the limit of 16384 bytes"),
            "{status}"
        );
    }
    // The connection, and everybody's calls on it, live on.
    let usual = "a".repeat(8 << 10);
    let response = connection
        .call(DETECT, &[("x-usual", &usual)], full(good_message()))
        .await
        .unwrap();
    assert_eq!(status(response).await.code(), Code::Ok);
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_calls_started_and_given_up_on_one_connection_hurt_nobody() {
    let server = Server::start(&["echo"]).await;
    let mut connection = Connection::open(&server).await;
    for _ in 0..5_000 {
        // Dropped before it is answered. Should the server have taken it for a flood and closed the
        // connection, which it may, a new one is opened.
        let call = connection.call(DETECT, &[], full(good_message()));
        drop(tokio::time::timeout(Duration::ZERO, call).await);
        if connection.sender.is_closed() {
            connection = Connection::open(&server).await;
        }
    }
    let mut calls = JoinSet::new();
    for _ in 0..64 {
        let mut client = server.client();
        calls.spawn(async move { client.detect(request(flat_png([1, 2, 3], 16))).await });
    }
    calls
        .join_all()
        .await
        .into_iter()
        .for_each(|outcome| drop(outcome.unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_protocol_on_the_port_is_turned_away() {
    let server = Server::start(&["echo"]).await;
    let mut other = TcpStream::connect(server.tcp()).await.unwrap();
    other
        .write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    let mut heard = Vec::new();
    let ended = tokio::time::timeout(PATIENCE, other.read_to_end(&mut heard)).await;
    drop(ended.expect("the server closes"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unix_socket_serves_like_a_port_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("detectd.sock");
    let address = format!("unix:{}", path.display());
    let mut server = Server::serve(&[crate::support::fixtures().join("echo")], |config| {
        config.grpc.address.clone_from(&address);
    })
    .await;
    assert_eq!(server.addresses.grpc.to_string(), address);
    let connect = {
        let path = path.clone();
        move |_: http::Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        }
    };
    let channel = tonic::transport::Endpoint::from_static("http://unix")
        .connect_with_connector(tower::service_fn(connect))
        .await
        .unwrap();
    let mut client = DetectionServiceClient::new(channel);
    let answered = async {
        // Not ready yet is an answer too.
        while client
            .detect(request(flat_png([1, 2, 3], 16)))
            .await
            .is_err()
        {}
    };
    tokio::time::timeout(PATIENCE, answered)
        .await
        .expect("it becomes ready");
    let models = client
        .list_models(pb::ListModelsRequest {})
        .await
        .unwrap()
        .into_inner()
        .models;
    assert_eq!(models.len(), 1);
    drop(client);
    server.stop();
    server.ended().await.unwrap();
    assert!(!path.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_end_accepted_calls_are_answered_beside_an_idle_connection_and_a_half_sent_message()
{
    // The half-sent message is given up long before the grace is over; an end by the cut is tested with a watch.
    let grace = Duration::from_secs(60);
    let mut server = Server::start_with(&["echo-slow"], |config| {
        config.drain.grace = grace;
        config.grpc.connection.message_patience = Duration::from_secs(2);
    })
    .await;
    let idle = Connection::open(&server).await;
    let mute = TcpStream::connect(server.tcp()).await.unwrap();
    let mut half = Connection::open(&server).await;
    let (parts, body) = trickled();
    let half_sent = tokio::spawn(half.call(DETECT, &[], body));
    parts.send(framed(0, 1_000, b"half").into()).await.unwrap();
    let mut calls = JoinSet::new();
    for n in 0..100 {
        let mut client = server.client();
        calls.spawn(async move { client.detect(request(flat_png([n, n, n], 16))).await });
    }
    server
        .counter_reaches("detectd_requests_admitted_total", 100)
        .await;
    let told = std::time::Instant::now();
    server.stop();
    calls
        .join_all()
        .await
        .into_iter()
        .for_each(|outcome| drop(outcome.expect("what was taken is answered")));
    server.ended().await.unwrap();
    assert!(
        told.elapsed() < grace + Duration::from_secs(1),
        "{:?}",
        told.elapsed()
    );
    drop(half_sent.await.unwrap());
    drop((idle, mute, parts));
}
