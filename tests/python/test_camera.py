"""examples/python/camera.py as its users run it: on a folder, on a video, on nothing."""

import os
import re
import signal
import subprocess
import sys

import cv2
import numpy
import pytest

import echo
from paths import ROOT
from server import environment
from streams import metric, until
from wire import TIMEOUT_S

EXAMPLE = ROOT / "examples" / "python" / "camera.py"
# Enough red and blue for boxes of some size, see `echo.answer`.
WIDTH, HEIGHT = 320, 240


def start_camera(*arguments, **variables) -> subprocess.Popen:
    """Starts the example, with nobody's proxies and without a display."""
    hidden = ("display", "wayland_display")
    kept = {n: v for n, v in environment().items() if n.lower() not in hidden and not n.lower().endswith("_proxy")}
    command = [str(part) for part in (sys.executable, EXAMPLE, *arguments)]
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return subprocess.Popen(command, **pipes, env={**kept, **variables})


def ended(process: subprocess.Popen) -> subprocess.CompletedProcess:
    """Waits for its end, which comes however the test goes."""
    with process:
        try:
            stdout, stderr = process.communicate(timeout=4 * TIMEOUT_S)
        finally:
            process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def camera(*arguments, **variables) -> subprocess.CompletedProcess:
    """Runs the example to its end."""
    return ended(start_camera(*arguments, **variables))


def flat(red: int) -> numpy.ndarray:
    picture = numpy.zeros((HEIGHT, WIDTH, 3), numpy.uint8)
    picture[:] = (120, 0, red)
    return picture


def read(path) -> tuple[list[numpy.ndarray], float]:
    """The frames of a video, and how many it has a second."""
    capture = cv2.VideoCapture(str(path))
    frames = []
    while (frame := capture.read()[1]) is not None:
        frames.append(frame)
    return frames, capture.get(cv2.CAP_PROP_FPS)


def write_video(path, reds, fps: float) -> None:
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"mp4v"), fps, (WIDTH, HEIGHT))
    assert writer.isOpened()
    for red in reds:
        writer.write(flat(red))
    writer.release()


def is_framed(frame: numpy.ndarray, red: int) -> bool:
    """Whether the outermost box that echo finds in a flat picture is drawn, and its surroundings are left alone."""
    x_min, y_min, x_max, y_max = (round(corner) for corner in echo.answer((red, 0, 120), WIDTH, HEIGHT)[0][2])
    flat_colour = numpy.array((120, 0, red))

    def differs(x: int, y: int) -> bool:
        # A codec blurs what it writes.
        patch = frame[max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2].reshape(-1, 3)
        return abs(patch.mean(axis=0) - flat_colour).max() > 40

    # Its right edge away from the other boxes and from what is written at the top, and a place outside.
    return differs(x_max, (y_min + y_max) // 2) and not differs(WIDTH - 10, HEIGHT - 10)


def test_a_folder_goes_by_the_numbers_of_its_names_and_is_written_with_boxes(echo_server, tmp_path):
    folder, out = tmp_path / "frames", tmp_path / "out.mp4"
    folder.mkdir()
    reds = {"img2.png": 40, "img10.png": 110, "img9.png": 80}
    for name, red in reds.items():
        assert cv2.imwrite(str(folder / name), flat(red))
    (folder / "notes.txt").write_text("no picture")
    run = camera(folder, "--addr", echo_server.grpc_address, "--out", out, "--track", "--raw")
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.startswith("3 frames answered, 0 dropped, 0 failed")
    frames, fps = read(out)
    assert (len(frames), fps) == (3, 25)
    for frame, red in zip(frames, (40, 80, 110)):
        assert is_framed(frame, red)


def test_a_video_is_written_at_its_own_rate(echo_server, tmp_path):
    source, out = tmp_path / "in.mp4", tmp_path / "out.mp4"
    write_video(source, [100] * 12, fps=10)
    run = camera(source, "--addr", echo_server.grpc_address, "--out", out)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.startswith("12 frames answered, 0 dropped, 0 failed")
    frames, fps = read(out)
    assert (len(frames), fps) == (12, 10)
    assert all(is_framed(frame, 100) for frame in frames)


@pytest.mark.parametrize(
    "source, told",
    [("nowhere.mp4", "there is no nowhere.mp4"), ("999", "cannot open camera 999"), (".", "there is no picture in .")],
)
def test_a_source_that_is_not_there_ends_it_at_once_with_one_line(tmp_path, monkeypatch, source, told):
    monkeypatch.chdir(tmp_path)
    # There is no server either: it is not asked.
    run = camera(source, "--addr", "127.0.0.1:1", "--out", tmp_path / "out.mp4")
    assert (run.returncode, run.stderr.splitlines(), run.stdout) == (1, [told], "")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is a display")
def test_without_a_display_it_says_what_to_do(tmp_path):
    write_video(tmp_path / "in.mp4", [100], fps=10)
    run = camera(tmp_path / "in.mp4")
    assert run.returncode == 1
    assert run.stderr.splitlines() == ["no window can be shown here: write a video with --out FILE.mp4"]


def test_it_gives_up_a_server_that_is_not_there_and_says_why(tmp_path):
    write_video(tmp_path / "in.mp4", [100], fps=10)
    out = tmp_path / "out.mp4"
    run = camera(tmp_path / "in.mp4", "--addr", "127.0.0.1:1", "--out", out, "--retry-for", "0.5")
    assert run.returncode == 1
    first, *_, last = run.stderr.splitlines()
    assert re.match(r"UNAVAILABLE: .*127\.0\.0\.1:1.*; trying again", first), first
    assert re.match(r"UNAVAILABLE: .*; no answer for 0\.5 s", last), last


def test_frames_that_fail_are_counted_apart_and_it_leaves_nothing_behind(start_server, tmp_path):
    """A picture of too many pixels for the server, between two that are not."""
    folder, temporary, out = tmp_path / "frames", tmp_path / "tmp", tmp_path / "out.mp4"
    folder.mkdir()
    temporary.mkdir()
    for n, picture in enumerate([flat(40), numpy.zeros((500, 500, 3), numpy.uint8), flat(80)]):
        assert cv2.imwrite(str(folder / f"{n}.png"), picture)
    (tmp_path / "settings.toml").write_text("[pipeline.decode]\nmax_pixels = 100000\n")
    arguments = ["--default-model", "echo", "--config", str(tmp_path / "settings.toml")]
    with start_server(["echo"], arguments=arguments) as server:
        run = camera(folder, "--addr", server.grpc_address, "--out", out, TMPDIR=str(temporary))
    assert run.returncode == 1
    (line,) = run.stderr.splitlines()
    assert line.startswith("frame 1: "), line
    assert run.stdout.startswith("2 frames answered, 0 dropped, 1 failed")
    assert len(read(out)[0]) == 3
    assert os.listdir(temporary) == []


def test_when_a_server_goes_what_has_no_answer_goes_to_the_next(start_server, tmp_path):
    write_video(tmp_path / "in.mp4", [100] * 60, fps=10)
    out, slow = tmp_path / "out.mp4", ["--default-model", "echo-slow"]
    with start_server(["echo-slow"], arguments=slow) as first:
        process = start_camera(tmp_path / "in.mp4", "--addr", first.grpc_address, "--out", out)
        until(lambda: metric(first, "detectd_frames_accepted_total") >= 3)
    # It has ended as it should. Another is there at the same address.
    port = int(first.grpc_address.rsplit(":", 1)[1])
    with start_server(["echo-slow"], arguments=slow, port=port) as second:
        run = ended(process)
        by_second = metric(second, "detectd_frames_accepted_total")
    assert run.returncode == 0, run.stderr
    assert run.stderr.splitlines()[0] == "the server goes away; trying again"
    assert run.stdout.startswith("60 frames answered, 0 dropped, 0 failed")
    assert 0 < by_second <= 57
    assert len(read(out)[0]) == 60
