//! Pictures that are looked at in tiles: one answer of many runs, whatever becomes of them.

use std::time::Duration;

use detectd::device::synthetic::{Fault, Synthetic, SyntheticNetwork, Target};
use detectd::grpc::pb;
use image::{ExtendedColorType, ImageEncoder};
use tonic::Code;

use crate::support::{PATIENCE, Server, flat_png, reason, request, within};

const MS: Duration = Duration::from_millis(1);

/// The side of the network's input.
const SIDE: u32 = 16;

/// An instance that runs up to 16 pictures at a time.
const BATCHES: &str = "max_batch_size = 16\n[[instances]]\ndevice = \"cpu\"\ncount = 1\n";

/// An instance that runs one picture at a time, so that one may be ready besides.
const SINGLES: &str = "max_batch_size = 1\n[[instances]]\ndevice = \"cpu\"\ncount = 1\n";

/// Engines that take so long for a run, of however many pictures.
fn engines(takes: Duration) -> Synthetic {
    let latency = vec![(1, takes), (16, takes)];
    Synthetic::new(SyntheticNetwork::detr(SIDE as usize, latency))
}

/// A PNG of `columns` by `rows` fields of 16 pixels a side, each of the red that `red` says.
fn fields(columns: u32, rows: u32, red: impl Fn(u32, u32) -> u8) -> Vec<u8> {
    let (width, height) = (columns * SIDE, rows * SIDE);
    let pixels: Vec<u8> = (0..height)
        .flat_map(|y| (0..width).map(move |x| (x / SIDE, y / SIDE)))
        .flat_map(|(column, row)| [red(column, row), 0, 0])
        .collect();
    let mut png = Vec::new();
    image::codecs::png::PngEncoder::new(&mut png)
        .write_image(&pixels, width, height, ExtendedColorType::Rgb8)
        .unwrap();
    png
}

fn tiled(encoded: Vec<u8>, tile_size: u32, overlap: f32) -> pb::DetectRequest {
    let overlap = Some(overlap);
    with_tiling(encoded, pb::Tiling { tile_size, overlap })
}

fn with_tiling(encoded: Vec<u8>, tiling: pb::Tiling) -> pb::DetectRequest {
    pb::DetectRequest {
        options: Some(pb::DetectOptions {
            tiling: Some(tiling),
            ..Default::default()
        }),
        ..request(encoded)
    }
}

/// Where the network sees something in a field of this red: a square at its upper left corner.
fn seen(red: u8) -> f32 {
    SIDE as f32 * (1.0 + 9.0 * f32::from(red) / 255.0) / 10.0
}

fn corners(found: &pb::Detection) -> [f32; 4] {
    let found = found.r#box.unwrap();
    [found.x_min, found.y_min, found.x_max, found.y_max]
}

fn sum(timings: &pb::Timings) -> Duration {
    let parts = [
        timings.queue,
        timings.preprocess,
        timings.batch_wait,
        timings.inference,
        timings.postprocess,
    ];
    parts
        .into_iter()
        .map(|part| Duration::try_from(part.unwrap()).unwrap())
        .sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_tile_is_seen_and_its_box_is_mapped_back() {
    let server = Server::start_synthetic(&[("thing", BATCHES)], &engines(MS), |_| {}).await;
    let red = |column, row| (40 * (column + 3 * row)) as u8;
    let reply = server
        .client()
        .detect(tiled(fields(3, 2, red), 0, 0.0))
        .await
        .unwrap()
        .into_inner();
    // The view of all of it is stretched to the input: its square is 3 by 2.
    let all = seen(0);
    let mut expected = vec![[0.0, 0.0, 3.0 * all, 2.0 * all]];
    for row in 0..2u32 {
        for column in 0..3u32 {
            let (left, top) = ((SIDE * column) as f32, (SIDE * row) as f32);
            let side = seen(red(column, row));
            expected.push([left, top, left + side, top + side]);
        }
    }
    assert_eq!(reply.total_detections, 7);
    assert_eq!(reply.detections.len(), 7);
    for wanted in expected {
        let is_it = |found: &pb::Detection| {
            let pairs = corners(found).into_iter().zip(wanted);
            pairs.into_iter().all(|(a, b)| (a - b).abs() < 0.01)
        };
        assert!(
            reply.detections.iter().any(is_it),
            "{wanted:?} in {:?}",
            reply.detections
        );
    }
    let timings = reply.timings.unwrap();
    assert_eq!(timings.tiles, 7);
    let total = Duration::try_from(timings.total.unwrap()).unwrap();
    assert_eq!(sum(&timings), total);
    let told = reply.effective_options.unwrap();
    let tiling = told.tiling.unwrap();
    assert_eq!((tiling.tile_size, tiling.overlap), (16, Some(0.0)));
    // The model has no suppression of its own, and tiles do not turn it on.
    assert_eq!(told.iou_threshold, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_picture_that_one_tile_holds_is_answered_as_without_tiling() {
    let server = Server::start(&["echo"]).await;
    let mut client = server.client();
    let picture = flat_png([255, 0, 0], 16);
    let plain = client.detect(request(picture.clone())).await.unwrap();
    let plain = plain.into_inner();
    // Unset: as large as the input, with the usual overlap.
    let small = client
        .detect(with_tiling(picture, pb::Tiling::default()))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(small.timings.unwrap().tiles, 1);
    assert_eq!(small.detections, plain.detections);
    let tiling = small.effective_options.unwrap().tiling.unwrap();
    assert_eq!((tiling.tile_size, tiling.overlap), (16, Some(0.2)));
    assert_eq!(plain.effective_options.unwrap().tiling, None);
    let large = client
        .detect(tiled(flat_png([255, 0, 0], 64), 48, 0.5))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(large.timings.unwrap().tiles, 1 + 4);
    let tiling = large.effective_options.unwrap().tiling.unwrap();
    assert_eq!((tiling.tile_size, tiling.overlap), (48, Some(0.5)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_region_is_what_is_cut() {
    let server = Server::start_synthetic(&[("thing", BATCHES)], &engines(MS), |_| {}).await;
    let mut message = tiled(fields(8, 8, |_, _| 100), 0, 0.0);
    let region = pb::BoundingBox {
        x_min: 32.5,
        y_min: 16.0,
        x_max: 200.0,
        y_max: 31.5,
    };
    message.options.as_mut().unwrap().region = Some(region);
    let reply = server.client().detect(message).await.unwrap().into_inner();
    assert_eq!(reply.timings.unwrap().tiles, 1 + 6);
    let told = reply.effective_options.unwrap().region.unwrap();
    assert_eq!((told.x_min, told.x_max), (32.5, 128.0));
    let side = seen(100);
    let tiles = reply.detections.iter().map(corners);
    let rights: Vec<f32> = tiles
        .map(|[x_min, y_min, x_max, y_max]| {
            assert!(x_min >= 32.5 && y_min >= 16.0 && x_max <= 128.0 && y_max <= 31.5);
            x_max
        })
        .collect();
    // What begins further left, but at the region's edge, is a piece of what the view of all of it shows.
    for column in 5..8u8 {
        let right = f32::from(column) * 16.0 + side;
        let found = rights.iter().any(|found| (found - right).abs() < 0.01);
        assert!(found, "{right} in {rights:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_pictures_tiles_fill_batches() {
    let server = Server::start_synthetic(&[("thing", BATCHES)], &engines(100 * MS), |_| {}).await;
    let mut client = server.client();
    let before = server.counter("detectd_executions_total").await;
    let reply = client
        .detect(tiled(fields(8, 6, |_, _| 9), 0, 0.0))
        .await
        .unwrap()
        .into_inner();
    let timings = reply.timings.unwrap();
    assert_eq!(timings.tiles, 49);
    // While the first of them runs the next sixteen are prepared.
    assert_eq!(timings.batch_size, 16);
    let runs = server.counter("detectd_executions_total").await - before;
    assert!(runs <= 6, "{runs} runs of 49 tiles");
    assert_eq!(server.counter("detectd_requests_admitted_total").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn more_tiles_than_the_shelf_has_slots_are_all_seen_however_many_pictures_come() {
    let engines = engines(Duration::ZERO);
    let server = Server::start_synthetic(&[("thing", SINGLES)], &engines, |config| {
        config.pipeline.cpu.workers = 2;
    })
    .await;
    let calls: Vec<_> = (0..6u8)
        .map(|red| {
            let mut client = server.client();
            tokio::spawn(async move {
                let picture = fields(10, 10, |_, _| 10 * red);
                let mut message = tiled(picture, 0, 0.5);
                message.options.as_mut().unwrap().max_detections = Some(1_000);
                let reply = client.detect(message).await.unwrap();
                (red, reply.into_inner())
            })
        })
        .collect();
    for call in calls {
        let (red, reply) = tokio::time::timeout(PATIENCE, call).await.unwrap().unwrap();
        assert_eq!(reply.timings.unwrap().tiles, 1 + 19 * 19);
        // Each its own: the right edge of the last box tells the picture's red.
        let rightmost = reply.detections.iter().map(|found| corners(found)[2]);
        let rightmost = rightmost.fold(0.0, f32::max);
        assert!((rightmost - (144.0 + seen(10 * red))).abs() < 0.01);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_who_leaves_takes_all_tiles_along() {
    let server = Server::start_synthetic(&[("thing", SINGLES)], &engines(20 * MS), |_| {}).await;
    let mut client = server.client();
    let before = server.counter("detectd_pictures_total").await;
    let call = tokio::spawn({
        let mut client = server.client();
        async move { client.detect(tiled(fields(30, 30, |_, _| 9), 0, 0.0)).await }
    });
    server
        .counter_reaches("detectd_pictures_total", before + 3)
        .await;
    call.abort();
    server
        .counter_reaches("detectd_requests_let_go_total", 1)
        .await;
    client
        .detect(request(flat_png([1, 2, 3], 16)))
        .await
        .unwrap();
    let ran = server.counter("detectd_pictures_total").await - before;
    assert!(ran < 450, "{ran} of 901 tiles ran for nobody");
    // It was one call, whatever it was cut into.
    assert_eq!(server.counter("detectd_requests_let_go_total").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_ends_all_tiles() {
    let server = Server::start_synthetic(&[("thing", SINGLES)], &engines(20 * MS), |_| {}).await;
    let mut client = server.client();
    let before = server.counter("detectd_pictures_total").await;
    // Eighteen seconds of tiles, which nobody knows at a cold start.
    let message = tiled(fields(30, 30, |_, _| 9), 0, 0.0);
    let status = client.detect(within(1_000 * MS, message)).await;
    assert_eq!(
        reason(&status.unwrap_err()),
        (Code::DeadlineExceeded, "DEADLINE_EXCEEDED".into())
    );
    client
        .detect(request(flat_png([1, 2, 3], 16)))
        .await
        .unwrap();
    let ran = server.counter("detectd_pictures_total").await - before;
    assert!(ran < 450, "{ran} of 901 tiles ran");
    assert_eq!(server.counter("detectd_requests_let_go_total").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn tiles_that_cannot_run_in_time_are_refused_at_the_door() {
    let server = Server::start_synthetic(&[("thing", SINGLES)], &engines(20 * MS), |_| {}).await;
    let mut client = server.client();
    for _ in 0..10 {
        let small = tiled(fields(2, 2, |_, _| 9), 0, 0.0);
        client.detect(small).await.unwrap();
    }
    // Known from the header: eighteen seconds of tiles.
    let message = tiled(fields(30, 30, |_, _| 9), 0, 0.0);
    let status = client.detect(within(2_000 * MS, message)).await;
    assert_eq!(
        reason(&status.unwrap_err()),
        (Code::ResourceExhausted, "DEADLINE_INFEASIBLE".into())
    );
    // Which says nothing of a picture that is not cut.
    let small = request(flat_png([1, 2, 3], 16));
    client.detect(within(2_000 * MS, small)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_tile_that_fails_fails_its_picture_and_nothing_else() {
    let engines = engines(2 * MS);
    let server = Server::start_synthetic(&[("thing", BATCHES)], &engines, |_| {}).await;
    engines.faults().set(Target::All, Fault::Poison(1.0));
    let poisoned = |column, row| if (column, row) == (5, 3) { 255 } else { 20 };
    let calls: Vec<_> = (0..6u8)
        .map(|n| {
            let mut client = server.client();
            tokio::spawn(async move {
                let picture = match n {
                    3 => fields(6, 4, poisoned),
                    _ => fields(6, 4, |_, _| 20),
                };
                (n, client.detect(tiled(picture, 0, 0.0)).await)
            })
        })
        .collect();
    for call in calls {
        match call.await.unwrap() {
            (3, outcome) => {
                let status = outcome.unwrap_err();
                assert_eq!(reason(&status), (Code::Internal, "INTERNAL".into()));
            }
            (_, outcome) => assert_eq!(outcome.unwrap().into_inner().timings.unwrap().tiles, 25),
        }
    }
    assert_eq!(server.counter("detectd_panics_total").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn tiles_that_an_instance_is_lost_with_run_elsewhere() {
    let engines = engines(2 * MS);
    let card = "max_batch_size = 4\n[[instances]]\ndevice = \"cpu\"\ncount = 2\n";
    let server = Server::start_synthetic(&[("thing", card)], &engines, |_| {}).await;
    engines.faults().set(Target::Engine(0), Fault::DeviceLost);
    let message = tiled(fields(8, 8, |_, _| 9), 0, 0.0);
    let reply = server.client().detect(message).await.unwrap();
    assert_eq!(reply.into_inner().timings.unwrap().tiles, 65);
    server
        .counter_reaches("detectd_instances_lost_total", 1)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tiles_that_cannot_be_are_refused_with_what_would_do() {
    let server = Server::start(&["echo"]).await;
    let mut client = server.client();
    let mut refuse = async |tile_size, overlap| {
        let message = tiled(flat_png([1, 2, 3], 512), tile_size, overlap);
        let status = client.detect(message).await.unwrap_err();
        assert_eq!(
            reason(&status),
            (Code::InvalidArgument, "INVALID_OPTION".into())
        );
        status.message().to_owned()
    };
    let many = refuse(10, 0.2).await;
    assert!(many.starts_with("tiling.tile_size"), "{many}");
    assert!(many.contains("1024") && many.contains("512x512"), "{many}");
    let would_do: u32 = many
        .split("tiles of ")
        .last()
        .and_then(|rest| rest.split(' ').next())
        .and_then(|side| side.parse().ok())
        .unwrap();
    for overlap in [-0.5, 0.95, f32::NAN] {
        let wrong = refuse(64, overlap).await;
        assert!(wrong.starts_with("tiling.overlap"), "{wrong}");
    }
    let message = tiled(flat_png([1, 2, 3], 512), would_do, 0.2);
    let reply = client.detect(message).await.unwrap().into_inner();
    assert!(reply.timings.unwrap().tiles > 900);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_asks_for_tiles_and_says_how_many_there_were() {
    let server = Server::start_synthetic(&[("thing", BATCHES)], &engines(MS), |_| {}).await;
    let folder = tempfile::tempdir().unwrap();
    let photo = folder.path().join("fields.png");
    std::fs::write(&photo, fields(3, 2, |_, _| 9)).unwrap();
    let run = |options: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_detectd"));
        let addr = server.tcp().to_string();
        command.args(["detect", "--addr", &addr]).args(options);
        command.arg(&photo);
        async move {
            let output = tokio::task::spawn_blocking(move || command.output().unwrap());
            let output = output.await.unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        }
    };
    let text = run(&["--tile-size", "16", "--tile-overlap", "0"]).await;
    assert!(
        text.contains("7 objects") && text.contains("7 tiles"),
        "{text}"
    );
    // With the usual overlap a tile more in each direction.
    let json = run(&["--tile-size", "0", "--json"]).await;
    assert!(json.contains("\"tiles\":13"), "{json}");
    assert!(!run(&[]).await.contains("tiles"));
}
