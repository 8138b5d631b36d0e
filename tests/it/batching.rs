//! Batches mix callers and never their answers.

use std::collections::BTreeMap;

use detectd::grpc::pb;

use crate::support::{Client, Server, flat_png, photos, real_model, request};

async fn answer(client: &mut Client, picture: &[u8]) -> pb::DetectResponse {
    client.detect(request(picture)).await.unwrap().into_inner()
}

/// Sends each caller's picture alone, then all callers' for `rounds` rounds at once: every answer must be the
/// one that the caller got alone. Returns how often each batch size occurred.
async fn each_gets_its_own(
    server: &Server,
    pictures: Vec<Vec<u8>>,
    rounds: usize,
) -> BTreeMap<u32, usize> {
    let mut callers = Vec::new();
    for picture in pictures {
        let mut client = server.client();
        let alone = answer(&mut client, &picture).await.detections;
        callers.push((client, picture, alone));
    }
    // A network that gave everybody nothing, or the same, would pass what follows.
    let asked = callers.len();
    callers.retain(|(_, _, alone)| !alone.is_empty());
    assert!(
        callers.len() * 4 > asked * 3,
        "{} of {asked} pictures have an answer",
        callers.len()
    );
    for (_, picture, alone) in &callers {
        let alike = callers
            .iter()
            .filter(|(_, other, answer)| answer == alone && other != picture);
        assert_eq!(alike.count(), 0, "two pictures have the same answer");
    }
    let tasks: Vec<_> = callers
        .into_iter()
        .enumerate()
        .map(|(caller, (mut client, picture, alone))| {
            tokio::spawn(async move {
                let mut sizes = BTreeMap::new();
                for round in 0..rounds {
                    let together = answer(&mut client, &picture).await;
                    assert_eq!(together.detections, alone, "caller {caller}, round {round}");
                    *sizes
                        .entry(together.timings.unwrap().batch_size)
                        .or_insert(0) += 1;
                }
                sizes
            })
        })
        .collect();
    let mut sizes = BTreeMap::new();
    for task in tasks {
        for (size, count) in task.await.unwrap() {
            *sizes.entry(size).or_insert(0) += count;
        }
    }
    sizes
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_callers_each_get_their_own_answer_for_a_thousand_rounds() {
    let server = Server::start(&["echo"]).await;
    // Colours that lie far enough apart for the boxes of any two to differ.
    let pictures: Vec<Vec<u8>> = (0..64u8)
        .map(|n| flat_png([n % 4 * 80, n / 4 % 4 * 80, n / 16 * 80], 16))
        .collect();
    let sizes = each_gets_its_own(&server, pictures, 1_000).await;
    println!("pictures in batches of each size: {sizes:?}");
    assert!(sizes.len() >= 4, "batches of many sizes form: {sizes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn photos_through_a_real_detector_are_never_mixed_up() {
    let (Some(yolox), Some(photos)) = (real_model("yolox-nano"), photos()) else {
        return;
    };
    let server = Server::serve(&[yolox], |_| {}).await;
    server.ready().await;
    let callers = photos.iter().cycle().take(64).cloned().collect();
    let sizes = each_gets_its_own(&server, callers, 50).await;
    println!("pictures in batches of each size: {sizes:?}");
}

/// Sixteen callers of a model whose batch is not what its card asks for; the sizes that ran, and what is said of it.
async fn limited(model: &str) -> (BTreeMap<u32, usize>, String) {
    let server = Server::start(&[model]).await;
    let pictures = (0..16u8)
        .map(|n| flat_png([n % 4 * 80, n / 4 * 80, 0], 16))
        .collect();
    let sizes = each_gets_its_own(&server, pictures, 100).await;
    let listed = server.client().list_models(pb::ListModelsRequest {}).await;
    let detail = listed.unwrap().into_inner().models[0].state_detail.clone();
    (sizes, detail)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_only_says_that_it_takes_batches_is_run_singly_and_that_is_told() {
    let (sizes, detail) = limited("fake-dynamic").await;
    assert_eq!(sizes.keys().collect::<Vec<_>>(), [&1]);
    assert!(
        detail.contains("the network takes no batch of 2"),
        "{detail}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fixed_batch_is_filled_up_and_everybody_gets_his_own() {
    let (sizes, detail) = limited("fixed-4").await;
    assert!(sizes.keys().all(|size| *size <= 4), "{sizes:?}");
    assert!(
        detail.contains("the network's batch is fixed at 4"),
        "{detail}"
    );
}
