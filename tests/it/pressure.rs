//! Deadlines, shares and priorities, over the wire.

use std::time::Duration;

use tokio::task::JoinSet;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt;

use crate::support::{Client, Server, flat_png, reason, request, within};
use detectd::grpc::pb::DetectRequest;

fn picture() -> DetectRequest {
    request(flat_png([10, 20, 30], 16))
}

fn from(tenant: &str, message: impl tonic::IntoRequest<DetectRequest>) -> Request<DetectRequest> {
    let mut message = message.into_request();
    message
        .metadata_mut()
        .insert("x-tenant", tenant.parse().unwrap());
    message
}

/// So many pictures, one after another, so that the server knows what they take.
async fn teach(client: &mut Client, pictures: usize) {
    for _ in 0..pictures {
        client.detect(picture()).await.unwrap();
    }
}

/// Sends so many at once; answers what became of each.
async fn flood(
    client: &Client,
    count: usize,
    message: impl Fn() -> Request<DetectRequest>,
) -> Vec<Result<(), Status>> {
    let mut calls = JoinSet::new();
    for _ in 0..count {
        let (mut client, message) = (client.clone(), message());
        calls.spawn(async move { client.detect(message).await.map(drop) });
    }
    calls.join_all().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_answered_in_time_is_refused_with_when_to_come_back() {
    let server = Server::start(&["echo-slow"]).await;
    let mut client = server.client();
    teach(&mut client, 10).await;
    // Each takes some 20 ms of two instances: of 200 a tenth or two can be answered within 300 ms.
    let patience = Duration::from_millis(300);
    let outcomes = flood(&client, 200, || within(patience, picture())).await;
    let refused: Vec<Status> = outcomes
        .into_iter()
        .filter_map(Result::err)
        .filter(|status| reason(status) == (Code::ResourceExhausted, "DEADLINE_INFEASIBLE".into()))
        .collect();
    assert!(refused.len() > 100, "{}", refused.len());
    for status in refused {
        let details = status.get_error_details();
        let retry = details.retry_info().unwrap().retry_delay.unwrap();
        let pushback = status.metadata().get("grpc-retry-pushback-ms").unwrap();
        let pushback: u64 = pushback.to_str().unwrap().parse().unwrap();
        assert_eq!(u128::from(pushback), retry.as_millis());
        assert!((1..10_000).contains(&pushback), "{pushback}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flooding_source_does_not_make_another_wait_or_be_refused() {
    let server = Server::start_with(&["echo-slow"], |config| {
        config.grpc.source_header = "x-tenant".to_owned();
    })
    .await;
    let mut client = server.client();
    teach(&mut client, 10).await;
    let mut greedy = JoinSet::new();
    for _ in 0..100 {
        let mut client = server.client();
        greedy.spawn(async move { client.detect(from("greedy", picture())).await.map(drop) });
    }
    server
        .counter_reaches("detectd_requests_admitted_total", 110)
        .await;
    // The others wait for half a second or more. One that comes now is next.
    let mut waits = Vec::new();
    for _ in 0..5 {
        let reply = client.detect(from("modest", picture())).await.unwrap();
        let queue = reply.into_inner().timings.unwrap().queue.unwrap();
        waits.push(Duration::try_from(queue).unwrap());
    }
    assert!(!greedy.is_empty());
    let most = Duration::from_millis(300);
    waits.sort();
    assert!(waits[2] < most, "{waits:?}");
    greedy.shutdown().await;
}

/// Those who send one after another have nothing here between two: what they have had must be remembered all the same.
#[tokio::test(flavor = "multi_thread")]
async fn one_with_many_callers_gets_its_share_beside_many_with_one() {
    const OTHERS: usize = 24;
    const ANSWERS: usize = 500;
    let server = Server::start_with(&["echo-slow"], |config| {
        config.grpc.source_header = "x-tenant".to_owned();
    })
    .await;
    teach(&mut server.client(), 10).await;
    let mut callers = JoinSet::new();
    let (answered, mut answers) = tokio::sync::mpsc::channel(1);
    let sources = std::iter::repeat_n(0, 4).chain(1..=OTHERS);
    for source in sources {
        let (mut client, answered) = (server.client(), answered.clone());
        callers.spawn(async move {
            let tenant = format!("tenant-{source}");
            while answered.send(source).await.is_ok() {
                client.detect(from(&tenant, picture())).await.unwrap();
            }
        });
    }
    let mut counts = [0; OTHERS + 1];
    for _ in 0..ANSWERS {
        counts[answers.recv().await.unwrap()] += 1;
    }
    drop(answers);
    callers.join_all().await;
    // The first of each was no answer.
    let share = ANSWERS / counts.len();
    let alike = share / 2..=share * 2;
    assert!(
        counts.iter().all(|count| alike.contains(count)),
        "{counts:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_priority_that_there_is_not_is_told() {
    let server = Server::start(&["echo"]).await;
    let mut client = server.client();
    for (priority, expected) in [("batch", None), ("interactive", None), ("urgent", Some(()))] {
        let mut message = Request::new(picture());
        message
            .metadata_mut()
            .insert("x-detectd-priority", priority.parse().unwrap());
        let outcome = client.detect(message).await;
        assert_eq!(outcome.is_err(), expected.is_some(), "{priority}");
        if let Err(status) = outcome {
            assert_eq!(
                reason(&status),
                (Code::InvalidArgument, "INVALID_OPTION".into())
            );
        }
    }
}
