"""DetectStream as grpcio sees it: readers that do not read, servers that end, proxies that lose patience."""

import io
import os
import queue
import re
import signal
import threading
import time
import urllib.request
from pathlib import Path

import grpc
import pytest
from PIL import Image

import echo
import proxy
import wire
from server import detect_request
from wire import TIMEOUT_S, pb

needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to see what a process holds")


def jpeg_of_100_kb() -> bytes:
    """Noise, which compresses badly."""
    noise = Image.frombytes("RGB", (360, 270), os.urandom(360 * 270 * 3))
    sink = io.BytesIO()
    noise.save(sink, "JPEG", quality=80)
    return sink.getvalue()


def frame(number: int, encoded: bytes) -> "pb.DetectStreamRequest":
    return pb.DetectStreamRequest(frame=pb.Frame(frame_id=number, image=pb.Image(encoded=encoded)))


def config(**fields) -> "pb.DetectStreamRequest":
    return pb.DetectStreamRequest(config=pb.StreamConfig(**fields))


class Stream:
    """A stream that is fed message by message."""

    def __init__(self, stub, **fields):
        self._messages = queue.SimpleQueue()
        self.send(config(**fields))
        self.answers = stub.DetectStream(iter(self._messages.get, None))

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


def memory_bytes(pid: int, key: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"{key}:\s+(\d+) kB", status)[1]) * 1024


def metric(server, name: str) -> int:
    page = urllib.request.urlopen(f"http://{server.http_address}/metrics", timeout=TIMEOUT_S).read().decode()
    return sum(int(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\d+)$", page, re.MULTILINE))


def until(condition) -> None:
    by = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < by, "it does not come true"


@needs_proc
def test_a_client_that_never_reads_costs_little_and_hurts_nobody(start_server, tmp_path, figure):
    settings = tmp_path / "settings.toml"
    settings.write_text('[grpc.stream]\nslow_reader_timeout = "3s"\n')
    picture = jpeg_of_100_kb()
    with start_server(["echo"], arguments=["--default-model", "echo", "--config", str(settings)]) as server:
        # What a stream takes that is read, so that what is measured is what is not.
        def feed(count: int):
            yield config()
            for number in range(count):
                yield frame(number, picture)

        read = [message for message in server.stub.DetectStream(feed(300), timeout=TIMEOUT_S)]
        assert len(read) == 301
        before = memory_bytes(server.process.pid, "VmRSS")

        # Its library holds what HTTP/2 begins with, and does not ask for more by itself.
        with wire.channel(server.grpc_address, bdp_probe=0, lookahead_bytes=65_535) as channel:
            unread = wire.stub(channel).DetectStream(feed(2_000))
            # Others, while it is not read and until it has ended.
            other, answered, most = Stream(server.stub), 0, 0
            assert other.next().HasField("started")
            until(lambda: metric(server, "detectd_streams") == 2)
            while metric(server, "detectd_streams") == 2:
                other.send(frame(answered, echo.flat_png((10, 20, 30))))
                assert other.result().detections.detections
                assert server.detect(echo.flat_png((1, 2, 3))).detections
                answered += 1
                most = max(most, memory_bytes(server.process.pid, "VmRSS"))
            # What was sent before is there, in order, and then why there is no more.
            results = []
            with pytest.raises(grpc.RpcError) as ended:
                for message in unread:
                    if message.HasField("result"):
                        results.append(message.result.frame_id)
        other.close()
    assert ended.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert wire.error_info(ended.value).reason == "SLOW_READER"
    assert results == list(range(len(results))) and len(results) < 2_000
    growth = most - before
    figure(f"a client that sends 2,000 frames and never reads: grew by {growth / 2**20:.1f} MiB, {answered} calls beside it")
    assert answered > 10
    assert growth < 64 << 20


def test_on_sigterm_every_stream_is_told_and_everything_taken_in_is_answered(start_server, tmp_path, figure):
    grace_s = 20
    settings = tmp_path / "settings.toml"
    settings.write_text(f'[drain]\ngrace = "{grace_s}s"\n')
    arguments = ["--default-model", "echo-slow", "--config", str(settings)]
    with start_server(["echo-slow"], arguments=arguments) as server:
        busy = [Stream(server.stub) for _ in range(16)]
        idle = [Stream(server.stub) for _ in range(4)]
        for stream in busy + idle:
            assert stream.next().HasField("started")
        for stream in busy:
            for number in range(100):
                stream.send(frame(number, echo.flat_png((number, 20, 30))))
        # Every one of them is in the middle of it.
        first = [stream.result().frame_id for stream in busy]
        assert first == [0] * 16
        server.process.send_signal(signal.SIGTERM)
        told = time.monotonic()
        for stream in idle:
            draining = stream.next().draining
            assert not draining.HasField("last_frame_id")
            assert list(stream.answers) == []
        for stream in busy:
            answered, last = [0], None
            for message in stream.answers:
                if message.HasField("draining"):
                    last = message.draining.last_frame_id
                else:
                    assert message.result.HasField("detections"), message
                    answered.append(message.result.frame_id)
            assert last is not None and answered == list(range(last + 1))
            assert stream.answers.code() == grpc.StatusCode.OK
        assert server.process.wait(timeout=grace_s + TIMEOUT_S) == 0
        took = time.monotonic() - told
    figure(f"SIGTERM with 16 busy and 4 idle streams: exit 0 after {took:.2f} s of {grace_s} s of grace")
    assert took < grace_s + 1


@pytest.mark.skipif(proxy.binary() is None, reason="no Envoy is installed")
def test_a_heartbeat_keeps_a_quiet_stream_alive_behind_a_proxy(echo_server, tmp_path, figure):
    idle_s, quiet_s = 5, 60
    with proxy.running(tmp_path, echo_server.grpc_address, idle_s) as address, wire.channel(address) as channel:
        stub = wire.stub(channel)
        began = time.monotonic()
        cut = {}

        def without_heartbeat():
            stream = Stream(stub)
            assert stream.next().HasField("started")
            try:
                stream.next()
            except grpc.RpcError as error:
                cut["after"], cut["code"] = time.monotonic() - began, error.code()

        silent = threading.Thread(target=without_heartbeat)
        silent.start()
        stream = Stream(stub, heartbeat={"seconds": 2})
        assert stream.next().HasField("started")
        beats = 0
        while time.monotonic() - began < quiet_s:
            assert stream.next().HasField("heartbeat")
            beats += 1
        # It is not only there, it works.
        stream.send(frame(1, echo.flat_png((1, 2, 3))))
        answer = stream.next()
        while answer.HasField("heartbeat"):
            answer = stream.next()
        assert answer.result.detections.detections
        stream.close()
        silent.join()
    figure(f"behind Envoy with {idle_s} s of idle time: {beats} heartbeats in {quiet_s} s; without them cut after {cut['after']:.1f} s with {cut['code'].name}")
    assert beats >= quiet_s / 2 - 3
    assert idle_s - 1 < cut["after"] < quiet_s


def test_a_killed_client_leaves_nothing_behind(echo_server):
    with wire.channel(echo_server.grpc_address) as channel:
        stream = Stream(wire.stub(channel))
        assert stream.next().HasField("started")
        assert metric(echo_server, "detectd_streams") == 1
    until(lambda: metric(echo_server, "detectd_streams") == 0)
    assert echo_server.stub.Detect(detect_request(echo.flat_png((1, 2, 3))), timeout=TIMEOUT_S).detections
