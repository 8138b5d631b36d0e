"""Sends a camera, a video file or a folder of pictures over DetectStream and shows, or writes, what was found.

    pip install -r requirements.txt
    python camera.py 0                                # the first camera, in a window
    python camera.py street.mp4 --out annotated.mp4   # a file; every frame is looked at
    python camera.py frames/ --track --out annotated.mp4

A camera is streamed under LATEST: what is shown is as new as it can be, and frames that come too fast are dropped unseen. A file
is streamed under ALL. Frames go as JPEG, a tenth of the bytes of raw pixels and good enough for detectors; --raw sends them
as they are, for a fast network and a busy camera machine.
"""

import argparse
import itertools
import queue
import sys
import sysconfig
import tempfile
import threading
import time
from importlib.resources import files
from pathlib import Path

import cv2
import grpc
from grpc_tools import protoc

PROTO = Path(__file__).resolve().parents[2] / "proto"
# Frames between the camera and the network: one is sent while the next is taken.
AHEAD = 2
# A server that restarts needs a moment.
PAUSE_S = 1


def load_stubs():
    """Makes the stubs from the contract; a program that is installed has them generated beforehand."""
    folder = tempfile.mkdtemp()
    common = sysconfig.get_paths()["purelib"]
    command = ["protoc", f"-I{PROTO}", f"-I{files('grpc_tools') / '_proto'}", f"-I{common}"]
    command += [f"--python_out={folder}", f"--grpc_python_out={folder}", "detectd/v1/detection.proto"]
    if protoc.main(command) != 0:
        sys.exit("the contract does not compile")
    sys.path.insert(0, folder)
    from detectd.v1 import detection_pb2, detection_pb2_grpc

    return detection_pb2, detection_pb2_grpc


pb, rpc = load_stubs()


def frames_of(source: str):
    """Yields pictures (BGR). A camera goes on for ever."""
    if Path(source).is_dir():
        for path in sorted(Path(source).iterdir()):
            if (picture := cv2.imread(str(path))) is not None:
                yield picture
        return
    capture = cv2.VideoCapture(int(source) if source.isdigit() else source)
    if not capture.isOpened():
        sys.exit(f"cannot open {source}")
    while True:
        there, picture = capture.read()
        if not there:
            return
        yield picture


def image_of(picture, raw: bool):
    height, width = picture.shape[:2]
    if raw:
        layout = dict(format=pb.PIXEL_FORMAT_BGR24, width=width, height=height)
        return pb.Image(raw=pb.RawImage(data=picture.tobytes(), **layout))
    return pb.Image(encoded=cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, 90])[1].tobytes())


def draw(picture, detections):
    for found in detections:
        box = found.box
        corners = (int(box.x_min), int(box.y_min)), (int(box.x_max), int(box.y_max))
        colour = [int(255 * channel) for channel in cv2.cvtColor(hue(found.class_id), cv2.COLOR_HSV2BGR)[0, 0]]
        cv2.rectangle(picture, *corners, colour, 2)
        name = f"{found.label} #{found.track_id}" if found.HasField("track_id") else f"{found.label} {found.score:.2f}"
        cv2.putText(picture, name, (corners[0][0], max(corners[0][1] - 5, 12)), cv2.FONT_HERSHEY_SIMPLEX, 0.5, colour, 1)


def hue(class_id: int):
    """A colour of its own for each class, as OpenCV's float HSV."""
    import numpy

    return numpy.float32([[[class_id * 47 % 360, 0.8, 1.0]]])


class Show:
    """A window, or a file."""

    def __init__(self, out: str | None, fps: float):
        self._out, self._fps, self._writer = out, fps, None

    def __call__(self, picture) -> bool:
        """Whether to go on."""
        if self._out is None:
            cv2.imshow("detectd", picture)
            return cv2.waitKey(1) not in (27, ord("q"))
        if self._writer is None:
            self._size = picture.shape[1], picture.shape[0]
            self._writer = cv2.VideoWriter(self._out, cv2.VideoWriter_fourcc(*"mp4v"), self._fps, self._size)
        # A video has one size; a folder's pictures may have many.
        self._writer.write(cv2.resize(picture, self._size))
        return True

    def close(self):
        if self._writer:
            self._writer.release()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", help="a camera's number, a video file, or a folder of pictures")
    parser.add_argument("--addr", default="127.0.0.1:50051")
    parser.add_argument("--model", default="")
    parser.add_argument("--out", help="write a video instead of showing a window")
    parser.add_argument("--track", action="store_true", help="follow objects from frame to frame")
    parser.add_argument("--raw", action="store_true", help="send pixels instead of JPEGs")
    parser.add_argument("--fps", type=float, default=25, help="of the video that is written")
    arguments = parser.parse_args()

    live = arguments.source.isdigit()
    policy = pb.FRAME_POLICY_LATEST if live else pb.FRAME_POLICY_ALL
    config = pb.StreamConfig(model=arguments.model, frame_policy=policy, track=arguments.track, heartbeat={"seconds": 20})
    pictures = enumerate(frames_of(arguments.source))
    # What was sent and is not answered: it is sent again if the server goes away.
    waiting: dict[int, object] = {}
    show, answered, dropped, began = Show(arguments.out, arguments.fps), 0, 0, time.monotonic()

    def stream_once(stub) -> bool:
        """Whether all is done; False when the server went away."""
        nonlocal answered, dropped, pictures
        outbox: queue.Queue = queue.Queue(AHEAD)
        over = threading.Event()
        pictures = itertools.chain(list(waiting.items()), pictures)
        waiting.clear()

        def put(message) -> bool:
            while not over.is_set():
                try:
                    outbox.put(message, timeout=0.2)
                    return True
                except queue.Full:
                    pass
            return False

        def feed():
            put(pb.DetectStreamRequest(config=config))
            for number, picture in pictures:
                waiting[number] = picture
                message = pb.DetectStreamRequest(frame=pb.Frame(frame_id=number, image=image_of(picture, arguments.raw)))
                if not put(message):
                    return
            put(None)

        feeding = threading.Thread(target=feed, daemon=True)
        feeding.start()
        draining = False
        try:
            call = stub.DetectStream(iter(outbox.get, None))
            for message in call:
                draining |= message.HasField("draining")
                if not message.HasField("result"):
                    continue
                result = message.result
                picture = waiting.pop(result.frame_id)
                if result.HasField("detections"):
                    answered += 1
                    draw(picture, result.detections.detections)
                    if not show(picture):
                        call.cancel()
                        return True
                else:
                    dropped += 1
                    if result.HasField("error"):
                        print(f"frame {result.frame_id}: {result.error.message}", file=sys.stderr)
            return not draining
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.UNAVAILABLE:
                sys.exit(f"{error.code().name}: {error.details()}")
            return False
        finally:
            over.set()
            feeding.join()

    try:
        with grpc.insecure_channel(arguments.addr) as channel:
            while not stream_once(rpc.DetectionServiceStub(channel)):
                print("the server goes away; trying again", file=sys.stderr)
                time.sleep(PAUSE_S)
    except KeyboardInterrupt:
        pass
    finally:
        show.close()
        took = time.monotonic() - began
        print(f"{answered} frames answered, {dropped} dropped, {answered / took:.1f} a second")


if __name__ == "__main__":
    main()
