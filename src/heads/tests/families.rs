//! Every family against `tests/golden/heads/`, each from its card, from floats and from halves.

use super::*;

#[derive(Deserialize)]
struct Family {
    input: [u32; 2],
    classes: usize,
    heads: Vec<String>,
    outputs: Vec<GoldenOutput>,
    cases: Vec<FamilyCase>,
}

#[derive(Deserialize)]
struct GoldenOutput {
    name: String,
    shape: Vec<usize>,
    values: Vec<f32>,
}

#[derive(Deserialize)]
struct FamilyCase {
    head: usize,
    /// Where it is not the family's.
    classes: Option<usize>,
    #[serde(flatten)]
    case: Case,
}

/// The head of a card.
pub(super) fn read(head: &str) -> HeadSpec {
    toml::from_str(head).unwrap_or_else(|e| panic!("{head}: {e}"))
}

macro_rules! family {
    ($name:literal) => {
        serde_json::from_str::<Family>(include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/golden/heads/",
            $name,
            ".json"
        )))
        .unwrap()
    };
}

fn assert_golden(family: &Family) {
    for dtype in [DType::F32, DType::F16] {
        assert_golden_as(family, dtype);
    }
}

fn assert_golden_as(family: &Family, dtype: DType) {
    let [width, height] = family.input;
    let tensor = |output: &GoldenOutput| floats(dtype, &output.shape, &output.values);
    let outputs: Vec<_> = family.outputs.iter().map(tensor).collect();
    let names = family.outputs.iter().map(|output| output.name.as_str());
    let signatures: Vec<_> = names
        .zip(&outputs)
        .map(|(name, tensor)| signature(name, tensor))
        .collect();
    for FamilyCase {
        head,
        classes,
        case,
    } in &family.cases
    {
        let head = read(&family.heads[*head])
            .bind(
                ImageSize { width, height },
                classes.unwrap_or(family.classes),
                &signatures,
            )
            .unwrap();
        let found = head.decode(&outputs, case.index, case.threshold).unwrap();
        assert_found(case, found);
    }
}

#[test]
fn yolox_that_is_decoded_gives_the_golden_boxes() {
    assert_golden(&family!("yolox_decoded"));
}

#[test]
fn yolov5_gives_the_golden_boxes() {
    assert_golden(&family!("yolov5"));
}

#[test]
fn yolov8_gives_the_golden_boxes_in_either_layout() {
    assert_golden(&family!("yolov8"));
}

#[test]
fn end_to_end_gives_the_golden_boxes_in_rows_of_pictures_and_of_the_batch() {
    assert_golden(&family!("end_to_end"));
}

#[test]
fn ssd_that_is_decoded_gives_the_golden_boxes_in_every_format() {
    assert_golden(&family!("ssd_decoded"));
}

#[test]
fn tf_detections_gives_the_golden_boxes_and_no_more_than_their_number() {
    assert_golden(&family!("tf_detections"));
}

#[test]
fn detr_raw_gives_the_golden_boxes_under_sigmoid_and_softmax() {
    assert_golden(&family!("detr_raw"));
}
