//! Every family against `tests/golden/heads/`, each from its card, from floats and from halves.

use super::*;

#[derive(Deserialize)]
struct Family {
    input: [u32; 2],
    classes: usize,
    heads: Vec<String>,
    #[serde(default)]
    anchors: Vec<[f32; 4]>,
    #[serde(default)]
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

/// The head of a card; a file of anchors that it names holds `anchors`.
pub(super) fn read(head: &str, anchors: &[[f32; 4]]) -> HeadSpec {
    let spec: HeadSpec<String> = toml::from_str(head).unwrap_or_else(|e| panic!("{head}: {e}"));
    spec.resolve(|_| AnchorTable::new(anchors.to_vec()))
        .unwrap()
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
        let head = read(&family.heads[*head], &family.anchors)
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
fn ssd_gives_the_golden_boxes_in_either_coding() {
    assert_golden(&family!("ssd"));
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

/// Numbers in [-0.5, 0.5), the same as the generator's.
fn noise(count: usize, salt: u32) -> impl Iterator<Item = f64> {
    (0..count as u32).map(move |at| {
        let mut x = at.wrapping_mul(2_654_435_761).wrapping_add(salt);
        x ^= x >> 15;
        x = x.wrapping_mul(2_246_822_519);
        x ^= x >> 13;
        f64::from(x) / 4_294_967_296.0 - 0.5
    })
}

#[test]
fn ultraface_is_an_ssd_with_priors_of_its_own() {
    const COUNT: usize = 4420;
    let mut family = family!("ultraface");
    let face = noise(COUNT, 2).map(|noise| (noise + 0.5).powi(16) as f32);
    family.outputs = vec![
        GoldenOutput {
            name: "boxes".to_owned(),
            shape: vec![1, COUNT, 4],
            values: noise(4 * COUNT, 1).map(|n| (n * 6.0) as f32).collect(),
        },
        GoldenOutput {
            name: "scores".to_owned(),
            shape: vec![1, COUNT, 2],
            values: face.flat_map(|face| [1.0 - face, face]).collect(),
        },
    ];
    assert!(!family.cases[0].case.boxes.is_empty());
    // Its numbers are no halves.
    assert_golden_as(&family, DType::F32);
}

#[test]
fn every_family_has_an_example_in_the_documents_that_is_a_card() {
    #[derive(Deserialize)]
    struct Example {
        head: HeadSpec<String>,
    }
    let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/MODELS.md"));
    let blocks = text.split("```toml\n").skip(1);
    let examples: Vec<_> = blocks
        .map(|block| block.split("```").next().unwrap())
        .filter(|block| block.starts_with("[head]"))
        .map(|block| toml::from_str::<Example>(block).unwrap_or_else(|e| panic!("{block}: {e}")))
        .map(|example| std::mem::discriminant(&example.head))
        .collect();
    let known = super::odd::TINY_FAMILIES.map(|(card, _)| card);
    for card in known.into_iter().chain(["family = 'detr'"]) {
        let head: HeadSpec<String> = toml::from_str(card).unwrap();
        assert!(examples.contains(&std::mem::discriminant(&head)), "{card}");
    }
}
