//! More than the server can do: what nobody will read is not done.

use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::task::JoinSet;
use tonic::Code;

use crate::support::{Server, flat_png, reason, request, within};

/// Calls without a deadline that keep the server busy; each takes the network some 20 ms.
const BACKGROUND: u64 = 200;

fn picture() -> Vec<u8> {
    flat_png([10, 20, 30], 16)
}

/// Starts the background calls and returns once all of them have been admitted.
async fn keep_busy(server: &Server) -> JoinSet<()> {
    let mut background = JoinSet::new();
    for _ in 0..BACKGROUND {
        let mut client = server.client();
        background.spawn(async move {
            client.detect(request(picture())).await.unwrap();
        });
    }
    server
        .counter_reaches("detectd_requests_admitted_total", BACKGROUND)
        .await;
    background
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_whose_deadline_passes_in_the_line_never_run() {
    let server = Server::start_with(&["echo-slow"], |config| {
        config.pipeline.admission.max_requests = 400;
    })
    .await;
    let background = keep_busy(&server).await;
    // Until it has seen what a picture takes, nothing is refused for want of time.
    server.counter_reaches("detectd_pictures_total", 12).await;
    let client = server.client();
    let call = |_| {
        let mut client = client.clone();
        async move {
            client
                .detect(within(Duration::from_millis(5), request(picture())))
                .await
        }
    };
    // A few at a time: of a thousand at once hardly any would reach the line before its time is up.
    let mut calls = pin!(
        futures_util::stream::iter(0..1_000)
            .map(call)
            .buffer_unordered(4)
    );
    while let Some(call) = calls.next().await {
        let status = call.expect_err("a busy server cannot answer in 5 ms");
        match reason(&status) {
            (Code::DeadlineExceeded, reason) if reason == "DEADLINE_EXCEEDED" => {}
            (Code::ResourceExhausted, reason) if reason == "QUEUE_FULL" => {}
            (Code::ResourceExhausted, reason) if reason == "DEADLINE_INFEASIBLE" => {}
            other => panic!("{other:?}: {status:?}"),
        }
    }
    background.join_all().await;
    assert_eq!(server.counter("detectd_pictures_total").await, BACKGROUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_are_cancelled_leave_the_line_at_once_and_never_run() {
    let server = Server::start_with(&["echo-slow"], |config| {
        config.pipeline.admission.max_requests = 2_000;
    })
    .await;
    let background = keep_busy(&server).await;
    let client = server.client();
    let mut calls = JoinSet::new();
    for _ in 0..1_000 {
        let mut client = client.clone();
        calls.spawn(async move { client.detect(request(picture())).await });
    }
    server
        .counter_reaches("detectd_requests_admitted_total", BACKGROUND + 1_000)
        .await;
    calls.shutdown().await;
    server
        .counter_reaches("detectd_requests_let_go_total", 1_000)
        .await;
    // They went while the line before them was still being worked off.
    assert!(server.counter("detectd_pictures_total").await < BACKGROUND);
    background.join_all().await;
    assert_eq!(server.counter("detectd_pictures_total").await, BACKGROUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_line_says_when_to_come_back() {
    let server = Server::start_with(&["echo-slow"], |config| {
        config.pipeline.admission.max_requests = 1
    })
    .await;
    let client = server.client();
    let mut calls = JoinSet::new();
    for _ in 0..64 {
        let mut client = client.clone();
        calls.spawn(async move { client.detect(request(picture())).await });
    }
    let mut refused = 0;
    for outcome in calls.join_all().await {
        let Err(status) = outcome else { continue };
        assert_eq!(
            reason(&status),
            (Code::ResourceExhausted, "QUEUE_FULL".into())
        );
        let details = tonic_types::StatusExt::get_error_details(&status);
        assert!(details.retry_info().unwrap().retry_delay.unwrap() > Duration::ZERO);
        refused += 1;
    }
    assert!(refused > 0, "64 calls at once do not fit a line of one");
    assert_eq!(
        server.counter("detectd_requests_refused_total").await,
        refused
    );
}
