"""Measures a detector's answers: agreement with a reference, and COCO average precision.

Works on plain lists, so that it serves any source of boxes. A box is `Box`: label, score, and corners in
pixels of the upright picture. Collections are `{file name: [Box, ...]}`.
"""

import contextlib
import io
import json
from pathlib import Path
from typing import NamedTuple

from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval


class Box(NamedTuple):
    label: str
    score: float
    corners: tuple[float, float, float, float]  # x_min, y_min, x_max, y_max


class Agreement(NamedTuple):
    """How many of the reference boxes that count have their own counterpart."""

    matched: int
    counted: int
    missed: list[tuple[str, Box]]  # file name, reference box

    @property
    def share(self) -> float:
        return self.matched / self.counted if self.counted else 0.0


def boxes_of(reply) -> list[Box]:
    """Returns the boxes of a `DetectResponse`."""
    return [
        Box(d.label, d.score, (d.box.x_min, d.box.y_min, d.box.x_max, d.box.y_max)) for d in reply.detections
    ]


def reference_boxes(path: Path, model: str) -> dict[str, list[Box]]:
    """Reads what an independent pipeline found for `model`; its boxes have scores of at least 0.25."""
    pictures = json.loads(path.read_text())[model]
    return {
        name: [Box(box["label"], box["score"], tuple(box["box"])) for box in boxes]
        for name, boxes in pictures.items()
    }


def overlap(a: tuple, b: tuple) -> float:
    """Returns the intersection over union of two boxes given by their corners."""
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    shared = width * height
    areas = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (a, b))
    return shared / (areas - shared)


def agreement(
    found: dict[str, list[Box]],
    reference: dict[str, list[Box]],
    min_score: float = 0.4,
    min_overlap: float = 0.9,
    max_score_difference: float = 0.05,
) -> Agreement:
    """Counts the reference boxes of score >= `min_score` that `found` has too.

    A counterpart has the same label, more than `min_overlap` overlap, and a score that differs by less than
    `max_score_difference`. It serves one reference box only: taken by falling score, each takes the best left.
    """
    matched, missed = 0, []
    for name, wanted in reference.items():
        free = list(found.get(name, ()))
        for box in sorted(wanted, key=lambda box: -box.score):
            if box.score < min_score:
                break
            alike = [
                (overlap(box.corners, other.corners), index)
                for index, other in enumerate(free)
                if other.label == box.label and abs(other.score - box.score) < max_score_difference
            ]
            best, index = max(alike, default=(0.0, -1))
            if best > min_overlap:
                free.pop(index)
                matched += 1
            else:
                missed.append((name, box))
    return Agreement(matched, matched + len(missed), missed)


# What `detectd eval` tells, in the order of pycocotools' twelve numbers.
MARKS = {"ap": 0, "ap50": 1, "ap75": 2, "ap_small": 3, "ap_medium": 4, "ap_large": 5, "ar100": 8}


def marks(truth: Path, rows: list[dict]) -> dict[str, float]:
    """Returns COCO's marks for `rows`, which are as in its results files, over every picture of `truth`."""
    if not rows:  # which pycocotools cannot read
        return dict.fromkeys(MARKS, 0.0)
    with contextlib.redirect_stdout(io.StringIO()):  # pycocotools reports each of its steps
        dataset = COCO(str(truth))
        evaluation = COCOeval(dataset, dataset.loadRes(rows), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return {name: float(evaluation.stats[at]) for name, at in MARKS.items()}


def average_precision(found: dict[str, list[Box]], truth: Path) -> float:
    """Returns the COCO AP (IoU 0.50 to 0.95, all areas, 100 boxes a picture) over every picture of `truth`.

    Labels are looked up by name in the categories of `truth`; an unknown one is a KeyError.
    """
    there = json.loads(truth.read_text())
    categories = {category["name"]: category["id"] for category in there["categories"]}
    pictures = {picture["file_name"]: picture["id"] for picture in there["images"]}
    rows = [
        {
            "image_id": pictures[name],
            "category_id": categories[label],
            "bbox": [x_min, y_min, x_max - x_min, y_max - y_min],
            "score": score,
        }
        for name, boxes in found.items()
        for label, score, (x_min, y_min, x_max, y_max) in boxes
    ]
    return marks(truth, rows)["ap"]
