"""Small objects in large pictures: what tiling finds of them, against what is found without."""

import io
import random
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image, ImageFilter

import accuracy
from paths import MODELS, SHARED
from server import detect_request
from wire import TIMEOUT_S

PHOTOS = SHARED / "images" / "coco_val_ccby27"
TRUTH = SHARED / "images" / "coco_val_ccby27.json"

pytestmark = pytest.mark.skipif(not PHOTOS.is_dir(), reason="tiling on photos (../shared is absent)")

MODEL = "deimv2-femto"
SIZE = (4000, 3000)
LONGER_SIDE = (24, 40)
OBJECTS = 60
# A few hundred tiles on a machine that may be slow, and busy.
PATIENCE_S = 20 * TIMEOUT_S


class Cut(NamedTuple):
    """A way to cut the scene, and what it is good for."""

    tile_size: int  # 0 is the network's own, 416; half of that is seen at twice its size
    tiles: int
    recall: float  # at least


CUTS = [Cut(0, 1 + 12 * 9, 0.3), Cut(208, 1 + 24 * 18, 0.6)]


class Cutout(NamedTuple):
    """An object of a photo that the network is sure of at its full size."""

    label: str
    pixels: Image.Image  # with some of what is around it
    inner: tuple[float, float, float, float]  # the object's corners in `pixels`, as shares of its sides


def cutouts(server) -> list[Cutout]:
    """Returns the objects that are told surely in the photos themselves, large and alone enough to be cut out."""
    found = []
    for photo in sorted(PHOTOS.glob("*.jpg")):
        boxes = accuracy.boxes_of(server.detect(photo.read_bytes(), score_threshold=0.3))
        picture = Image.open(photo).convert("RGB")
        for box in boxes:
            x_min, y_min, x_max, y_max = box.corners
            width, height = x_max - x_min, y_max - y_min
            alone = all(other is box or accuracy.overlap(box.corners, other.corners) < 0.1 for other in boxes)
            if box.score < 0.7 or not alone or min(width, height) < 60 or max(width, height) > 3 * min(width, height):
                continue
            around = 0.15 * max(width, height)
            left, top = max(0, x_min - around), max(0, y_min - around)
            right, bottom = min(picture.width, x_max + around), min(picture.height, y_max + around)
            inner = (
                (x_min - left) / (right - left),
                (y_min - top) / (bottom - top),
                (x_max - left) / (right - left),
                (y_max - top) / (bottom - top),
            )
            found.append(Cutout(box.label, picture.crop((int(left), int(top), int(right), int(bottom))), inner))
    return found


def backgrounds() -> dict[str, Image.Image]:
    """A plain one, and a photo that was enlarged until nothing in it has an edge."""
    photo = Image.open(sorted(PHOTOS.glob("*.jpg"))[0]).convert("RGB")
    return {
        "plain": Image.new("RGB", SIZE, (118, 124, 112)),
        "photo": photo.resize((80, 60), Image.BOX).resize(SIZE, Image.BICUBIC).filter(ImageFilter.GaussianBlur(20)),
    }


def scene(background: Image.Image, objects: list[Cutout], seed: int) -> tuple[bytes, list[accuracy.Box]]:
    """Pastes small objects over a grid's cells, anywhere in them; returns the picture and where they are."""
    rng = random.Random(seed)
    picture, truth = background.copy(), []
    columns, rows = 10, OBJECTS // 10
    cell = (SIZE[0] // columns, SIZE[1] // rows)
    for n in range(OBJECTS):
        one = objects[rng.randrange(len(objects))]
        scale = rng.uniform(*LONGER_SIDE) / max(
            (one.inner[2] - one.inner[0]) * one.pixels.width, (one.inner[3] - one.inner[1]) * one.pixels.height
        )
        size = [max(1, round(side * scale)) for side in one.pixels.size]
        left = n % columns * cell[0] + rng.randrange(cell[0] - size[0])
        top = n // columns * cell[1] + rng.randrange(cell[1] - size[1])
        picture.paste(one.pixels.resize(size, Image.LANCZOS), (left, top))
        corners = np.tile((left, top), 2) + np.array(one.inner) * np.tile(size, 2)
        truth.append(accuracy.Box(one.label, 1.0, tuple(corners)))
    encoded = io.BytesIO()
    picture.save(encoded, "JPEG", quality=95)
    return encoded.getvalue(), truth


def recall(found: list[accuracy.Box], truth: list[accuracy.Box]) -> float:
    """The share of objects that have a box of their label which overlaps them by half."""

    def is_found(wanted: accuracy.Box) -> bool:
        return any(
            box.label == wanted.label and accuracy.overlap(box.corners, wanted.corners) > 0.5 for box in found
        )

    return sum(map(is_found, truth)) / len(truth)


def is_piece(box: accuracy.Box, whole: accuracy.Box) -> bool:
    """Whether `box` shows less than half of the sure object `whole`, and nothing else."""
    if box.label != whole.label or whole.score < 0.5:
        return False
    width = min(box.corners[2], whole.corners[2]) - max(box.corners[0], whole.corners[0])
    height = min(box.corners[3], whole.corners[3]) - max(box.corners[1], whole.corners[1])
    area = (box.corners[2] - box.corners[0]) * (box.corners[3] - box.corners[1])
    inside = width > 0 and height > 0 and width * height > 0.9 * area
    return inside and accuracy.overlap(box.corners, whole.corners) < 0.5


@pytest.fixture(scope="module")
def served(start_server):
    assert any((MODELS / MODEL).glob("[0-9]*/*.onnx")), f"models/{MODEL} has no network: run make models"
    with start_server([MODEL], source=MODELS, arguments=["--default-model", MODEL]) as running:
        yield running


def detect(server, encoded: bytes, **options):
    request = detect_request(encoded, score_threshold=0.25, max_detections=3000, **options)
    return server.stub.Detect(request, timeout=PATIENCE_S)


def test_tiling_finds_small_objects_in_a_large_picture(served, figure):
    objects = cutouts(served)
    assert len(objects) >= 10, f"{len(objects)} objects to paste"
    plain_one, photo = backgrounds().items()
    for seed, ((name, background), cuts) in enumerate([(plain_one, CUTS[:1]), (photo, CUTS)]):
        encoded, truth = scene(background, objects, seed)
        plain = detect(served, encoded)
        assert plain.timings.tiles == 1
        without = recall(accuracy.boxes_of(plain), truth)
        for cut in cuts:
            tiled = detect(served, encoded, tiling={"tile_size": cut.tile_size})
            timings, within = tiled.timings, recall(accuracy.boxes_of(tiled), truth)
            figure(
                f"{OBJECTS} objects of {LONGER_SIDE[0]}-{LONGER_SIDE[1]} px in {SIZE[0]}x{SIZE[1]} ({name}): recall "
                f"{within:.2f} in {timings.tiles} tiles, {without:.2f} without; {timings.total.ToMilliseconds()} ms, "
                f"up to {timings.batch_size} tiles in a batch"
            )
            assert timings.tiles == cut.tiles
            assert within >= max(2 * without, cut.recall)


def test_tiling_loses_nothing_that_is_found_without_and_tells_nothing_twice(served, figure):
    """Photos, enlarged until tiles cut what is in them."""
    plain, tiled = {}, {}
    for photo in sorted(PHOTOS.glob("*.jpg")):
        picture = Image.open(photo).convert("RGB")
        large = io.BytesIO()
        picture.resize((picture.width * 2, picture.height * 2), Image.BICUBIC).save(large, "JPEG", quality=95)
        plain[photo.name] = accuracy.boxes_of(detect(served, large.getvalue()))
        tiled[photo.name] = accuracy.boxes_of(detect(served, large.getvalue(), tiling={"tile_size": 640}))
    agreed = accuracy.agreement(tiled, plain, min_score=0.5, min_overlap=0.5, max_score_difference=1.0)
    pieces = [
        (name, box)
        for name, boxes in tiled.items()
        for box in boxes
        if box.score >= 0.5 and any(is_piece(box, other) for other in plain[name])
        # The network itself tells some of them so.
        and all(accuracy.overlap(box.corners, other.corners) < 0.8 for other in plain[name])
    ]
    figure(
        f"photos at twice their size: {agreed.matched} of {agreed.counted} sure objects are found in tiles too, "
        f"and {len(pieces)} pieces of them"
    )
    assert agreed.share >= 0.95, agreed.missed
    assert len(pieces) <= agreed.counted // 20, pieces
