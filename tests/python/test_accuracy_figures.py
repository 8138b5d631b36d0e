"""The measure itself: a wrong box must cost something, and a right one nothing."""

import json

import pytest

import accuracy
from accuracy import Box

SQUARE = (10.0, 10.0, 110.0, 110.0)
REFERENCE = {"a.jpg": [Box("cat", 0.9, SQUARE), Box("cat", 0.3, (0, 0, 5, 5))], "b.jpg": [Box("dog", 0.5, SQUARE)]}


def agreement_of(*boxes):
    return accuracy.agreement({"a.jpg": list(boxes)}, {"a.jpg": [Box("cat", 0.9, SQUARE)]}).matched


def test_overlap():
    assert accuracy.overlap(SQUARE, SQUARE) == 1
    assert accuracy.overlap((0, 0, 2, 2), (1, 0, 3, 2)) == pytest.approx(1 / 3)
    assert accuracy.overlap((0, 0, 1, 1), (2, 2, 3, 3)) == 0
    assert accuracy.overlap((0, 0, 1, 1), (1, 0, 2, 1)) == 0


def test_the_reference_agrees_with_itself_and_low_scores_do_not_count():
    result = accuracy.agreement(REFERENCE, REFERENCE)
    assert (result.matched, result.counted, result.share) == (2, 2, 1.0)


def test_a_missing_picture_counts_as_missed():
    result = accuracy.agreement({"a.jpg": REFERENCE["a.jpg"]}, REFERENCE)
    assert (result.matched, result.counted) == (1, 2)
    assert result.missed == [("b.jpg", REFERENCE["b.jpg"][0])]


def test_nothing_counted_is_no_agreement():
    assert accuracy.agreement({}, {}).share == 0


def test_label_place_and_score_must_all_agree():
    assert agreement_of(Box("cat", 0.86, (12.0, 12.0, 110.0, 110.0))) == 1
    assert agreement_of(Box("dog", 0.9, SQUARE)) == 0
    assert agreement_of(Box("cat", 0.84, SQUARE)) == 0
    assert agreement_of(Box("cat", 0.9, (20.0, 10.0, 120.0, 110.0))) == 0


def test_one_box_serves_one_reference_box():
    twice = {"a.jpg": [Box("cat", 0.9, SQUARE), Box("cat", 0.9, SQUARE)]}
    assert accuracy.agreement({"a.jpg": [Box("cat", 0.9, SQUARE)]}, twice).matched == 1


@pytest.fixture
def truth(tmp_path):
    path = tmp_path / "truth.json"
    path.write_text(
        json.dumps(
            {
                "images": [{"id": 7, "file_name": "a.jpg", "width": 200, "height": 200}],
                "annotations": [
                    {"id": 1, "image_id": 7, "category_id": 3, "bbox": [10, 10, 100, 100], "area": 1e4, "iscrowd": 0}
                ],
                "categories": [{"id": 3, "name": "cat"}, {"id": 4, "name": "dog"}],
            }
        )
    )
    return path


def test_average_precision_of_the_truth_is_1(truth):
    assert accuracy.average_precision({"a.jpg": [Box("cat", 0.9, SQUARE)]}, truth) == pytest.approx(1)


def test_average_precision_falls_with_the_place_and_the_label(truth):
    # 0.74 overlap: right at the thresholds 0.50 to 0.70, wrong at the other five of ten
    assert accuracy.average_precision({"a.jpg": [Box("cat", 0.9, (10, 10, 84, 110))]}, truth) == pytest.approx(0.5)
    assert accuracy.average_precision({"a.jpg": [Box("dog", 0.9, SQUARE)]}, truth) == 0
    assert accuracy.average_precision({}, truth) == 0
