#!/usr/bin/env python3
"""Writes heads.json: raw outputs of made-up networks and the boxes that they mean.

    python3 tests/golden/make_heads.py        (needs numpy; the committed file came from numpy 2.4)

The formulas are those of the papers' reference code, on whole arrays and in float64; src/heads goes cell by
cell in float32. Numbers are seeded, rounded to half precision so that one file serves f32 and f16 outputs, and
those that would lie within 1e-3 of a threshold are moved away from it.
"""

import json
import pathlib

import numpy as np

THRESHOLDS = [0.0, 0.3]
rng = np.random.default_rng(20240416)


def halves(array):
    return np.asarray(array, np.float16).astype(np.float64)


def listed(boxes, scores, classes):
    """Rows of (class, score, x_min, y_min, x_max, y_max), in a fixed order."""
    rows = [[int(c), float(s), *map(float, b)] for b, s, c in zip(boxes, scores, classes)]
    return [[row[0], *(float(f"{x:.7g}") for x in row[1:])] for row in sorted(rows)]


def yolox():
    width, height, strides, classes, batch = 96, 64, [8, 16, 32], 4, 2
    grids, sides = [], []
    for stride in strides:
        columns, rows = np.meshgrid(np.arange(width // stride), np.arange(height // stride))
        grids.append(np.stack([columns.ravel(), rows.ravel()], axis=1))
        sides.append(np.full(grids[-1].shape, stride))
    grids, sides = np.concatenate(grids), np.concatenate(sides)

    raw = rng.normal(0, 0.7, (batch, len(grids), 5 + classes))
    # Few cells hold an object, as in a real picture.
    raw[..., 4] = rng.beta(0.5, 2.0, raw.shape[:2])
    raw[..., 5:] = rng.beta(0.7, 0.9, raw[..., 5:].shape)
    raw = halves(raw)
    scores = raw[..., 4:5] * raw[..., 5:]
    raw[..., 4] = np.where((np.abs(scores - 0.3) < 1e-3).any(-1), 0.0, raw[..., 4])
    scores = raw[..., 4:5] * raw[..., 5:]

    centers = (raw[..., 0:2] + grids) * sides
    sizes = np.exp(raw[..., 2:4]) * sides
    boxes = np.concatenate([centers - sizes / 2, centers + sizes / 2], axis=-1)
    cases = []
    for index in range(batch):
        for threshold in THRESHOLDS:
            # All classes at threshold zero say nothing that the best ones do not, in four times the bytes.
            for multi_label in [False, True] if threshold else [False]:
                if multi_label:
                    cell, label = np.nonzero(scores[index] >= threshold)
                else:
                    label = scores[index].argmax(axis=1)
                    cell = np.nonzero(scores[index].max(axis=1) >= threshold)[0]
                    label = label[cell]
                found = listed(boxes[index, cell], scores[index, cell, label], label)
                cases.append({"index": index, "threshold": threshold, "multi_label": multi_label, "boxes": found})
    return {"size": [width, height], "classes": classes, "shape": raw.shape, "output": raw.ravel().tolist(), "cases": cases}


def detr():
    size, classes, batch, queries = 64, 5, 3, 12
    centers, sizes = rng.uniform(0, size, (batch, queries, 2)), rng.uniform(1, size, (batch, queries, 2))
    boxes = halves(np.concatenate([centers - sizes / 2, centers + sizes / 2], axis=-1))
    labels = rng.integers(0, classes, (batch, queries))
    scores = halves(-np.sort(-rng.beta(0.6, 1.5, (batch, queries)), axis=1))
    scores = np.where(np.abs(scores - 0.3) < 1e-3, 0.25, scores)
    cases = []
    for index in range(batch):
        for threshold in THRESHOLDS:
            keep = scores[index] >= threshold
            found = listed(boxes[index, keep], scores[index, keep], labels[index, keep])
            cases.append({"index": index, "threshold": threshold, "boxes": found})
    return {
        "classes": classes,
        "batch": batch,
        "queries": queries,
        "labels": labels.ravel().tolist(),
        "boxes": boxes.ravel().tolist(),
        "scores": scores.ravel().tolist(),
        "cases": cases,
    }


if __name__ == "__main__":
    path = pathlib.Path(__file__).with_name("heads.json")
    vectors = {"yolox": yolox(), "detr": detr()}
    path.write_text(json.dumps(vectors, separators=(",", ":")).replace('"cases"', '\n"cases"').replace('{"index"', '\n{"index"') + "\n")
    print(f"{path.name}: {path.stat().st_size} bytes")
