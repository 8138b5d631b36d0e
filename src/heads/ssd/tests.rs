//! Anchors: those that are computed against `tests/golden/heads/priors.json`, and those that are wrong.

use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct Golden {
    sets: Vec<GoldenSet>,
}

#[derive(Deserialize)]
struct GoldenSet {
    name: String,
    input: [u32; 2],
    anchors: String,
    count: usize,
    /// Of each number over all anchors, where anchor `i` counts `i % 97 + 1` times.
    sums: [f64; 4],
    some: Vec<(usize, f64, f64, f64, f64)>,
}

#[test]
fn computed_anchors_are_the_golden_ones() {
    let golden: Golden = serde_json::from_str(include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/golden/heads/priors.json"
    )))
    .unwrap();
    for set in golden.sets {
        let maps: PriorMaps = toml::from_str(&set.anchors).unwrap();
        let [width, height] = set.input;
        let priors = maps.priors(ImageSize { width, height }).unwrap();
        assert_eq!(priors.len(), set.count, "{}", set.name);
        for (at, x, y, w, h) in set.some {
            for (found, expected) in priors[at].into_iter().zip([x, y, w, h]) {
                let off = (f64::from(found) - expected).abs();
                assert!(off <= 1e-6, "{}, anchor {at}: {:?}", set.name, priors[at]);
            }
        }
        let weight = |at: usize| (at % 97 + 1) as f64;
        let weights: f64 = (0..priors.len()).map(weight).sum();
        for (number, expected) in set.sums.into_iter().enumerate() {
            let weighed = |(at, prior): (usize, &[f32; 4])| weight(at) * f64::from(prior[number]);
            let sum: f64 = priors.iter().enumerate().map(weighed).sum();
            assert!(
                (sum - expected).abs() <= 1e-7 * weights,
                "{}, number {number}: {sum}, expected {expected}",
                set.name
            );
        }
    }
}

#[test]
fn anchors_that_boxes_cannot_count_from_are_refused() {
    let input = ImageSize {
        width: 32,
        height: 32,
    };
    for (maps, reason) in [
        ("", "the maps give 0; from 1 to 1048576 are allowed"),
        ("{ cells = [2, 0], min_sizes = [1] }", "the maps give 0;"),
        ("{ cells = [2, 2], min_sizes = [] }", "the maps give 0;"),
        (
            "{ cells = [4294967295, 4294967295], min_sizes = [1, 2] }",
            "the maps give 18446744073709551615;",
        ),
        (
            "{ cells = [2, 2], min_sizes = [1, 2], max_sizes = [3] }",
            "a map has 2 `min_sizes` and 1 `max_sizes`",
        ),
    ] {
        let maps: PriorMaps = toml::from_str(&format!("maps = [{maps}]")).unwrap();
        let error = maps.priors(input).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
    for (anchors, reason) in [
        (vec![], "there are 0; from 1 to"),
        (vec![[0.5; 4], [0.5, f32::NAN, 0.1, 0.1]], "number 1, "),
        (vec![[0.5, 0.5, 0.0, 0.1]], "number 0, "),
        (vec![[0.5, 0.5, 0.1, -0.1]], "number 0, "),
    ] {
        let error = AnchorTable::new(anchors).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn a_card_gives_anchors_as_a_file_or_as_maps_of_positive_numbers() {
    let card = |anchors: &str| {
        let head = format!("coding = 'ssd_pytorch'\n{anchors}");
        toml::from_str::<SsdSpec<String>>(&head).map_err(|error| error.to_string())
    };
    let file = card("anchors = 'a.npy'").unwrap();
    assert_eq!(file.anchors, AnchorSpec::Table("a.npy".to_owned()));
    assert!(card("anchors = { maps = [] }").is_ok());
    for (anchors, reason) in [
        ("", "missing field `anchors`"),
        ("anchors = 3", "the name of a file with anchors, or a table"),
        ("anchors = { map = [] }", "unknown field `map`"),
        (
            "anchors = { maps = [{ cells = [1, 1], min_sizes = [0] }] }",
            "0 is not above zero",
        ),
        (
            "anchors = 'a.npy'\nvariances = [0.1, nan]",
            "not above zero",
        ),
    ] {
        let error = card(anchors).unwrap_err();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn a_network_with_another_number_of_boxes_than_anchors_is_refused() {
    let output = |name: &str, columns| TensorSignature {
        name: name.to_owned(),
        dtype: crate::tensor::DType::F32,
        shape: vec![None, Some(5), Some(columns)],
    };
    let head = "coding = 'ssd_pytorch'\nanchors = { maps = [{ cells = [2, 2], min_sizes = [9] }] }";
    let spec: SsdSpec<String> = toml::from_str(head).unwrap();
    let spec = spec.resolve(Err).unwrap();
    let input = ImageSize {
        width: 32,
        height: 32,
    };
    let error = spec.bind(input, 2, &[output("boxes", 4), output("scores", 3)]);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("is f32 [?, 5, 4]"), "{error}");
    assert!(error.ends_with("means f32 or f16 [?, 4, 4]"), "{error}");
}
