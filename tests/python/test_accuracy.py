"""Real networks on real photos, over the wire: the boxes are those of an independent pipeline, and they are good."""

from typing import NamedTuple

import pytest

import accuracy
from paths import MODELS, SHARED

PHOTOS = SHARED / "images" / "coco_val_ccby27"
TRUTH = SHARED / "images" / "coco_val_ccby27.json"
REFERENCE = SHARED / "models" / "reference_detections.json"

pytestmark = pytest.mark.skipif(not PHOTOS.is_dir(), reason="accuracy on photos (../shared is absent)")


class Expected(NamedTuple):
    reference: str  # its name in the reference
    options: dict  # what the reference was made with and a request has to say
    average_precision: float  # at least


# Setting iou_threshold turns suppression on, and DEIMv2 has none.
EXPECTED = {
    "yolox-nano": Expected("yolox_nano_416", {"iou_threshold": 0.65}, 0.35),
    "deimv2-femto": Expected("deimv2_femto_416", {}, 0.39),
}
# Resize kernels differ a little from library to library, hence not all.
AGREEMENT = 0.97


def detect_all(server, model: str, **options) -> dict[str, list[accuracy.Box]]:
    """Sends every photo to `model` and returns the boxes by file name."""
    photos = sorted(PHOTOS.glob("*.jpg"))
    assert photos, f"{PHOTOS} is empty"
    return {
        photo.name: accuracy.boxes_of(server.detect(photo.read_bytes(), model, **options)) for photo in photos
    }


@pytest.fixture(scope="module", params=EXPECTED)
def served(request, start_server):
    """(a server with that network alone, its name)"""
    name = request.param
    assert any((MODELS / name).glob("[0-9]*/*.onnx")), f"models/{name} has no network: run make models"
    with start_server([name], source=MODELS, arguments=["--default-model", name]) as running:
        yield running, name


def test_boxes_agree_with_the_reference(served, figure):
    server, name = served
    expected = EXPECTED[name]
    found = detect_all(server, name, score_threshold=0.25, max_detections=100, **expected.options)
    result = accuracy.agreement(found, accuracy.reference_boxes(REFERENCE, expected.reference))
    figure(
        f"{name}: {result.matched} of {result.counted} reference boxes matched ({result.share:.1%}, at least {AGREEMENT:.0%})"
    )
    assert result.share >= AGREEMENT, result.missed


def test_average_precision(served, figure):
    server, name = served
    expected = EXPECTED[name]
    found = detect_all(server, name, score_threshold=0.01, max_detections=100, **expected.options)
    precision = accuracy.average_precision(found, TRUTH)
    figure(f"{name}: AP {precision:.3f} on {len(found)} photos (at least {expected.average_precision:.2f})")
    assert precision >= expected.average_precision
