//! Every family against odd numbers and odd outputs.

use super::families::read;
use super::*;

/// Outputs by name, each with the dimensions of a row.
pub(super) type Outputs = &'static [(&'static str, &'static [usize])];

/// Cards of every family and what their networks put out for a picture of [`TINY`], with two classes.
pub(super) const TINY_FAMILIES: [(&str, Outputs); 11] = [
    ("family = 'yolox'", &[("o", &[ANCHORS, 7])]),
    ("family = 'yolox'\ndecoded = true", &[("o", &[ANCHORS, 7])]),
    ("family = 'yolov5'", &[("o", &[9, 7])]),
    ("family = 'yolov8'", &[("o", &[6, 67])]),
    (
        "family = 'yolov8'\nlayout = 'anchors_first'",
        &[("o", &[9, 6])],
    ),
    ("family = 'end_to_end'", &[("o", &[9, 6])]),
    (
        "family = 'ssd'\ncoding = 'tensorflow'\nactivation = 'softmax'\nanchors = 'a.npy'",
        &[("boxes", &[9, 4]), ("scores", &[9, 3])],
    ),
    (
        "family = 'ssd_decoded'\nbox_format = 'yxyx'\nactivation = 'sigmoid'",
        &[("boxes", &[9, 4]), ("scores", &[9, 3])],
    ),
    (
        "family = 'tf_detections'",
        &[
            ("detection_boxes", &[9, 4]),
            ("detection_classes", &[9]),
            ("detection_scores", &[9]),
            ("num_detections", &[]),
        ],
    ),
    (
        "family = 'detr_raw'",
        &[("logits", &[9, 2]), ("pred_boxes", &[9, 4])],
    ),
    (
        "family = 'detr_raw'\nactivation = 'softmax'\nbackground = 'last'\nmulti_label = true",
        &[("logits", &[9, 3]), ("pred_boxes", &[9, 4])],
    ),
];

/// These rows of a batch, and their signatures. Numbers are taken in turn.
fn tiny_batch(
    outputs: Outputs,
    rows: std::ops::Range<usize>,
    values: &[f32],
) -> (Vec<Tensor>, Vec<TensorSignature>) {
    let tensors: Vec<_> = outputs
        .iter()
        .map(|(_, row)| {
            let len = row.iter().product::<usize>();
            let numbers = values.iter().copied().cycle().skip(rows.start * len);
            let numbers: Vec<_> = numbers.take(rows.len() * len).collect();
            floats(DType::F32, &[&[rows.len()], *row].concat(), &numbers)
        })
        .collect();
    let names = outputs.iter().map(|(name, _)| *name);
    let signatures = names.zip(&tensors).map(|(n, t)| signature(n, t)).collect();
    (tensors, signatures)
}

fn listed() -> Box<dyn Head> {
    let head =
        "family = 'end_to_end'\ncolumns = ['batch', 'x0', 'y0', 'x1', 'y1', 'class', 'score']";
    let open = TensorSignature {
        name: "o".to_owned(),
        dtype: DType::F32,
        shape: vec![None, Some(7)],
    };
    read(head, &[]).bind(TINY, 2, &[open]).unwrap()
}

#[test]
fn a_batch_without_a_box_is_none_for_each_of_its_pictures() {
    let nothing = [Tensor::zeros(DType::F32, &[0, 7])];
    for index in 0..4 {
        assert_eq!(
            listed().decode(&nothing, index, 0.0),
            Ok(Decoded::default())
        );
    }
}

#[test]
fn a_row_of_no_picture_is_counted_once_in_a_batch() {
    let row = |place: f32| [place, 1.0, 1.0, 3.0, 4.0, 1.0, 0.5];
    let rows = [0.0, 1.0, 1.0, f32::NAN, -1.0, 0.5, f32::INFINITY].map(row);
    let batch = [Tensor::from_slice(&[rows.len(), 7], rows.as_flattened()).unwrap()];
    let found = |index| {
        let decoded = listed().decode(&batch, index, 0.3).unwrap();
        (decoded.boxes.len(), decoded.dropped)
    };
    // Infinity is a place beyond every batch.
    assert_eq!([found(0), found(1), found(2)], [(1, 4), (2, 0), (0, 0)]);
}

#[test]
fn columns_that_are_no_row_are_refused() {
    let columns = |list: &str| {
        let head = format!("family = 'end_to_end'\ncolumns = [{list}]");
        toml::from_str::<HeadSpec<String>>(&head).map_err(|error| error.to_string())
    };
    assert!(columns("'y0', 'x0', 'y1', 'x1', 'class', 'score'").is_ok());
    for (list, reason) in [
        (
            "'x0', 'y0', 'x1', 'y1', 'score'",
            "the columns lack `class`",
        ),
        (
            "'x0', 'y0', 'x1', 'y1', 'score', 'class', 'x0'",
            "a column stands twice",
        ),
        ("'left'", "unknown variant `left`"),
    ] {
        let error = columns(list).unwrap_err();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn a_number_of_boxes_that_is_none_is_counted_and_all_are_read() {
    let (card, outputs) = TINY_FAMILIES[8];
    let (mut tensors, signatures) = tiny_batch(outputs, 0..1, &[0.0, 0.0, 1.0, 1.0]);
    tensors[1] = floats(DType::F32, &[1, 9], &[2.0; 9]);
    tensors[2] = floats(DType::F32, &[1, 9], &[0.5; 9]);
    let head = read(card, &[]).bind(TINY, 2, &signatures).unwrap();
    for (count, found) in [
        (9.0, (9, 0)),
        (0.0, (0, 0)),
        (4.0, (4, 0)),
        (1e9, (9, 0)),
        (-1.0, (9, 1)),
        (1.5, (9, 1)),
        (f32::NAN, (9, 1)),
    ] {
        tensors[3] = floats(DType::F32, &[1], &[count]);
        let decoded = head.decode(&tensors, 0, 0.3).unwrap();
        assert_eq!((decoded.boxes.len(), decoded.dropped), found, "{count}");
    }
}

#[test]
fn two_outputs_that_disagree_on_their_number_are_an_error() {
    let (card, outputs) = TINY_FAMILIES[9];
    let (mut tensors, mut signatures) = tiny_batch(outputs, 0..1, &[0.0]);
    signatures[1].shape[1] = None;
    tensors[1] = Tensor::zeros(DType::F32, &[1, 8, 4]);
    let head = read(card, &[]).bind(TINY, 2, &signatures).unwrap();
    assert_eq!(
        head.decode(&tensors, 0, 0.5).unwrap_err().to_string(),
        "outputs disagree: 8 boxes, 9 rows of scores"
    );
}

proptest! {
    #[test]
    fn no_number_breaks_a_family_and_a_row_does_not_depend_on_its_batch(
        values in prop::collection::vec(any_float(), 211),
        threshold in 0.0f32..=1.0,
    ) {
        for (card, outputs) in TINY_FAMILIES {
            let (batch, signatures) = tiny_batch(outputs, 0..2, &values);
            let head = read(card, &[[0.5, 0.5, 0.25, 0.5]; 9]).bind(TINY, 2, &signatures).unwrap();
            for row in 0..2 {
                let decoded = head.decode(&batch, row, threshold).unwrap();
                assert_sound(&decoded, 2, threshold);
                let (alone, _) = tiny_batch(outputs, row..row + 1, &values);
                prop_assert_eq!(decoded, head.decode(&alone, 0, threshold).unwrap());
            }
        }
    }

    #[test]
    fn no_number_breaks_a_batch_in_one_list(
        values in prop::collection::vec(prop_oneof![any_float(), Just(0.0), Just(1.0)], 12 * 7),
        threshold in 0.0f32..=1.0,
    ) {
        let batch = [Tensor::from_slice(&[12, 7], &values).unwrap()];
        for index in 0..3 {
            assert_sound(&listed().decode(&batch, index, threshold).unwrap(), 2, threshold);
        }
    }
}
