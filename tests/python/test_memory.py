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
