"""Streams from a client's side: their messages, what is told of them, and what the server counts meanwhile."""

import queue
import re
import time
import urllib.request
from pathlib import Path

import echo
from wire import TIMEOUT_S, pb

# Between two questions to a server that is asked in a loop.
PAUSE_S = 0.02


def config(**fields) -> "pb.DetectStreamRequest":
    return pb.DetectStreamRequest(config=pb.StreamConfig(**fields))


def frame(number: int, encoded: bytes, **options) -> "pb.DetectStreamRequest":
    """A frame that says as its time what its number is; `options` are fields of DetectOptions."""
    return pb.DetectStreamRequest(
        frame=pb.Frame(
            frame_id=number,
            captured_at={"seconds": number},
            image=pb.Image(encoded=encoded),
            options=pb.DetectOptions(**options) if options else None,
        )
    )


def colour(stream: int, number: int) -> tuple[int, int, int]:
    """Of a stream's frame: no two of 10 streams and 2,560 frames have the same, nor the same boxes."""
    return 25 * stream, number % 256, 25 * (number // 256)


def shows(reply: "pb.DetectResponse", expected: tuple[int, int, int]) -> bool:
    """Whether `reply` is what echo says to a picture of that colour, 64 x 48 pixels large."""
    boxes = [box for box in echo.answer(expected, 64, 48) if box[1] >= echo.DEFAULT_THRESHOLD]
    if len(boxes) != len(reply.detections):
        return False
    for found, (label, score, corners) in zip(reply.detections, boxes):
        told = (found.box.x_min, found.box.y_min, found.box.x_max, found.box.y_max)
        near = all(abs(one - other) < 0.02 for one, other in zip(told, corners))
        if found.label != label or abs(found.score - score) > 1e-3 or not near:
            return False
    return True


class Stream:
    """A stream that is fed message by message."""

    def __init__(self, stub, wait_for_ready: bool = False, **fields):
        self._messages = queue.SimpleQueue()
        self.send(config(**fields))
        self.answers = stub.DetectStream(iter(self._messages.get, None), wait_for_ready=wait_for_ready)

    def send(self, message) -> None:
        self._messages.put(message)

    def close(self) -> None:
        self._messages.put(None)

    def next(self):
        """The next message, of whatever kind."""
        return next(self.answers)

    def result(self) -> "pb.FrameResult":
        message = self.next()
        assert message.WhichOneof("payload") == "result", message
        return message.result

    def ask(self, number: int, expected: tuple[int, int, int]) -> None:
        """Sends a picture of that colour and gets the answer to it."""
        self.send(frame(number, echo.flat_png(expected)))
        result = self.result()
        assert (result.frame_id, result.captured_at.seconds) == (number, number)
        assert shows(result.detections, expected), result


def memory_bytes(pid: int, key: str) -> int:
    """What the system says of a process: VmRSS is what it holds now, VmHWM the most that it ever held."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"{key}:\s+(\d+) kB", status)[1]) * 1024


def forget_peak(pid: int) -> None:
    """Makes VmHWM begin anew."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def metric(server, name: str) -> int:
    """What the server says of `name`, summed over its labels."""
    page = urllib.request.urlopen(f"http://{server.http_address}/metrics", timeout=TIMEOUT_S).read().decode()
    return sum(int(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\d+)$", page, re.MULTILINE))


def until(condition) -> None:
    by = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < by, "it does not come true"
        time.sleep(PAUSE_S)
