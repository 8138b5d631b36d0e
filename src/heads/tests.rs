//! Heads against the golden vectors of `tests/golden/make_heads.py`, and against odd numbers.

mod families;
mod odd;

use half::f16;
use proptest::prelude::*;
use serde::Deserialize;

use super::*;
use crate::tensor::{DType, TensorSignature};
use crate::vision::{ClassId, ImageSize};

#[derive(Deserialize)]
struct Golden {
    yolox: GoldenYolox,
    detr: GoldenDetr,
}

#[derive(Deserialize)]
struct GoldenYolox {
    size: [u32; 2],
    classes: usize,
    shape: [usize; 3],
    output: Vec<f32>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct GoldenDetr {
    classes: usize,
    batch: usize,
    queries: usize,
    labels: Vec<i64>,
    boxes: Vec<f32>,
    scores: Vec<f32>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    index: usize,
    threshold: f32,
    #[serde(default)]
    multi_label: bool,
    boxes: Vec<(u32, f32, f32, f32, f32, f32)>,
}

fn golden() -> Golden {
    let text = include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/golden/heads.json"
    ));
    serde_json::from_str(text).unwrap()
}

fn signature(name: &str, tensor: &Tensor) -> TensorSignature {
    let mut shape: Vec<_> = tensor.shape().iter().copied().map(Some).collect();
    shape[0] = None;
    TensorSignature {
        name: name.to_owned(),
        dtype: tensor.dtype(),
        shape,
    }
}

fn floats(dtype: DType, shape: &[usize], values: &[f32]) -> Tensor {
    if dtype == DType::F16 {
        let halves: Vec<_> = values.iter().map(|&value| f16::from_f32(value)).collect();
        return Tensor::from_slice(shape, &halves).unwrap();
    }
    Tensor::from_slice(shape, values).unwrap()
}

fn yolox(multi_label: bool) -> HeadSpec {
    HeadSpec::Yolox(YoloxSpec {
        multi_label,
        ..YoloxSpec::default()
    })
}

fn detr() -> HeadSpec {
    HeadSpec::Detr(DetrSpec::default())
}

#[track_caller]
fn assert_found(case: &Case, decoded: Decoded) {
    assert_eq!(decoded.dropped, 0);
    let mut found: Vec<_> = decoded
        .boxes
        .into_iter()
        .map(|ScoredBox { bbox, score, class }| {
            let BoundingBox {
                x_min,
                y_min,
                x_max,
                y_max,
            } = bbox;
            (class.0, score, x_min, y_min, x_max, y_max)
        })
        .collect();
    found.sort_by(|a, b| a.partial_cmp(b).unwrap());
    assert_eq!(found.len(), case.boxes.len(), "at {}", case.threshold);
    let mut expected = case.boxes.clone();
    for found in found {
        // Scores that float32 cannot tell apart may stand in another order.
        let twin = expected.iter().position(|expected| {
            let near = |a: f32, b: f32, tolerance: f32| (a - b).abs() <= tolerance;
            found.0 == expected.0
                && near(found.1, expected.1, 1e-6)
                && near(found.2, expected.2, 1e-3)
                && near(found.3, expected.3, 1e-3)
                && near(found.4, expected.4, 1e-3)
                && near(found.5, expected.5, 1e-3)
        });
        expected.swap_remove(twin.unwrap_or_else(|| panic!("{found:?} is not expected")));
    }
}

#[test]
fn yolox_gives_the_golden_boxes_from_floats_and_halves() {
    let golden = golden().yolox;
    let [width, height] = golden.size;
    for dtype in [DType::F32, DType::F16] {
        let output = [floats(dtype, &golden.shape, &golden.output)];
        for case in &golden.cases {
            let head = yolox(case.multi_label)
                .bind(
                    ImageSize { width, height },
                    golden.classes,
                    &[signature("output", &output[0])],
                )
                .unwrap();
            assert_found(
                case,
                head.decode(&output, case.index, case.threshold).unwrap(),
            );
        }
    }
}

#[test]
fn detr_gives_the_golden_boxes_whatever_the_order_of_its_outputs() {
    let golden = golden().detr;
    let rows = [golden.batch, golden.queries];
    let corners = [golden.batch, golden.queries, 4];
    let short: Vec<_> = golden.labels.iter().map(|&label| label as i32).collect();
    for dtype in [DType::F32, DType::F16] {
        let labels = match dtype {
            DType::F16 => Tensor::from_slice(&rows, &short),
            _ => Tensor::from_slice(&rows, &golden.labels),
        };
        let outputs = [
            floats(dtype, &rows, &golden.scores),
            labels.unwrap(),
            floats(dtype, &corners, &golden.boxes),
        ];
        let signatures: Vec<_> = ["scores", "labels", "boxes"]
            .iter()
            .zip(&outputs)
            .map(|(name, tensor)| signature(name, tensor))
            .collect();
        let input = ImageSize {
            width: 64,
            height: 64,
        };
        let head = detr().bind(input, golden.classes, &signatures).unwrap();
        for case in &golden.cases {
            assert_found(
                case,
                head.decode(&outputs, case.index, case.threshold).unwrap(),
            );
        }
    }
}

const TINY: ImageSize = ImageSize {
    width: 32,
    height: 32,
};
/// Cells of [`TINY`] at strides 8, 16 and 32.
const ANCHORS: usize = 16 + 4 + 1;

fn tiny_yolox(multi_label: bool, classes: usize) -> Box<dyn Head> {
    let output = Tensor::zeros(DType::F32, &[1, ANCHORS, 5 + classes]);
    yolox(multi_label)
        .bind(TINY, classes, &[signature("output", &output)])
        .unwrap()
}

/// The output of a network that sees one object of class 0, score 0.5, in its first cell.
fn one_object() -> Vec<f32> {
    let mut values = vec![0.0; ANCHORS * 7];
    values[4..7].copy_from_slice(&[1.0, 0.5, 0.25]);
    values
}

fn decode_tiny(multi_label: bool, values: &[f32], threshold: f32) -> Decoded {
    let output = [Tensor::from_slice(&[1, ANCHORS, 7], values).unwrap()];
    tiny_yolox(multi_label, 2)
        .decode(&output, 0, threshold)
        .unwrap()
}

#[test]
fn a_cell_gives_its_best_class_or_all_that_reach_the_threshold() {
    let classes = |decoded: Decoded| -> Vec<_> {
        let boxes = decoded.boxes.iter();
        boxes.map(|found| (found.class.0, found.score)).collect()
    };
    let values = one_object();
    assert_eq!(classes(decode_tiny(false, &values, 0.2)), [(0, 0.5)]);
    assert_eq!(
        classes(decode_tiny(true, &values, 0.2)),
        [(0, 0.5), (1, 0.25)]
    );
    assert_eq!(classes(decode_tiny(true, &values, 0.3)), [(0, 0.5)]);
    assert_eq!(classes(decode_tiny(true, &values, 0.5)), [(0, 0.5)]);
    assert_eq!(classes(decode_tiny(false, &values, 0.51)), []);
}

#[test]
fn an_odd_number_costs_its_own_cell_and_is_counted() {
    for (position, odd) in [
        (0, f32::NAN),
        (1, f32::INFINITY),
        (2, 1e9),
        (2, -1e9),
        (3, f32::NEG_INFINITY),
        (4, f32::NAN),
        (4, f32::INFINITY),
        (5, f32::NAN),
        (6, f32::NAN),
        (6, f32::NEG_INFINITY),
    ] {
        let mut values = one_object();
        let healthy = 20 * 7;
        values.copy_within(0..7, healthy);
        values[position] = odd;
        for multi_label in [false, true] {
            let decoded = decode_tiny(multi_label, &values, 0.3);
            let found = (decoded.boxes.len(), decoded.dropped);
            assert_eq!(found, (1, 1), "{odd} at {position}, {multi_label}");
            assert_eq!(decoded.boxes[0].bbox.x_max, 16.0);
        }
    }
}

#[test]
fn a_label_that_the_model_lacks_and_a_box_without_area_are_counted() {
    let good = [1.0, 1.0, 3.0, 4.0];
    let candidates = [
        (2, good, 0.9),
        (3, good, 0.9),
        (-1, good, 0.9),
        (i64::MIN, good, 0.9),
        (i64::from(u32::MAX) + 1, good, 0.9),
        (0, [1.0, 1.0, 1.0, 4.0], 0.9),
        (0, [3.0, 4.0, 1.0, 1.0], 0.9),
        (0, [f32::NEG_INFINITY, 0.0, 1.0, 1.0], 0.9),
        (0, good, f32::NAN),
        (0, good, f32::INFINITY),
        (-1, [f32::NAN; 4], 0.1),
    ];
    let rows = [1, candidates.len()];
    let corners: Vec<_> = candidates.iter().flat_map(|(_, bbox, _)| *bbox).collect();
    let outputs = [
        Tensor::from_slice(&rows, &candidates.map(|(label, _, _)| label)).unwrap(),
        Tensor::from_slice(&[1, candidates.len(), 4], &corners).unwrap(),
        Tensor::from_slice(&rows, &candidates.map(|(_, _, score)| score)).unwrap(),
    ];
    let names = ["labels", "boxes", "scores"];
    let signatures: Vec<_> = (names.iter().zip(&outputs))
        .map(|(name, tensor)| signature(name, tensor))
        .collect();
    let head = detr().bind(TINY, 3, &signatures).unwrap();
    let decoded = head.decode(&outputs, 0, 0.5).unwrap();
    assert_eq!(decoded.boxes.len(), 1);
    assert_eq!(decoded.boxes[0].class, ClassId(2));
    assert_eq!(decoded.dropped, 9);
}

#[test]
fn outputs_that_disagree_on_their_number_are_an_error() {
    let mut outputs = [
        Tensor::zeros(DType::I64, &[1, 3]),
        Tensor::zeros(DType::F32, &[1, 3, 4]),
        Tensor::zeros(DType::F32, &[1, 3]),
    ];
    let open = |name: &str, dtype, rank| TensorSignature {
        name: name.to_owned(),
        dtype,
        shape: vec![None; rank],
    };
    let signatures = [
        open("labels", DType::I64, 2),
        open("boxes", DType::F32, 3),
        open("scores", DType::F32, 2),
    ];
    let head = detr().bind(TINY, 3, &signatures).unwrap();
    assert_eq!(head.decode(&outputs, 0, 0.5), Ok(Decoded::default()));
    outputs[1] = Tensor::zeros(DType::F32, &[1, 2, 4]);
    assert_eq!(
        head.decode(&outputs, 0, 0.5).unwrap_err().to_string(),
        "outputs disagree: 3 labels, 2 boxes, 3 scores"
    );
    assert!(head.decode(&outputs, 1, 0.5).is_err());
}

#[test]
fn a_card_that_does_not_fit_its_network_is_refused_with_both_shapes() {
    let output = TensorSignature {
        name: "output".to_owned(),
        dtype: DType::F32,
        shape: vec![None, Some(ANCHORS), Some(7)],
    };
    let refusal = |spec: HeadSpec, input, classes| {
        let error = spec.bind(input, classes, std::slice::from_ref(&output));
        error.unwrap_err().to_string()
    };
    assert_eq!(
        refusal(yolox(false), TINY, 3),
        "output `output` is f32 [?, 21, 7], but the card (input size, labels, `[head]`) means f32 or f16 [?, 21, 8]"
    );
    let wide = ImageSize {
        width: 64,
        height: 32,
    };
    assert!(refusal(yolox(false), wide, 2).ends_with("[?, 42, 7]"));
    let odd = ImageSize {
        width: 40,
        height: 32,
    };
    assert_eq!(
        refusal(yolox(false), odd, 2),
        "an input of 40x32 is no whole number of cells of stride 16"
    );
    assert_eq!(
        refusal(detr(), TINY, 2),
        "the network has no output `labels`; it has `output` f32 [?, 21, 7]"
    );
}

/// Any float, with the odd ones and those of a working network common.
fn any_float() -> impl Strategy<Value = f32> {
    prop_oneof![
        4 => 0.0f32..1.0,
        2 => -4.0f32..4.0,
        1 => proptest::num::f32::ANY,
        1 => prop::sample::select(vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, -0.0]),
    ]
}

fn assert_sound(decoded: &Decoded, classes: u32, threshold: f32) {
    for ScoredBox { bbox, score, class } in &decoded.boxes {
        let corners = [bbox.x_min, bbox.y_min, bbox.x_max, bbox.y_max];
        assert!(corners.iter().all(|corner| corner.is_finite()), "{bbox:?}");
        assert!(bbox.x_min < bbox.x_max && bbox.y_min < bbox.y_max);
        assert!(score.is_finite() && *score >= threshold);
        assert!(class.0 < classes);
    }
}

proptest! {
    #[test]
    fn no_number_breaks_yolox_and_a_row_does_not_depend_on_its_batch(
        values in prop::collection::vec(any_float(), 2 * ANCHORS * 7),
        threshold in 0.0f32..=1.0,
        multi_label: bool,
    ) {
        let head = tiny_yolox(multi_label, 2);
        let batch = [Tensor::from_slice(&[2, ANCHORS, 7], &values).unwrap()];
        for (index, row) in values.chunks_exact(ANCHORS * 7).enumerate() {
            let alone = [Tensor::from_slice(&[1, ANCHORS, 7], row).unwrap()];
            let decoded = head.decode(&batch, index, threshold).unwrap();
            assert_sound(&decoded, 2, threshold);
            prop_assert_eq!(decoded, head.decode(&alone, 0, threshold).unwrap());
        }
    }

    #[test]
    fn no_number_breaks_detr(
        labels in prop::collection::vec(prop_oneof![0i64..4, any::<i64>()], 8),
        boxes in prop::collection::vec(any_float(), 8 * 4),
        scores in prop::collection::vec(any_float(), 8),
        threshold in 0.0f32..=1.0,
    ) {
        let outputs = [
            Tensor::from_slice(&[1, 8], &labels).unwrap(),
            Tensor::from_slice(&[1, 8, 4], &boxes).unwrap(),
            Tensor::from_slice(&[1, 8], &scores).unwrap(),
        ];
        let names = ["labels", "boxes", "scores"];
        let signatures: Vec<_> = names.iter().zip(&outputs).map(|(n, t)| signature(n, t)).collect();
        let head = detr().bind(TINY, 4, &signatures).unwrap();
        let decoded = head.decode(&outputs, 0, threshold).unwrap();
        assert_sound(&decoded, 4, threshold);
        let reaching = scores.iter().filter(|score| score.is_nan() || **score >= threshold).count();
        prop_assert_eq!(decoded.boxes.len() + decoded.dropped, reaching);
    }
}
