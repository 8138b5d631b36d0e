//! What bad callers cost good ones: 16 callers with photos, alone and beside everything a server meets.
//!
//! `cargo bench --bench hostile` runs it on the release binary. The bad company: 10,000 idle connections, 8 bodies
//! that trickle, 5,000 calls started and given up on one connection, a gzip bomb of 1 GiB, a megabyte of
//! headers. Rounds alternate between alone and in bad company; what counts is the ratio of the medians, and how
//! much memory the server took.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench that cannot go on says so and ends"
)]

#[path = "serving/report.rs"]
#[allow(
    dead_code,
    reason = "shared with the serving bench, which needs more of it"
)]
mod report;
#[path = "serving/server.rs"]
#[allow(
    dead_code,
    reason = "shared with the serving bench, which needs more of it"
)]
mod server;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use clap::Parser;
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_stream::StreamExt;
use tonic::Status;

use report::Series;

#[derive(Debug, Parser)]
struct Arguments {
    /// Rounds; each figure is their median.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Length of each measurement, in seconds.
    #[arg(long, default_value_t = 6)]
    seconds: u64,
    /// What cargo passes to every bench.
    #[arg(long, hide = true)]
    bench: bool,
}

const GOOD_CALLERS: usize = 16;
const IDLE: usize = 10_000;
const TRICKLING: usize = 8;
const GIVEN_UP: usize = 5_000;
const DETECT: &str = "/detectd.v1.DetectionService/Detect";

type Body = BoxBody<Bytes, std::convert::Infallible>;

fn main() {
    let arguments = Arguments::parse();
    let length = Duration::from_secs(arguments.seconds);
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("models");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/images/coco_val_ccby27");
    let Ok(entries) = std::fs::read_dir(folder) else {
        println!("skipped: the hostile bench (../shared is absent)");
        return;
    };
    let paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    let photos: Vec<Vec<u8>> = paths
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect();
    let bomb = bomb();
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).unwrap();

    let server = server::Server::start(&repository, "yolox-nano");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        server.calls(&photos, GOOD_CALLERS, Duration::from_secs(2)).await;
        let (mut rate_alone, mut rate_beside) = (Series::new("alone", "pictures/s"), Series::new("in bad company", "pictures/s"));
        let (mut p50_alone, mut p50_beside) = (Series::new("alone, p50", "ms"), Series::new("in bad company, p50", "ms"));
        let (mut rate, mut p50) = (Series::new("throughput ratio (at least 0.90)", ""), Series::new("p50 ratio (at most 1.10)", ""));
        let before = server.resident_mib();
        let mut most: f64 = before;
        let mut codes = Vec::new();
        for _ in 0..arguments.rounds {
            let alone = server.calls(&photos, GOOD_CALLERS, length).await;
            let company = company(&server).await;
            let (beside, told) = tokio::join!(server.calls(&photos, GOOD_CALLERS, length), misbehave(&server, bomb.clone()));
            most = most.max(server.resident_mib());
            codes = told;
            drop(company);
            rate_alone.push(alone.0);
            rate_beside.push(beside.0);
            rate.push(beside.0 / alone.0);
            p50_alone.push(alone.1.as_secs_f64() * 1e3);
            p50_beside.push(beside.1.as_secs_f64() * 1e3);
            p50.push(beside.1.as_secs_f64() / alone.1.as_secs_f64());
        }
        println!("{GOOD_CALLERS} good callers; {IDLE} idle connections, {TRICKLING} trickling bodies, {GIVEN_UP} calls given up");
        for series in [rate_alone, rate_beside, rate, p50_alone, p50_beside, p50] {
            println!("{series}");
        }
        println!("  server's memory: {before:.0} MiB before, {most:.0} MiB at most");
        for (what, answer) in codes {
            println!("  {what}: {answer}");
        }
    });
}

/// Company that is there before and stays: idle connections and trickling bodies.
async fn company(server: &server::Server) -> (Vec<TcpStream>, JoinSet<()>) {
    // What a client says first, and settings of no settings.
    const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let mut idle = Vec::with_capacity(IDLE);
    for _ in 0..IDLE {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(HELLO).await.unwrap();
        idle.push(stream);
    }
    let mut trickling = JoinSet::new();
    for _ in 0..TRICKLING {
        let mut connection = connect(server).await;
        let origin = server.address().to_owned();
        trickling.spawn(async move {
            let parts =
                tokio_stream::iter([framed(0, 1 << 20)]).chain(tokio_stream::StreamExt::map(
                    tokio_stream::wrappers::IntervalStream::new(tokio::time::interval(
                        Duration::from_millis(200),
                    )),
                    |_| vec![0],
                ));
            let body = StreamBody::new(parts.map(|part| Ok(Frame::data(part.into())))).boxed();
            drop(connection.send_request(post(&origin, &[], body)).await);
        });
    }
    (idle, trickling)
}

/// Company that comes, does its worst, and is told what it is told.
async fn misbehave(server: &server::Server, bomb: Bytes) -> Vec<(&'static str, String)> {
    let mut told = Vec::new();
    let mut connection = connect(server).await;
    let mut opened = 1;
    for _ in 0..GIVEN_UP {
        let call = connection.send_request(post(server.address(), &[], full(framed(0, 0))));
        drop(tokio::time::timeout(Duration::ZERO, call).await);
        if connection.is_closed() {
            connection = connect(server).await;
            opened += 1;
        }
    }
    told.push(("calls given up", format!("over {opened} connections")));
    let mut message = framed(1, bomb.len());
    message.extend_from_slice(&bomb);
    let mut connection = connect(server).await;
    let answer = connection
        .send_request(post(
            server.address(),
            &[("grpc-encoding", "gzip")],
            full(message),
        ))
        .await;
    told.push(("gzip bomb", code(answer)));
    let large = "a".repeat(1 << 20);
    let answer = connect(server)
        .await
        .send_request(post(
            server.address(),
            &[("x-large", &large)],
            full(framed(0, 0)),
        ))
        .await;
    told.push(("a megabyte of headers", code(answer)));
    told
}

/// What a call was told: its status, or why there was none.
fn code(answer: hyper::Result<Response<Incoming>>) -> String {
    match answer {
        Ok(response) => Status::from_header_map(response.headers()).map_or_else(
            || format!("no status in {}", response.status()),
            |status| format!("{:?}", status.code()),
        ),
        Err(error) => error.to_string(),
    }
}

async fn connect(server: &server::Server) -> SendRequest<Body> {
    let stream = TcpStream::connect(server.address()).await.unwrap();
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    sender
}

fn post(origin: &str, headers: &[(&str, &str)], body: Body) -> Request<Body> {
    let mut request = Request::post(format!("http://{origin}{DETECT}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(body).unwrap()
}

fn full(bytes: Vec<u8>) -> Body {
    Full::new(bytes.into()).boxed()
}

/// A message's prefix.
fn framed(flag: u8, len: usize) -> Vec<u8> {
    let mut bytes = vec![flag];
    bytes.extend(u32::try_from(len).unwrap().to_be_bytes());
    bytes
}

/// A gibibyte of zeros, zipped.
fn bomb() -> Bytes {
    let mut zip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let zeros = vec![0; 1 << 20];
    (0..1_024).for_each(|_| zip.write_all(&zeros).unwrap());
    zip.finish().unwrap().into()
}
