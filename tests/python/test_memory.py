"""What many large pictures at once make the server grow by, against the sum it tells at its start."""

import io
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from PIL import Image

import echo
from wire import TIMEOUT_S
from server import detect_request

CALLERS = 16
SIZE = (10_000, 5_000)
# A decode of 50 megapixels takes seconds, and sixteen of them wait for each other.
PATIENCE_S = 16 * TIMEOUT_S


def worst_picture() -> bytes:
    """50 megapixels of the kind that takes the most memory for each: a progressive JPEG in CMYK."""
    gradient = Image.linear_gradient("L").resize(SIZE)
    picture = io.BytesIO()
    Image.merge("CMYK", [gradient] * 4).save(picture, "JPEG", progressive=True, quality=50)
    return picture.getvalue()


def large_picture() -> bytes:
    """50 megapixels of the kind that takes the least memory to decode: what is decoded is most of what is held."""
    picture = io.BytesIO()
    Image.linear_gradient("L").resize(SIZE).convert("RGB").save(picture, "JPEG", quality=50)
    return picture.getvalue()


def peak_bytes(pid: int) -> int:
    """The most memory that process `pid` ever held."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to see what a process holds")
def test_sixteen_pictures_of_fifty_megapixels_stay_inside_the_sum(start_server, figure):
    picture = worst_picture()
    with start_server(["echo"], arguments=["--default-model", "echo"]) as server:
        server.detect(echo.flat_png((1, 2, 3)))
        allowed = int(re.search(r"decoding_mib=(\d+)", "".join(server.log))[1]) << 20
        before = peak_bytes(server.process.pid)

        def detect(_):
            return server.stub.Detect(detect_request(picture), timeout=PATIENCE_S)

        with ThreadPoolExecutor(CALLERS) as callers:
            replies = list(callers.map(detect, range(CALLERS)))
        growth = peak_bytes(server.process.pid) - before
    assert [(reply.image_size.width, reply.image_size.height) for reply in replies] == [SIZE] * CALLERS
    figure(f"{CALLERS} pictures of 50 MP at once: grew by {growth >> 20} MiB of {allowed >> 20} MiB")
    # It decoded: less than one picture's coefficients would mean that the measure is broken.
    assert 400 << 20 < growth
    # What waits was sent, and is a part of the sum of its own.
    assert growth < allowed + CALLERS * len(picture)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to see what a process holds")
def test_pictures_that_are_kept_for_their_tiles_are_few(start_server, figure):
    picture, callers = large_picture(), 8
    decoded = 3 * SIZE[0] * SIZE[1]
    with start_server(["echo"], arguments=["--default-model", "echo"]) as server:
        server.detect(echo.flat_png((1, 2, 3)))
        log = "".join(server.log)
        kept = int(re.search(r"cut_mib=(\d+)", log)[1]) << 20
        before = peak_bytes(server.process.pid)

        def detect(_):
            request = detect_request(picture, tiling={"tile_size": 400, "overlap": 0})
            return server.stub.Detect(request, timeout=PATIENCE_S)

        with ThreadPoolExecutor(callers) as pool:
            replies = list(pool.map(detect, range(callers)))
        growth = peak_bytes(server.process.pid) - before
    assert [reply.timings.tiles for reply in replies] == [1 + 25 * 13] * callers
    figure(f"{callers} pictures of 50 MP in tiles at once: grew by {growth >> 20} MiB, {kept >> 20} MiB of it for tiles at most")
    assert decoded < growth
    # As many are decoded, or kept, as may be, one at a time besides while it is turned into what it is; and what waits.
    assert growth < kept + 2 * decoded + callers * len(picture)
