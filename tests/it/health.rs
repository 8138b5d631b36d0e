//! What health says, from the first moment to the last.

use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;

use crate::support::{Server, fixtures};

async fn check(server: &Server, service: &str) -> Result<ServingStatus, Code> {
    let request = HealthCheckRequest {
        service: service.to_owned(),
    };
    match server.health().await.check(request).await {
        Ok(reply) => Ok(reply.into_inner().status()),
        Err(status) => Err(status.code()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_name_is_known_and_serving_once_the_models_are_warm() {
    let server = Server::start(&["echo"]).await;
    for service in [
        "",
        "detectd.v1.DetectionService",
        "detectd.v1.DetectionService/echo",
        "liveness",
    ] {
        assert_eq!(
            check(&server, service).await,
            Ok(ServingStatus::Serving),
            "{service:?}"
        );
    }
    assert_eq!(
        check(&server, "detectd.v1.DetectionService/nonsense").await,
        Err(Code::NotFound)
    );
    // A watch of a name that is not known says so, and goes on: the name may become known.
    let mut unknown = server.watch("detectd.v1.DetectionService/nonsense").await;
    assert_eq!(
        unknown.message().await.unwrap().unwrap().status(),
        ServingStatus::ServiceUnknown
    );
    assert!(server.get("/readyz").await.starts_with("HTTP/1.1 200"));
    assert!(server.get("/livez").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_thing_a_watch_sees_of_a_loading_server_is_not_serving() {
    // The slow network takes several runs of 100 ms to warm, so the watch is there first.
    let server = Server::serve(&[fixtures().join("echo-slow")], |_| {}).await;
    let mut watch = server.watch("").await;
    assert_eq!(
        watch.message().await.unwrap().unwrap().status(),
        ServingStatus::NotServing
    );
    assert_eq!(check(&server, "liveness").await, Ok(ServingStatus::Serving));
    assert!(server.get("/readyz").await.starts_with("HTTP/1.1 503"));
    server.ready().await;
    assert_eq!(
        watch.message().await.unwrap().unwrap().status(),
        ServingStatus::Serving
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_thing_a_watch_sees_of_a_draining_server_is_not_serving() {
    let mut server = Server::start(&["echo"]).await;
    let mut watches = Vec::new();
    for service in [
        "",
        "detectd.v1.DetectionService",
        "detectd.v1.DetectionService/echo",
    ] {
        let mut watch = server.watch(service).await;
        assert_eq!(
            watch.message().await.unwrap().unwrap().status(),
            ServingStatus::Serving
        );
        watches.push(watch);
    }
    server.stop();
    for mut watch in watches {
        assert_eq!(
            watch.message().await.unwrap().unwrap().status(),
            ServingStatus::NotServing
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_is_not_required_may_fail_alone() {
    let optional = tempfile::tempdir().unwrap();
    let broken = optional.path().join("broken");
    std::fs::create_dir(&broken).unwrap();
    for file in ["labels.txt", "1"] {
        std::os::unix::fs::symlink(fixtures().join("ir99").join(file), broken.join(file)).unwrap();
    }
    let card = std::fs::read_to_string(fixtures().join("ir99/model.toml")).unwrap();
    std::fs::write(
        broken.join("model.toml"),
        format!("required = false\n{card}"),
    )
    .unwrap();

    let server = Server::serve(&[fixtures().join("echo"), broken], |config| {
        config.default_model = "echo".into()
    })
    .await;
    server.ready().await;
    assert_eq!(
        check(&server, "detectd.v1.DetectionService/broken").await,
        Ok(ServingStatus::NotServing)
    );
    let models = server
        .client()
        .list_models(detectd::grpc::pb::ListModelsRequest {})
        .await
        .unwrap()
        .into_inner()
        .models;
    assert_eq!(models[0].state(), detectd::grpc::pb::ModelState::Failed);
    assert!(
        models[0].state_detail.contains("99"),
        "{}",
        models[0].state_detail
    );
    let to_broken = detectd::grpc::pb::DetectRequest {
        model: "broken".into(),
        ..crate::support::request([])
    };
    let status = server.client().detect(to_broken).await.unwrap_err();
    assert_eq!(
        crate::support::reason(&status),
        (Code::Unavailable, "MODEL_NOT_READY".into())
    );
}
