"""Sends a camera, a video file or a folder of pictures over DetectStream and shows, or writes, what was found.

    pip install -r requirements.txt
    python camera.py 0                                # the first camera, in a window
    python camera.py street.mp4 --out annotated.mp4   # a file; every frame is looked at
    python camera.py frames/ --track --out annotated.mp4

A camera, or a URL of one, is streamed under LATEST: what is shown is as new as it can be, and frames that come too fast are dropped unseen. A file
is streamed under ALL. Frames go as JPEG, a tenth of the bytes of raw pixels and good enough for detectors; --raw sends them
as they are, for a fast network and a busy camera machine.

When the stream breaks off, another is opened, and what has no answer is sent again. The exit code is 0 if no frame failed.
"""

import argparse
import os
import re
import sys
import threading
import time
from pathlib import Path

os.environ.setdefault("OPENCV_LOG_LEVEL", "ERROR")
import cv2
import grpc
import numpy

# Made from the contract in memory, by grpcio-tools. A program that is installed has them generated beforehand.
sys.path.append(str(Path(__file__).resolve().parents[2] / "proto"))
pb, rpc = grpc.protos_and_services("detectd/v1/detection.proto")

# Of a folder, and of a camera that does not tell its own.
FPS = 25
PICTURES = {".bmp", ".jpeg", ".jpg", ".png", ".webp"}
# Between two streams: a server that restarts needs a moment.
PAUSE_S = 1
# How a broken connection shows; proxies and libraries do not agree on one code.
BROKEN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.CANCELLED)


def open_source(source: str):
    """Returns an iterator over pictures (BGR), and how many there are a second."""
    if Path(source).is_dir():
        paths = sorted(Path(source).iterdir(), key=lambda path: natural(path.name))
        paths = [str(path) for path in paths if path.suffix.lower() in PICTURES]
        if not paths:
            sys.exit(f"there is no picture in {source}")
        return pictures_of(paths), FPS
    if not source.isdigit() and "://" not in source and not Path(source).exists():
        sys.exit(f"there is no {source}")
    capture = cv2.VideoCapture(int(source) if source.isdigit() else source)
    if not capture.isOpened():
        sys.exit(f"cannot open {'camera ' if source.isdigit() else ''}{source}")
    fps = capture.get(cv2.CAP_PROP_FPS)
    return frames_of(capture), fps if fps > 0 else FPS


def pictures_of(paths):
    for path in paths:
        if (picture := cv2.imread(path)) is None:
            print(f"cannot read {path}", file=sys.stderr)
        yield picture


def frames_of(capture):
    while (picture := capture.read()[1]) is not None:
        yield picture


def natural(name: str) -> list:
    """Orders names so that img2 comes before img10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]


class Feed:
    """The pictures on their way: what is still to be sent, and what was sent and waits for its answer."""

    def __init__(self, pictures, config, raw: bool):
        self._pictures, self._config, self._raw = enumerate(pictures), config, raw
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._at_end = False
        self.waiting, self.unread = {}, 0

    def messages(self):
        """What a stream sends. gRPC takes it in a thread of its own, as fast as the server reads."""
        self._over = over = threading.Event()
        return self._messages(over, list(self.waiting.items()))

    def _messages(self, over, again):
        yield pb.DetectStreamRequest(config=self._config)
        while True:
            # Nothing is decoded or encoded any more once the stream is stopped, and the program may end.
            with self._lock:
                if over.is_set():
                    return
                number, picture = again.pop(0) if again else next(self._pictures, (None, None))
                if number is None:
                    self._at_end = True
                    return
                if picture is None:
                    self.unread += 1
                    continue
                self.waiting[number] = picture
                message = pb.DetectStreamRequest(frame=pb.Frame(frame_id=number, image=image_of(picture, self._raw)))
            yield message

    def stop(self) -> None:
        """No more for this stream. What it is taking now is left to the next."""
        self._over.set()
        with self._lock:
            pass

    def done(self) -> bool:
        return self._at_end and not self.waiting


def image_of(picture, raw: bool):
    height, width = picture.shape[:2]
    if raw:
        layout = dict(format=pb.PIXEL_FORMAT_BGR24, width=width, height=height)
        return pb.Image(raw=pb.RawImage(data=picture.tobytes(), **layout))
    return pb.Image(encoded=cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, 90])[1].tobytes())


def draw(picture, detections) -> None:
    for found in detections:
        box = found.box
        corners = (int(box.x_min), int(box.y_min)), (int(box.x_max), int(box.y_max))
        # A colour of its own for each class.
        hue = numpy.float32([[[found.class_id * 47 % 360, 0.8, 1.0]]])
        colour = [int(255 * channel) for channel in cv2.cvtColor(hue, cv2.COLOR_HSV2BGR)[0, 0]]
        cv2.rectangle(picture, *corners, colour, 2)
        name = f"{found.label} #{found.track_id}" if found.HasField("track_id") else f"{found.label} {found.score:.2f}"
        cv2.putText(picture, name, (corners[0][0], max(corners[0][1] - 5, 12)), cv2.FONT_HERSHEY_SIMPLEX, 0.5, colour, 1)


class Window:
    def __init__(self):
        try:
            # Without a display the library would end the program.
            if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
                raise cv2.error
            cv2.namedWindow("detectd")
        except cv2.error:
            sys.exit("no window can be shown here: write a video with --out FILE.mp4")

    def show(self, picture, looked_at: bool) -> bool:
        """Whether to go on. A frame that was dropped is not shown: its boxes would flicker."""
        if looked_at:
            cv2.imshow("detectd", picture)
        return cv2.waitKey(1) not in (27, ord("q"))

    def close(self) -> None:
        cv2.destroyAllWindows()


class Video:
    def __init__(self, path: str, fps: float):
        self._path, self._fps, self._writer = path, fps, None

    def show(self, picture, looked_at: bool) -> bool:
        """Writes every frame, looked at or not: what is written takes as long as what was seen."""
        if self._writer is None:
            self._size = picture.shape[1], picture.shape[0]
            self._writer = cv2.VideoWriter(self._path, cv2.VideoWriter_fourcc(*"mp4v"), self._fps, self._size)
            if not self._writer.isOpened():
                sys.exit(f"cannot write {self._path}")
        # A video has one size; a folder's pictures may have many.
        self._writer.write(cv2.resize(picture, self._size))
        return True

    def close(self) -> None:
        if self._writer:
            self._writer.release()


def stream_once(stub, feed, screen, count) -> str | None:
    """Returns why the stream broke off, or None when there is nothing more to do."""
    call = stub.DetectStream(feed.messages())
    cause = "the stream ended early"
    try:
        for message in call:
            if message.HasField("draining"):
                cause = "the server goes away"
                feed.stop()
            if not message.HasField("result"):
                continue
            result = message.result
            picture, outcome = feed.waiting.pop(result.frame_id), result.WhichOneof("outcome")
            count[outcome] += 1
            if outcome == "detections":
                draw(picture, result.detections.detections)
            elif outcome == "error":
                print(f"frame {result.frame_id}: {result.error.message}", file=sys.stderr)
            if not screen.show(picture, outcome == "detections"):
                return None
    except grpc.RpcError as error:
        cause = f"{error.code().name}: {error.details()}"
        if error.code() not in BROKEN:
            sys.exit(cause)
    finally:
        call.cancel()
        feed.stop()
    return None if feed.done() else cause


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", help="a camera's number, a video file, or a folder of pictures")
    parser.add_argument("--addr", default="127.0.0.1:50051")
    parser.add_argument("--model", default="")
    parser.add_argument("--out", help="write a video instead of showing a window")
    parser.add_argument("--track", action="store_true", help="follow objects from frame to frame")
    parser.add_argument("--raw", action="store_true", help="send pixels instead of JPEGs")
    parser.add_argument("--fps", type=float, help="of the video that is written; the source's own when unset")
    parser.add_argument("--retry-for", type=float, default=30, help="give up after so many seconds without an answer")
    arguments = parser.parse_args()

    pictures, fps = open_source(arguments.source)
    screen = Video(arguments.out, arguments.fps or fps) if arguments.out else Window()
    live = arguments.source.isdigit() or "://" in arguments.source
    policy = pb.FRAME_POLICY_LATEST if live else pb.FRAME_POLICY_ALL
    config = pb.StreamConfig(model=arguments.model, frame_policy=policy, track=arguments.track, heartbeat={"seconds": 20})
    feed = Feed(pictures, config, arguments.raw)
    count, began = {"detections": 0, "dropped": 0, "error": 0}, time.monotonic()
    try:
        with grpc.insecure_channel(arguments.addr) as channel:
            seen, lost = 0, time.monotonic()
            while cause := stream_once(rpc.DetectionServiceStub(channel), feed, screen, count):
                if sum(count.values()) > seen:
                    seen, lost = sum(count.values()), time.monotonic()
                if time.monotonic() - lost >= arguments.retry_for:
                    sys.exit(f"{cause}; no answer for {arguments.retry_for:g} s")
                print(f"{cause}; trying again", file=sys.stderr)
                time.sleep(PAUSE_S)
    except KeyboardInterrupt:
        pass
    finally:
        screen.close()
        rate = count["detections"] / (time.monotonic() - began)
        failed = count["error"] + feed.unread
        print(f"{count['detections']} frames answered, {count['dropped']} dropped, {failed} failed, {rate:.1f} a second")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
