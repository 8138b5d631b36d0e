//! A picture in, boxes out; and every way in which a request can be wrong.

use detectd::grpc::pb;
use tonic::Code;
use tonic::codec::CompressionEncoding;
use tonic_types::StatusExt;

use crate::support::{Server, fixtures, flat_png, reason, request};

#[tokio::test(flavor = "multi_thread")]
async fn a_picture_gets_its_boxes_its_size_its_model_and_its_timings() {
    let server = Server::start(&["echo"]).await;
    let reply = server
        .client()
        .detect(request(flat_png([255, 0, 0], 32)))
        .await
        .unwrap()
        .into_inner();

    // The network's answer for red, scaled from its 16 pixels to the picture's 32.
    let first = &reply.detections[0];
    let found = first.r#box.unwrap();
    assert_eq!(
        (found.x_min, found.y_min, found.x_max, found.y_max),
        (8.0, 0.0, 16.0, 32.0)
    );
    assert_eq!((first.label.as_str(), first.class_id), ("alpha", 0));
    assert_eq!(
        reply.image_size,
        Some(pb::ImageSize {
            width: 32,
            height: 32
        })
    );
    assert_eq!(
        reply.model,
        Some(pb::ModelRef {
            name: "echo".into(),
            version: "1".into()
        })
    );
    assert_eq!(reply.total_detections, 3);
    assert_eq!(reply.effective_options.unwrap().score_threshold, Some(0.25));
    let timings = reply.timings.unwrap();
    assert_eq!(
        (timings.batch_size, timings.device.as_str(), timings.tiles),
        (1, "cpu:0", 1)
    );
    let part = |part: Option<prost_types::Duration>| i64::from(part.unwrap().nanos);
    let parts = [
        timings.queue,
        timings.preprocess,
        timings.batch_wait,
        timings.inference,
        timings.postprocess,
    ];
    assert_eq!(parts.map(part).iter().sum::<i64>(), part(timings.total));
}

#[tokio::test(flavor = "multi_thread")]
async fn options_are_obeyed_and_told() {
    let server = Server::start(&["echo"]).await;
    let mut client = server.client();
    let mut ask = async |options: pb::DetectOptions| {
        let message = pb::DetectRequest {
            options: Some(options),
            ..request(flat_png([0, 0, 0], 16))
        };
        client.detect(message).await.unwrap().into_inner()
    };
    let all = ask(pb::DetectOptions {
        score_threshold: Some(0.0),
        ..Default::default()
    })
    .await;
    assert_eq!(all.detections.len(), 4);
    let none = ask(pb::DetectOptions {
        score_threshold: Some(1.0),
        ..Default::default()
    })
    .await;
    assert_eq!((none.detections.len(), none.total_detections), (0, 0));
    let capped = ask(pb::DetectOptions {
        max_detections: Some(2),
        ..Default::default()
    })
    .await;
    assert_eq!((capped.detections.len(), capped.total_detections), (2, 3));
    // A wish beyond what a reply may hold is met with that.
    for (wish, told) in [(u32::MAX, 3000), (3000, 3000), (2999, 2999)] {
        let reply = ask(pb::DetectOptions {
            max_detections: Some(wish),
            ..Default::default()
        })
        .await;
        let effective = reply.effective_options.unwrap();
        assert_eq!(effective.max_detections, Some(told));
    }
    let labelled = ask(pb::DetectOptions {
        labels: vec!["beta".into()],
        ..Default::default()
    })
    .await;
    assert_eq!(
        labelled
            .detections
            .iter()
            .map(|found| &found.label)
            .collect::<Vec<_>>(),
        ["beta"]
    );
    // The echo network has no suppression of its own; setting the threshold turns it on.
    let agnostic = pb::DetectOptions {
        iou_threshold: Some(0.1),
        class_agnostic_nms: Some(true),
        ..Default::default()
    };
    let suppressed = ask(agnostic).await;
    assert_eq!(suppressed.detections.len(), 1);
    assert_eq!(
        suppressed.effective_options.unwrap().iou_threshold,
        Some(0.1)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cards_own_wish_for_suppression_across_classes_is_no_mistake_of_a_caller() {
    let folder = tempfile::tempdir().unwrap();
    let (echo, copy) = (fixtures().join("echo"), folder.path().join("echo"));
    std::fs::create_dir(&copy).unwrap();
    for part in ["1", "labels.txt"] {
        std::os::unix::fs::symlink(echo.join(part), copy.join(part)).unwrap();
    }
    let card = std::fs::read_to_string(echo.join("model.toml")).unwrap();
    let card = card.replace("[defaults]\n", "[defaults]\nclass_agnostic_nms = true\n");
    std::fs::write(copy.join("model.toml"), card).unwrap();
    let server = Server::serve(&[copy], |_| {}).await;
    server.ready().await;
    let reply = server
        .client()
        .detect(request(flat_png([0, 0, 0], 16)))
        .await;
    let effective = reply.unwrap().into_inner().effective_options.unwrap();
    assert_eq!(effective.class_agnostic_nms, Some(true));
    assert_eq!(effective.iou_threshold, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_pictures_say_in_metadata_what_was_found_or_passed() {
    let server = Server::start(&["echo"]).await;
    let mut client = server.client();
    let mut long = flat_png([1, 2, 3], 16);
    long[16..20].copy_from_slice(&65_536_u32.to_be_bytes());
    long[20..24].copy_from_slice(&1_u32.to_be_bytes());
    let mut large = long.clone();
    large[16..24].copy_from_slice(&[0, 0, 0xff, 0xff, 0, 0, 0xff, 0xff]);
    for (bytes, key, value) in [
        (b"P6 1 1 255 ...".to_vec(), "found", "PPM"),
        (b"/tmp/cat.jpg".to_vec(), "found", "a file's name"),
        (long, "max_side", "65535"),
        (large, "max_pixels", "50000000"),
    ] {
        let status = client.detect(request(bytes)).await.unwrap_err();
        let said = status.get_details_error_info().unwrap().metadata;
        assert_eq!(said.get(key).map(String::as_str), Some(value), "{status:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_mistake_of_a_caller_has_its_code_and_reason() {
    let server = Server::start(&["echo"]).await;
    let mut client = server.client();
    let good = || request(flat_png([1, 2, 3], 16));
    let with = |options: pb::DetectOptions| pb::DetectRequest {
        options: Some(options),
        ..good()
    };
    let png = flat_png([1, 2, 3], 16);
    let invalid = |reason: &str| (Code::InvalidArgument, reason.to_owned());
    let cases = [
        (request([]), invalid("EMPTY_IMAGE")),
        (pb::DetectRequest::default(), invalid("EMPTY_IMAGE")),
        (
            request(*b"<html>no picture</html>"),
            invalid("UNSUPPORTED_FORMAT"),
        ),
        (request(&png[..png.len() / 2]), invalid("TRUNCATED_IMAGE")),
        (
            with(pb::DetectOptions {
                score_threshold: Some(-0.1),
                ..Default::default()
            }),
            invalid("INVALID_OPTION"),
        ),
        (
            with(pb::DetectOptions {
                score_threshold: Some(f32::NAN),
                ..Default::default()
            }),
            invalid("INVALID_OPTION"),
        ),
        (
            with(pb::DetectOptions {
                iou_threshold: Some(2.0),
                ..Default::default()
            }),
            invalid("INVALID_OPTION"),
        ),
        (
            with(pb::DetectOptions {
                max_detections: Some(0),
                ..Default::default()
            }),
            invalid("INVALID_OPTION"),
        ),
        (
            // The echo network has no suppression of its own.
            with(pb::DetectOptions {
                class_agnostic_nms: Some(true),
                ..Default::default()
            }),
            invalid("INVALID_OPTION"),
        ),
        (
            with(pb::DetectOptions {
                labels: vec!["nonsense".into()],
                ..Default::default()
            }),
            invalid("INVALID_OPTION"),
        ),
        (
            pb::DetectRequest {
                model_version: "one".into(),
                ..good()
            },
            invalid("INVALID_OPTION"),
        ),
        (
            pb::DetectRequest {
                model: "nonsense".into(),
                ..good()
            },
            (Code::NotFound, "MODEL_NOT_FOUND".into()),
        ),
        (
            pb::DetectRequest {
                model_version: "2".into(),
                ..good()
            },
            (Code::NotFound, "MODEL_NOT_FOUND".into()),
        ),
    ];
    for (message, expected) in cases {
        let status = client.detect(message.clone()).await.unwrap_err();
        assert_eq!(reason(&status), expected, "{message:?}: {status:?}");
        // One bad request costs nobody else anything.
        client.detect(good()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_picture_above_the_limit_is_refused_with_both_numbers() {
    let server = Server::start_with(&["echo"], |config| {
        config.pipeline.decode.max_pixels = 1_000
    })
    .await;
    let status = server
        .client()
        .detect(request(flat_png([1, 2, 3], 32)))
        .await
        .unwrap_err();
    assert_eq!(
        reason(&status),
        (Code::InvalidArgument, "IMAGE_TOO_LARGE".into())
    );
    assert!(
        status.message().contains("32x32") && status.message().contains("1000"),
        "{}",
        status.message()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compressed_message_is_read_and_answered_compressed_on_request() {
    let server = Server::start(&["echo"]).await;
    let mut client = server
        .client()
        .send_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Gzip);
    let reply = client
        .detect(request(flat_png([9, 9, 9], 16)))
        .await
        .unwrap();
    assert_eq!(reply.metadata().get("grpc-encoding").unwrap(), "gzip");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_models_are_listed_with_all_that_a_client_needs() {
    let server = Server::start_with(&["echo", "echo-slow"], |config| {
        config.default_model = "echo".into()
    })
    .await;
    let models = server
        .client()
        .list_models(pb::ListModelsRequest {})
        .await
        .unwrap()
        .into_inner()
        .models;
    let names: Vec<_> = models
        .iter()
        .map(|model| model.model.as_ref().unwrap().name.as_str())
        .collect();
    assert_eq!(names, ["echo", "echo-slow"]);
    let echo = &models[0];
    assert_eq!(echo.state(), pb::ModelState::Ready);
    assert!(echo.is_default && !models[1].is_default);
    assert_eq!(
        (echo.input_width, echo.input_height, echo.max_batch_size),
        (16, 16, 8)
    );
    assert_eq!(echo.labels, ["alpha", "beta", "gamma", "delta"]);
    assert!(!echo.devices.is_empty() && echo.devices.iter().all(|device| device == "cpu:0"));
    assert_eq!(
        echo.default_options.as_ref().unwrap().max_detections,
        Some(100)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_default_a_request_has_to_name_its_model() {
    let server = Server::start(&["echo", "echo-slow"]).await;
    let status = server
        .client()
        .detect(request(flat_png([1, 2, 3], 16)))
        .await
        .unwrap_err();
    assert_eq!(reason(&status), (Code::NotFound, "MODEL_NOT_FOUND".into()));
    assert!(
        status.message().contains("echo, echo-slow"),
        "{}",
        status.message()
    );
    let named = pb::DetectRequest {
        model: "echo".into(),
        ..request(flat_png([1, 2, 3], 16))
    };
    server.client().detect(named).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_callers_own_words_come_back_no_longer_than_headers_allow() {
    let server = Server::start(&["echo"]).await;
    let mut client = server.client();
    let long = "\u{e9}".repeat(50_000);
    let good = || request(flat_png([1, 2, 3], 16));
    let labels = pb::DetectOptions {
        labels: vec![long.clone()],
        ..Default::default()
    };
    for message in [
        pb::DetectRequest {
            model: long.clone(),
            ..good()
        },
        pb::DetectRequest {
            model_version: long.clone(),
            ..good()
        },
        pb::DetectRequest {
            options: Some(labels),
            ..good()
        },
    ] {
        let status = client.detect(message).await.unwrap_err();
        assert!(
            ["MODEL_NOT_FOUND", "INVALID_OPTION"].contains(&reason(&status).1.as_str()),
            "{status:?}"
        );
        // grpc's own clients take 8 KiB of headers; a character here is six bytes of them.
        assert!(
            status.message().len() + status.details().len() < 4_000,
            "{}",
            status.message().len()
        );
    }
    let repeated = pb::DetectOptions {
        labels: vec!["beta".into(); 10_000],
        ..Default::default()
    };
    let reply = client
        .detect(pb::DetectRequest {
            options: Some(repeated),
            ..good()
        })
        .await
        .unwrap();
    assert_eq!(
        reply.into_inner().effective_options.unwrap().labels,
        ["beta"]
    );
}
