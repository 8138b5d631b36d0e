#!/usr/bin/env python3
"""Writes coco_ap.json: small sets of boxes, and the marks that COCO's own tools give them.

    python3 tests/golden/make_coco_ap.py        (needs pycocotools; the committed file came from pycocotools 2.0.11)

What has a rule of its own is in them: crowds, equal scores, categories of which there is nothing or of which nothing was found,
empty pictures, pictures out of order, more than 100 boxes of a category, overlaps that are exactly a threshold, areas
that are not their boxes' own.
"""

import contextlib
import io
import json
import pathlib
import random

from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

rng = random.Random(20240607)
# In the order of pycocotools' twelve; what is left out is not told by `detectd eval`.
MARKS = {"ap": 0, "ap50": 1, "ap75": 2, "ap_small": 3, "ap_medium": 4, "ap_large": 5, "ar100": 8}


def truth(pictures, objects, categories):
    """`objects` are (picture, category, box, area or None, crowd)."""
    annotations = []
    # From 1 on: pycocotools takes an object whose id is 0 for none.
    for number, (picture, category, box, area, crowd) in enumerate(objects, 1):
        area = round(box[2] * box[3], 2) if area is None else area
        row = {"id": number, "image_id": picture, "category_id": category, "bbox": box, "area": area, "iscrowd": crowd}
        annotations.append(row)
    return {
        "images": [{"id": picture, "file_name": f"{picture}.jpg"} for picture in pictures],
        "annotations": annotations,
        "categories": [{"id": category, "name": f"c{category}"} for category in categories],
    }


def found(rows):
    """`rows` are (picture, category, box, score)."""
    return [dict(zip(("image_id", "category_id", "bbox", "score"), row)) for row in rows]


def marks(there, results):
    with contextlib.redirect_stdout(io.StringIO()):  # pycocotools reports each of its steps
        dataset = COCO()
        dataset.dataset = json.loads(json.dumps(there))
        dataset.createIndex()
        if results:
            answers = dataset.loadRes(json.loads(json.dumps(results)))
        else:  # which loadRes cannot do
            answers = COCO()
            answers.dataset = {"images": dataset.dataset["images"], "annotations": []}
            answers.createIndex()
        evaluation = COCOeval(dataset, answers, "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    # pycocotools says -1 where there is nothing to find.
    return {name: None if evaluation.stats[at] < 0 else float(evaluation.stats[at]) for name, at in MARKS.items()}


def box(longest):
    side = lambda: round(4 + (longest - 4) * rng.random() ** 2, 1)
    return [round(rng.uniform(0, 400), 1), round(rng.uniform(0, 300), 1), side(), side()]


def near(place, by):
    x, y, width, height = place
    shift = lambda side: rng.gauss(0, by) * side
    moved = [x + shift(width), y + shift(height), max(1, width + shift(width)), max(1, height + shift(height))]
    return [round(number, 1) for number in moved]


def at_random(pictures, categories, most, crowds=0.0, score=lambda: round(rng.random(), 4), absent=(), unfound=()):
    """Objects of all sizes, found well, badly, twice or not at all, and boxes where there is nothing."""
    order = rng.sample(range(1000), pictures)
    objects, rows = [], []
    for picture in order:
        for _ in range(rng.randint(0, most)):
            category, place = rng.choice(categories), box(rng.choice([40, 120, 300]))
            crowd = int(rng.random() < crowds)
            if category not in absent:
                area = round(place[2] * place[3] * rng.uniform(0.5, 1), 1)
                objects.append((picture, category, place, area, crowd))
            for _ in range(rng.choice([0, 1, 1, 1, 2]) + 3 * crowd):
                guess = category if rng.random() < 0.9 else rng.choice(categories)
                rows.append((picture, guess, near(place, rng.choice([0.01, 0.05, 0.15])), score()))
    rows = [row for row in rows if row[1] not in unfound]
    rng.shuffle(rows)
    return truth(order, objects, categories), found(rows)


def cases():
    whole = [10, 10, 100, 100]
    one = [(1, 1, whole, None, 0)]
    yield "found", truth([1], one, [1]), found([(1, 1, whole, 0.5)])
    yield "not found", truth([1], one, [1]), []
    yield "nothing there", truth([1, 2], [], [1]), found([(1, 1, whole, 0.5)])
    # 0.50, 0.55, ... of it: right at exactly so much.
    parts = [(n, 1, [0, 0, 100, 5 * n], 1 - n / 100) for n in range(10, 21)]
    squares = [(n, 1, [0, 0, 100, 100], None, 0) for n in range(10, 21)]
    yield "exact overlaps", truth(list(range(10, 21)), squares, [1]), found(parts)
    # Recalls that are exactly a step: tenths.
    tenths = [(n, 1, whole, None, 0) for n in range(10)]
    halves = [(n, 1, whole if n % 3 else [200, 200, 9, 9], 0.9 - n / 20) for n in range(10)]
    yield "exact recalls", truth(list(range(10)), tenths, [1]), found(halves)
    # Many in a crowd, which holds each of them whole; the first is the object's nevertheless.
    crowd = [(1, 1, [0, 0, 200, 200], None, 1), (1, 1, [20, 20, 40, 40], None, 0)]
    inside = [(1, 1, [22 + n, 22 + n, 40, 40], 0.9 - n / 100) for n in range(12)]
    yield "a crowd", truth([1], crowd, [1]), found([*inside, (1, 1, [300, 300, 50, 50], 0.95)])
    # A hundred wrong ones before the right one, which is the hundred and first.
    noise = [(1, 1, [200 + n, 200, 10, 10], 0.9) for n in range(100)]
    yield "one too many", truth([1], one, [1]), found([*noise, (1, 1, whole, 0.1)])
    yield "just enough", truth([1], one, [1]), found([*noise[1:], (1, 1, whole, 0.1)])
    # Two objects alike, one box between them; two boxes of one score on one object.
    twins = [(1, 1, [0, 0, 50, 50], None, 0), (1, 1, [20, 0, 50, 50], None, 0)]
    yield "twins", truth([1], twins, [1]), found([(1, 1, [10, 0, 50, 50], 0.5), (1, 1, [9, 0, 50, 50], 0.5)])
    # At the bounds of small, medium and large, both included.
    sides = [(n, 1, [0, 0, side, side], None, 0) for n, side in enumerate([31, 32, 33, 95, 96, 97])]
    bounds = [(n, 1, [0, 0, side + 1, side + 1], 0.5) for n, (_, _, (_, _, side, _), _, _) in enumerate(sides)]
    yield "bounds of areas", truth(list(range(6)), sides, [1]), found(bounds)
    yield "at random", *at_random(14, [1, 2, 3, 7], 8)
    yield "crowds", *at_random(12, [1, 2, 3], 8, crowds=0.3)
    yield "equal scores", *at_random(14, [1, 2], 9, score=lambda: rng.randint(1, 4) / 4, crowds=0.1)
    yield "missing categories", *at_random(8, [1, 2, 3, 4, 5], 7, absent=(2, 5), unfound=(3,))


if __name__ == "__main__":
    path = pathlib.Path(__file__).with_name("coco_ap.json")
    rows = [
        {"name": name, "truth": there, "found": results, "scores": marks(there, results)}
        for name, there, results in cases()
    ]
    path.write_text("[" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "]\n")
    print(f"{path.name}: {path.stat().st_size} bytes")
    for row in rows:
        print(f"  {row['name']}: {row['scores']}")
