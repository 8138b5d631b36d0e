"""The committed test networks are what their generator makes, and echo answers what echo.py says."""

import importlib.util

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import echo
from paths import FIXTURES

_spec = importlib.util.spec_from_file_location("make_models", FIXTURES.parent / "make_models.py")
make_models = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(make_models)

MADE = make_models.files()


@pytest.mark.parametrize("path", MADE)
def test_committed_network_is_what_the_generator_makes(path):
    assert (FIXTURES / path).read_bytes() == MADE[path], "run tests/fixtures/make_models.py"


def test_every_committed_network_is_made_by_the_generator():
    committed = {str(path.relative_to(FIXTURES)) for path in FIXTURES.rglob("*.onnx")}
    assert committed == set(MADE)


@pytest.mark.parametrize("model", ["echo", "echo-slow", "ir99"])
def test_label_file_matches_the_formula(model):
    assert tuple((FIXTURES / model / "labels.txt").read_text().splitlines()) == echo.LABELS


def test_echo_follows_its_formula():
    colours = [(0, 0, 0), (255, 255, 255), (200, 100, 50), (0, 255, 0), (7, 8, 250)]
    pixels = np.array(colours, np.float32)[:, :, None, None] / 255
    pictures = np.broadcast_to(pixels, (len(colours), 3, echo.SIDE, echo.SIDE)).astype(np.float32)
    network = ReferenceEvaluator(onnx.load(FIXTURES / "echo" / "1" / "model.onnx"))
    labels, boxes, scores = network.run(None, {"images": pictures})
    assert labels.dtype == np.int64
    for row, colour in enumerate(colours):
        expected = echo.answer(colour)
        assert [echo.LABELS[index] for index in labels[row]] == [label for label, _, _ in expected]
        np.testing.assert_allclose(scores[row], [score for _, score, _ in expected], atol=1e-6)
        np.testing.assert_allclose(boxes[row], [box for _, _, box in expected], atol=1e-5)
        assert (boxes[row, :, :2] < boxes[row, :, 2:]).all() and boxes.min() >= 0 and boxes.max() <= echo.SIDE
