#!/usr/bin/env python3
"""Writes heads.json and heads/*.json: raw outputs of made-up networks and the boxes that they mean.

    python3 tests/golden/make_heads.py        (needs numpy; the committed files came from numpy 2.2)

The formulas are those of the papers' reference code, on whole arrays and in float64; src/heads goes cell by
cell in float32. Numbers are seeded, rounded to half precision so that one file serves f32 and f16 outputs, and
those that would lie within 1e-3 of a threshold are moved away from it.
"""

import json
import pathlib

import numpy as np

THRESHOLDS = [0.0, 0.3]
FOLDER = pathlib.Path(__file__).parent
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


# === one file a family, which says its card too ===


def steps(array, fine):
    """Multiples of 1 / fine, which are few digits and halves."""
    return np.round(np.asarray(array, np.float64) * fine) / fine


def output(name, array, dtype="float"):
    array = np.asarray(array, np.float64)
    short = [int(x) if x == int(x) else float(x) for x in array.ravel()]
    return {"name": name, "dtype": dtype, "shape": list(array.shape), "values": short}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def corners(boxes):
    """Centre and size to corners."""
    return np.concatenate([boxes[..., :2] - boxes[..., 2:] / 2, boxes[..., :2] + boxes[..., 2:] / 2], axis=-1)


def yx(four):
    """Swaps x and y, and width and height."""
    return four[..., [1, 0, 3, 2]]


def candidates(boxes, scores, head, thresholds=(0.3,)):
    """What a card means by corners [N, A, 4] in pixels and scores of the classes [N, A, C]."""
    cases = []
    for index in range(len(boxes)):
        for threshold in thresholds:
            assert threshold == 0 or np.abs(scores - threshold).min() > 1e-5, "a score lies at the threshold"
            best = scores[index].argmax(axis=1)
            row = np.nonzero(scores[index].max(axis=1) >= threshold)[0]
            found = listed(boxes[index, row], scores[index, row, best[row]], best[row])
            cases.append({"head": head, "index": index, "threshold": threshold, "boxes": found})
            row, label = np.nonzero(scores[index] >= threshold)
            if threshold:
                found = listed(boxes[index, row], scores[index, row, label], label)
                multi = head.replace("\n", "\nmulti_label = true\n", 1)
                cases.append({"head": multi, "index": index, "threshold": threshold, "boxes": found})
    return cases


def finished(boxes, scores, labels, head, thresholds=(0.0, 0.3)):
    """What a card means by corners [N, K, 4] in pixels, scores and labels [N, K]."""
    cases = []
    for index in range(len(boxes)):
        for threshold in thresholds:
            keep = scores[index] >= threshold
            found = listed(boxes[index, keep], scores[index, keep], labels[index, keep])
            cases.append({"head": head, "index": index, "threshold": threshold, "boxes": found})
    return cases


def some_boxes(rng, batch, count, width, height):
    """Centre and size in pixels."""
    centers = rng.uniform(0, [width, height], (batch, count, 2))
    return steps(np.concatenate([centers, rng.uniform(1, 20, (batch, count, 2))], axis=-1), 16)


def sparse(rng, shape):
    """Scores most of which are low, none of them at 0.3."""
    scores = steps(rng.beta(0.4, 1.2, shape), 128)
    return np.where(np.abs(scores - 0.3) < 0.01, 0.25, scores)


def yolox_decoded(rng):
    width, height, batch = 64, 32, 2
    cells = sum(width // s * height // s for s in (8, 16, 32))
    boxes = some_boxes(rng, batch, cells, width, height)
    objectness, classes = sparse(rng, (batch, cells, 1)) ** 0.5, sparse(rng, (batch, cells, 2))
    objectness = steps(objectness, 128)
    raw = np.concatenate([boxes, objectness, classes], axis=-1)
    head = 'family = "yolox"\ndecoded = true\n'
    cases = candidates(corners(boxes), objectness * classes, head)
    return {"input": [width, height], "classes": 2, "outputs": [output("output", raw)], "cases": cases}


def yolov5(rng):
    width, height, batch, count = 64, 48, 2, 30
    boxes = some_boxes(rng, batch, count, width, height)
    objectness, classes = steps(sparse(rng, (batch, count, 1)) ** 0.5, 128), sparse(rng, (batch, count, 3))
    raw = np.concatenate([boxes, objectness, classes], axis=-1)
    cases = candidates(corners(boxes), objectness * classes, 'family = "yolov5"\n', (0.0, 0.3))
    return {"input": [width, height], "classes": 3, "outputs": [output("output0", raw)], "cases": cases}


def yolov8(rng):
    # More candidates than are compared at a time.
    width, height, batch, count = 64, 48, 2, 70
    boxes, classes = some_boxes(rng, batch, count, width, height), sparse(rng, (batch, count, 2))
    raw = np.concatenate([boxes, classes], axis=-1)
    one = 'family = "yolov8"\noutput = "planes"\n'
    other = 'family = "yolov8"\noutput = "rows"\nlayout = "anchors_first"\n'
    few = slice(20)
    cases = candidates(corners(boxes), classes, one) + candidates(corners(boxes[:, few]), classes[:, few], other)
    outputs = [output("planes", raw.transpose(0, 2, 1)), output("rows", raw[:, few])]
    return {"input": [width, height], "classes": 2, "outputs": outputs, "cases": cases}


def end_to_end(rng):
    width, height, batch, count, classes = 64, 48, 3, 6, 4
    boxes = steps(corners(some_boxes(rng, batch, count, width, height)), 16)
    labels, scores = rng.integers(0, classes, (batch, count)), sparse(rng, (batch, count))
    parts = [boxes, scores[..., None], labels[..., None]]
    cases = finished(boxes, scores, labels, 'family = "end_to_end"\noutput = "ranked"\n')

    # The same in one list for the whole batch, in no order, without the second picture's boxes.
    place = np.broadcast_to(np.arange(batch)[:, None, None], (batch, count, 1))
    listed = np.concatenate([place, boxes / [width, height, width, height], labels[..., None] + 1, scores[..., None]], axis=-1)
    listed = listed.reshape(-1, 7)[rng.permutation(batch * count)]
    listed = halves(listed[listed[:, 0] != 1])
    head = (
        'family = "end_to_end"\noutput = "listed"\nlabel_offset = 1\nnormalized = true\n'
        'columns = ["batch", "x0", "y0", "x1", "y1", "class", "score"]\n'
    )
    for index in range(batch):
        rows = listed[listed[:, 0] == index]
        rounded = rows[:, 1:5] * [width, height, width, height]
        cases += [{**case, "index": index} for case in finished(rounded[None], rows[None, :, 6], rows[None, :, 5] - 1, head)]
    outputs = [output("ranked", np.concatenate(parts, axis=-1)), output("listed", listed)]
    return {"input": [width, height], "classes": classes, "outputs": outputs, "cases": cases}


def prior_boxes(width, height, maps, clip):
    """Centre and size from 0 to 1; maps of (cells across, cells down, step, min sizes, max sizes, aspect ratios)."""
    priors = []
    for across, down, step, mins, maxs, ratios in maps:
        shapes = []
        for index, least in enumerate(mins):
            shapes.append((least, least))
            if maxs:
                shapes.append((np.sqrt(least * maxs[index]),) * 2)
            for ratio in ratios:
                shapes.append((least * np.sqrt(ratio), least / np.sqrt(ratio)))
                shapes.append((least / np.sqrt(ratio), least * np.sqrt(ratio)))
        x = (np.arange(across) + 0.5) * (step / width if step else 1 / across)
        y = (np.arange(down) + 0.5) * (step / height if step else 1 / down)
        grid = np.zeros((down, across, len(shapes), 4))
        grid[..., 0], grid[..., 1] = x[None, :, None], y[:, None, None]
        grid[..., 2:] = np.array(shapes) / [width, height]
        priors.append(grid.reshape(-1, 4))
    priors = np.concatenate(priors)
    return np.clip(priors, 0, 1) if clip else priors


def from_priors(raw, priors, variances=(0.1, 0.2)):
    """Centre and size from 0 to 1."""
    centers = priors[:, :2] + raw[..., :2] * variances[0] * priors[:, 2:]
    return np.concatenate([centers, priors[:, 2:] * np.exp(raw[..., 2:] * variances[1])], axis=-1)


def maps_table(maps, clip):
    """The maps as a card writes them."""
    lines = []
    for across, down, step, mins, maxs, ratios in maps:
        keys = [f"cells = [{across}, {down}]"] + ([f"step = {step}"] if step else []) + [f"min_sizes = {mins}"]
        keys += [f"max_sizes = {maxs}"] if maxs else []
        keys += [f"aspect_ratios = {ratios}"] if ratios else []
        lines.append("  { " + ", ".join(keys) + " },\n")
    return f"[anchors]\nclip = {str(clip).lower()}\nmaps = [\n{''.join(lines)}]\n"


def ssd(rng):
    width, height, batch, classes = 48, 32, 2, 3
    maps = [(3, 2, 16, [10], [20], [2]), (1, 1, None, [24, 30], [], [2, 3])]
    scale = [width, height, width, height]
    priors = prior_boxes(width, height, maps, True)
    raw = steps(rng.normal(0, 1, (batch, len(priors), 4)), 16)
    logits = steps(rng.normal([1, -1, -1, -1], 2, (batch, len(priors), classes + 1)), 16)
    outputs = [output("loc", raw), output("conf", logits)]
    cases = []
    boxes = corners(from_priors(raw, priors) * scale)
    head = 'family = "ssd"\ncoding = "ssd_pytorch"\nboxes = "loc"\nscores = "conf"\nactivation = "softmax"\n'
    cases += candidates(boxes, softmax(logits)[..., 1:], head + maps_table(maps, True), (0.35,))
    # The background's column is the first label's too, and is no object all the same.
    scores = sigmoid(logits)
    scores[..., 0] = -1
    head = 'family = "ssd"\ncoding = "tensorflow"\nboxes = "loc"\nscores = "conf"\nactivation = "sigmoid"\nlabel_offset = 0\nanchors = "anchors.npy"\n'
    anchors = halves(rng.uniform(0.1, 0.9, (len(priors), 4)))
    boxes = corners(from_priors(yx(raw), yx(anchors)) * scale)
    with_background = [{**case, "classes": classes + 1} for case in candidates(boxes, scores, head, (0.35,))]
    cases += with_background
    return {"input": [width, height], "classes": classes, "anchors": anchors.tolist(), "outputs": outputs, "cases": cases}


def ssd_decoded(rng):
    width, height, batch, count, classes = 64, 48, 2, 20, 3
    boxes = steps(corners(some_boxes(rng, batch, count, width, height)) / [width, height, width, height], 256)
    pixels = boxes * [width, height, width, height]
    scores = sparse(rng, (batch, count, classes + 1))
    outputs = [output("boxes", boxes), output("scores", scores)]
    cases = candidates(pixels, scores[..., 1:], 'family = "ssd_decoded"\nbox_format = "xyxy"\n')
    head = 'family = "ssd_decoded"\nbox_format = "yxyx"\nbackground = "last"\n'
    cases += candidates(yx(boxes) * [width, height, width, height], scores[..., :-1], head)
    head = 'family = "ssd_decoded"\nbox_format = "cxcywh"\nnormalized = false\nbackground = "none"\n'
    cases += [{**case, "classes": classes + 1} for case in candidates(corners(boxes), scores, head)]
    return {"input": [width, height], "classes": classes, "outputs": outputs, "cases": cases}


def tf_detections(rng):
    width, height, batch, count, classes = 64, 48, 3, 6, 4
    boxes = steps(corners(some_boxes(rng, batch, count, width, height)) / [width, height, width, height], 256)
    labels, scores = rng.integers(0, classes, (batch, count)), sparse(rng, (batch, count))
    counts = np.array([count, 2, 0])
    outputs = [
        output("detection_boxes", yx(boxes)),
        output("detection_classes", labels + 1),
        output("detection_scores", scores),
        output("num_detections", counts),
    ]
    cases = []
    for index in range(batch):
        part = (slice(index, index + 1), slice(counts[index]))
        found = finished(boxes[part] * [width, height, width, height], scores[part], labels[part], 'family = "tf_detections"\n')
        cases += [{**case, "index": index} for case in found]
    return {"input": [width, height], "classes": classes, "outputs": outputs, "cases": cases}


def detr_raw(rng):
    width, height, batch, count, classes = 64, 48, 2, 12, 4
    boxes = steps(some_boxes(rng, batch, count, width, height) / [width, height, width, height], 256)
    logits = steps(rng.normal(-1, 2, (batch, count, classes + 1)), 16)
    outputs = [output("logits", logits), output("pred_boxes", boxes)]
    pixels = corners(boxes) * [width, height, width, height]
    cases = [
        {**case, "classes": classes + 1}
        for case in candidates(pixels, sigmoid(logits), 'family = "detr_raw"\n', (0.0, 0.31))
    ]
    head = 'family = "detr_raw"\nactivation = "softmax"\nbackground = "last"\n'
    cases += candidates(pixels, softmax(logits)[..., :-1], head, (0.0, 0.31))
    return {"input": [width, height], "classes": classes, "outputs": outputs, "cases": cases}


# === anchors and a decode of full size, whose inputs are computed on both sides ===


def noise(count, salt):
    """Numbers in [-0.5, 0.5) that any language gets alike."""
    with np.errstate(over="ignore"):
        x = np.arange(count, dtype=np.uint32) * np.uint32(2654435761) + np.uint32(salt)
        x ^= x >> np.uint32(15)
        x *= np.uint32(2246822519)
        x ^= x >> np.uint32(13)
    return x.astype(np.float64) / 2.0**32 - 0.5


def ssd300(sizes):
    cells, steps = [38, 19, 10, 5, 3, 1], [8, 16, 32, 64, 100, 300]
    ratios = [[2], [2, 3], [2, 3], [2, 3], [2], [2]]
    return [(c, c, s, [sizes[i]], [sizes[i + 1]], ratios[i]) for i, (c, s) in enumerate(zip(cells, steps))]


ULTRAFACE = [
    (40, 30, None, [10, 16, 24], [], []),
    (20, 15, None, [32, 48], [], []),
    (10, 8, None, [64, 96], [], []),
    (5, 4, None, [128, 192, 256], [], []),
]


def priors(_):
    """Some of the anchors, and sums over all of them."""
    sets = [
        ("ssd300_voc", [300, 300], ssd300([30, 60, 111, 162, 213, 264, 315]), True),
        ("ssd300_coco", [300, 300], ssd300([21, 45, 99, 153, 207, 261, 315]), True),
        ("ultraface_rfb320", [320, 240], ULTRAFACE, True),
    ]
    found = []
    for name, (width, height), maps, clip in sets:
        boxes = prior_boxes(width, height, maps, clip)
        picked = sorted({*range(0, len(boxes), 211), *range(len(boxes) - 6, len(boxes))})
        weights = np.arange(len(boxes)) % 97 + 1
        found.append(
            {
                "name": name,
                "input": [width, height],
                "anchors": maps_table(maps, clip).partition("\n")[2],
                "count": len(boxes),
                "sums": (boxes * weights[:, None]).sum(0).tolist(),
                "some": [[int(i), *(round(x, 9) for x in boxes[i].tolist())] for i in picked],
            }
        )
    return {"sets": found}


def ultraface(_):
    boxes = prior_boxes(320, 240, ULTRAFACE, True)
    raw = (noise(4 * len(boxes), 1) * 6).astype(np.float32).astype(np.float64).reshape(1, -1, 4)
    face = ((noise(len(boxes), 2) + 0.5) ** 16).astype(np.float32).astype(np.float64)
    scores = face.reshape(1, -1, 1)
    head = 'family = "ssd"\ncoding = "ssd_pytorch"\n' + maps_table(ULTRAFACE, True)
    pixels = corners(from_priors(raw, boxes)) * [320, 240, 320, 240]
    cases = [case for case in candidates(pixels, scores, head, (0.7,)) if "multi" not in case["head"]]
    return {"input": [320, 240], "classes": 1, "cases": cases}


def write(path, vectors):
    # A card stands once, and its cases say which.
    if any("head" in case for case in vectors.get("cases", [])):
        vectors["heads"] = list(dict.fromkeys(case["head"] for case in vectors["cases"]))
        for case in vectors["cases"]:
            case["head"] = vectors["heads"].index(case["head"])
    text = json.dumps(vectors, separators=(",", ":"))
    for opening in ('"cases"', '{"index"', '{"head"', '{"name"'):
        text = text.replace(opening, "\n" + opening)
    path.write_text(text + "\n")
    print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    write(FOLDER / "heads.json", {"yolox": yolox(), "detr": detr()})
    families = [yolox_decoded, yolov5, yolov8, end_to_end, ssd_decoded, tf_detections, detr_raw, ssd, priors, ultraface]
    for seed, family in enumerate(families):
        write(FOLDER / "heads" / f"{family.__name__}.json", family(np.random.default_rng(seed)))
