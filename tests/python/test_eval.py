"""`detectd eval` on a real network and real photos: its marks are those that COCO's own tools give its results file."""

import json
import os
import pty
import subprocess

import pytest

import accuracy
from paths import BINARY, MODELS, SHARED
from server import environment
from wire import TIMEOUT_S

PHOTOS = SHARED / "images" / "coco_val_ccby27"
TRUTH = SHARED / "images" / "coco_val_ccby27.json"
MODEL = "yolox-nano"
# What `detectd eval` is to be as good as.
TOLERANCE = 1e-3

pytestmark = pytest.mark.skipif(not PHOTOS.is_dir(), reason="detectd eval on photos (../shared is absent)")


@pytest.fixture(scope="module")
def served(start_server):
    assert any((MODELS / MODEL).glob("[0-9]*/*.onnx")), f"models/{MODEL} has no network: run make models"
    with start_server([MODEL], source=MODELS, arguments=["--default-model", MODEL]) as running:
        yield running


def command(server, truth, *more) -> list[str]:
    given = [BINARY, "eval", "--addr", server.grpc_address, "--coco", truth, "--images", PHOTOS]
    return [str(part) for part in [*given, "--timeout", TIMEOUT_S * 4, *more]]


def evaluate(server, truth, out) -> dict:
    """Runs the command on the photos; returns what it prints."""
    line = command(server, truth, "--out", out, "--json")
    done = subprocess.run(line, capture_output=True, text=True, env=environment(), timeout=TIMEOUT_S * 8)
    # Nothing is said of progress where nobody looks on.
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def assert_like_pycocotools(report: dict, truth, out) -> None:
    theirs = accuracy.marks(truth, json.loads(out.read_text()))
    assert report["scores"] == pytest.approx(theirs, abs=TOLERANCE)


def test_marks_are_those_of_pycocotools(served, tmp_path, figure):
    out = tmp_path / "found.json"
    report = evaluate(served, TRUTH, out)
    assert_like_pycocotools(report, TRUTH, out)
    marks = ", ".join(f"{name} {mark:.3f}" for name, mark in report["scores"].items())
    figure(f"detectd eval, {MODEL}: {marks}")
    assert report["scores"]["ap"] > 0.35
    assert (report["pictures"], report["pictures_failed"], report["remarks"]) == (27, 0, [])
    assert report["boxes"] == len(json.loads(out.read_text()))


def test_ids_with_gaps_and_fewer_categories_are_matched_by_name(served, tmp_path):
    full = json.loads(TRUTH.read_text())
    # As COCO's own files number them, which no row of the labels is; and some categories are not in this file.
    kept = [row for row in full["categories"] if row["id"] % 3 != 1]
    renumbered = {row["id"]: 90 - row["id"] for row in kept}
    full["categories"] = [{**row, "id": renumbered[row["id"]]} for row in kept]
    full["annotations"] = [
        {**row, "category_id": renumbered[row["category_id"]]}
        for row in full["annotations"]
        if row["category_id"] in renumbered
    ]
    truth, out = tmp_path / "truth.json", tmp_path / "found.json"
    truth.write_text(json.dumps(full))
    report = evaluate(served, truth, out)
    assert_like_pycocotools(report, truth, out)
    assert report["scores"]["ap"] > 0.3
    matched = report["categories"]
    assert (matched["matched_by"], matched["matched"]) == ("name", len(kept))
    assert len(matched["labels_without_category"]) == 80 - len(kept)


def test_a_terminal_shows_progress_and_is_clean_in_the_end(served):
    ours, theirs = pty.openpty()
    try:
        line = command(served, TRUTH, "--limit", 2)
        done = subprocess.run(line, stdout=subprocess.PIPE, stderr=theirs, env=environment(), timeout=TIMEOUT_S * 8)
        said = os.read(ours, 4096).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert (done.returncode, "2 of 2 pictures" in said) == (0, True), said
    assert said.endswith("\r\x1b[K"), said
    assert b"\x1b" not in done.stdout
