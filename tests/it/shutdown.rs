//! The end: what was taken is answered, nothing holds the process up.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tonic_health::pb::health_check_response::ServingStatus;

use crate::support::{Server, flat_png, request};

#[tokio::test(flavor = "multi_thread")]
async fn calls_under_way_are_answered_before_the_server_ends() {
    let mut server = Server::start(&["echo-slow"]).await;
    let mut calls = JoinSet::new();
    for n in 0..32 {
        let mut client = server.client();
        calls.spawn(async move { client.detect(request(flat_png([n, n, n], 16))).await });
    }
    server
        .counter_reaches("detectd_requests_admitted_total", 32)
        .await;
    server.stop();
    for outcome in calls.join_all().await {
        outcome.expect("a call that was taken is answered");
    }
    server.ended().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_health_watch_holds_nothing_up_beyond_the_grace_period() {
    let grace = Duration::from_millis(300);
    let mut server = Server::start_with(&["echo"], |config| config.drain.grace = grace).await;
    let mut watch = server.watch("").await;
    assert_eq!(
        watch.message().await.unwrap().unwrap().status(),
        ServingStatus::Serving
    );
    let told = Instant::now();
    server.stop();
    server.ended().await.unwrap();
    // A bound on a hang, not a measurement: without the cut it would be for ever.
    assert!(told.elapsed() < Duration::from_secs(30));
}

#[tokio::test(flavor = "multi_thread")]
async fn during_the_pre_drain_health_says_no_and_calls_are_still_taken() {
    // Longer than the test: it is over before the server ends.
    let mut server = Server::start_with(&["echo"], |config| {
        config.drain.pre_drain = Duration::from_secs(600)
    })
    .await;
    let mut watch = server.watch("").await;
    assert_eq!(
        watch.message().await.unwrap().unwrap().status(),
        ServingStatus::Serving
    );
    server.stop();
    assert_eq!(
        watch.message().await.unwrap().unwrap().status(),
        ServingStatus::NotServing
    );
    assert!(server.get("/readyz").await.starts_with("HTTP/1.1 503"));
    server
        .client()
        .detect(request(flat_png([1, 2, 3], 16)))
        .await
        .unwrap();
}
