"""DetectStream as grpcio sees it: clients that do not read or die, servers that end, proxies that lose patience."""

import contextlib
import io
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import grpc
import pytest
from PIL import Image

import echo
import proxy
import quiet
import wire
from paths import FIXTURES
from streams import Stream, colour, config, forget_peak, frame, memory_bytes, metric, shows, until
from wire import TIMEOUT_S

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="needs /proc to see what a process holds"
)
needs_envoy = pytest.mark.skipif(proxy.binary() is None, reason="no Envoy is installed")

# Its library reads no more ahead for it than some hundred answers, however short.
NO_READ_AHEAD = {"bdp_probe": 0, "lookahead_bytes": 8 << 10}


def jpeg_of_100_kb() -> bytes:
    """Noise, which compresses badly."""
    size = (450, 340)
    noise = Image.frombytes("RGB", size, os.urandom(math.prod(size) * 3))
    sink = io.BytesIO()
    noise.save(sink, "JPEG", quality=80)
    assert 90_000 < sink.tell() < 120_000
    return sink.getvalue()


def settings(folder: Path, text: str) -> list[str]:
    """Arguments for a server with these settings."""
    (folder / "settings.toml").write_text(text)
    return ["--config", str(folder / "settings.toml")]


@needs_proc
@pytest.mark.parametrize("policy", ["ALL", "LATEST"])
def test_a_client_that_never_reads_costs_little_and_hurts_nobody(start_server, tmp_path, figure, policy):
    picture, frames = jpeg_of_100_kb(), 2_000
    # As much in hand as a stream can get, when nothing of it is taken.
    terms = {"frame_policy": f"FRAME_POLICY_{policy}", "max_in_flight": 64}
    arguments = ["--default-model", "echo", *settings(tmp_path, '[grpc.stream]\nslow_reader_timeout = "3s"\n')]

    def feed(count: int):
        yield config(**terms)
        for number in range(count):
            yield frame(number, picture)

    with start_server(["echo"], arguments=arguments) as server:
        pid = server.process.pid
        cold = memory_bytes(pid, "VmRSS")
        # What streams take that are read, so that what is measured is what is not.
        for _ in range(2):
            read = [message for message in server.stub.DetectStream(feed(300), timeout=TIMEOUT_S)]
            assert len(read) == 301
        forget_peak(pid)
        before, accepted_before = memory_bytes(pid, "VmRSS"), metric(server, "detectd_frames_accepted_total")

        with wire.channel(server.grpc_address, **NO_READ_AHEAD) as channel:
            beside, apart = Stream(wire.stub(channel)), Stream(server.stub)
            assert beside.next().HasField("started") and apart.next().HasField("started")
            unread = wire.stub(channel).DetectStream(feed(frames))
            until(lambda: metric(server, "detectd_streams") == 3)
            began = time.monotonic()
            answered, longest = 0, 0.0
            # One on the same connection, one on another, and calls, until it has ended.
            while metric(server, "detectd_streams") == 3:
                asked = time.monotonic()
                beside.ask(answered, colour(1, answered % 2_560))
                apart.ask(answered, colour(2, answered % 2_560))
                reply = server.detect(echo.flat_png(colour(3, answered % 2_560)))
                assert shows(reply, colour(3, answered % 2_560))
                answered += 1
                longest = max(longest, time.monotonic() - asked)
            lasted = time.monotonic() - began
            growth = memory_bytes(pid, "VmHWM") - before
            taken_in = metric(server, "detectd_frames_accepted_total") - accepted_before - 2 * answered
            # What was sent before is there, in order, and then why there is no more.
            results = []
            with pytest.raises(grpc.RpcError) as ended:
                for message in unread:
                    if message.HasField("result"):
                        results.append(message.result.frame_id)
            # It is over for that one alone.
            beside.ask(answered, (5, 6, 7))
            for stream in (beside, apart):
                stream.close()
                assert list(stream.answers) == []
    figure(
        f"a client that sends {frames:,} frames of {len(picture) >> 10} KiB under {policy} and never reads: grew by "
        f"{growth / 2**20:.1f} MiB ({(growth + before - cold) / 2**20:.1f} since the start), {taken_in} taken in, "
        f"{len(results)} answered, ended after {lasted:.1f} s; beside it {answered} calls and frames of two streams, "
        f"at most {longest * 1000:.0f} ms for the three"
    )
    assert ended.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert wire.error_info(ended.value).reason == "SLOW_READER"
    assert results == list(range(len(results)))
    assert len(results) <= taken_in < frames
    assert answered > 10
    assert growth < 64 << 20


def test_on_sigterm_every_stream_is_told_and_everything_taken_in_is_answered(start_server, tmp_path, figure):
    grace_s = 20
    arguments = ["--default-model", "echo-slow", *settings(tmp_path, f'[drain]\ngrace = "{grace_s}s"\n')]
    with start_server(["echo-slow"], arguments=arguments) as server:
        busy = [Stream(server.stub) for _ in range(16)]
        idle = [Stream(server.stub) for _ in range(4)]
        for stream in busy + idle:
            assert stream.next().HasField("started")
        for n, stream in enumerate(busy):
            for number in range(100):
                stream.send(frame(number, echo.flat_png((number, 10 * n, 30))))
        # Every one of them is in the middle of it.
        for stream in busy:
            assert stream.result().frame_id == 0
        server.process.send_signal(signal.SIGTERM)
        told = time.monotonic()
        for stream in idle:
            message = stream.next()
            assert message.HasField("draining") and not message.draining.HasField("last_frame_id")
            assert list(stream.answers) == []
            assert stream.answers.code() == grpc.StatusCode.OK
        after = 0
        for n, stream in enumerate(busy):
            answered, drainings = [0], []
            for message in stream.answers:
                if message.HasField("draining"):
                    drainings.append(message.draining)
                    continue
                assert shows(message.result.detections, (message.result.frame_id, 10 * n, 30)), message
                answered.append(message.result.frame_id)
                after += len(drainings)
            (draining,) = drainings
            assert draining.HasField("last_frame_id") and draining.last_frame_id < 99
            assert answered == list(range(draining.last_frame_id + 1))
            assert stream.answers.code() == grpc.StatusCode.OK
        assert server.process.wait(timeout=grace_s + TIMEOUT_S) == 0
        took = time.monotonic() - told
    figure(
        f"SIGTERM with 16 busy and 4 idle streams: {after} answers after StreamDraining, "
        f"exit 0 after {took:.2f} s of {grace_s} s of grace"
    )
    # Some were in hand, or this has shown nothing.
    assert after > 16
    assert took < grace_s + 1


def test_a_stream_that_is_not_read_holds_the_end_up_for_the_grace_and_no_more(start_server, tmp_path, figure):
    grace_s, frames = 2, 5_000
    arguments = ["--default-model", "echo", *settings(tmp_path, f'[drain]\ngrace = "{grace_s}s"\n')]
    with (
        start_server(["echo"], arguments=arguments) as server,
        wire.channel(server.grpc_address, **NO_READ_AHEAD) as channel,
    ):
        messages = [config(), *(frame(number, echo.flat_png((1, 2, 3))) for number in range(frames))]
        unread = wire.stub(channel).DetectStream(iter(messages))
        # It is stuck when nothing more is taken in while others are answered.
        seen = [-1, -2, -3]
        while len(set(seen)) > 1:
            for _ in range(20):
                server.detect(echo.flat_png((1, 2, 3)))
            seen = [*seen[1:], metric(server, "detectd_frames_accepted_total")]
        assert 0 < seen[0] < frames
        server.process.send_signal(signal.SIGTERM)
        told = time.monotonic()
        assert server.process.wait(timeout=grace_s + TIMEOUT_S) == 0
        took = time.monotonic() - told
        unread.cancel()
    figure(f"SIGTERM with a stream that is not read: exit 0 after {took:.2f} s, {grace_s} s of them grace")
    assert took < grace_s + 1


@needs_envoy
@pytest.mark.quiet_minute
def test_a_heartbeat_keeps_a_quiet_stream_alive_behind_a_proxy(quiet_minute, figure):
    silent = quiet_minute.silent.result(timeout=quiet.QUIET_S + TIMEOUT_S)
    beating = quiet_minute.beating.result(timeout=quiet.QUIET_S + TIMEOUT_S)
    figure(
        f"behind Envoy with {quiet.PROXY_IDLE_S} s of idle time: "
        f"{beating.beats} heartbeats in {beating.quiet_s:.0f} s; "
        f"without them cut after {silent.after_s:.1f} s with {silent.code.name} ({silent.details})"
    )
    # What docs/STREAMING.md tells clients to look for.
    assert silent.code == grpc.StatusCode.INTERNAL
    assert quiet.PROXY_IDLE_S - 1 < silent.after_s < 3 * quiet.PROXY_IDLE_S
    assert beating.quiet_s >= quiet.QUIET_S
    assert beating.beats >= quiet.QUIET_S / quiet.PROXY_IDLE_S
    # It is not only there, it works.
    assert shows(beating.result.detections, (1, 2, 3))
    assert beating.code == grpc.StatusCode.OK


@needs_envoy
def test_after_a_proxy_has_been_restarted_a_client_goes_on_with_another_stream(echo_server, tmp_path):
    upstream, idle_s = echo_server.grpc_address, quiet.PROXY_IDLE_S
    with contextlib.ExitStack() as before:
        address = before.enter_context(proxy.running(tmp_path, upstream, idle_s))
        with wire.channel(address) as channel:
            stub = wire.stub(channel)
            stream = Stream(stub)
            assert stream.next().HasField("started")
            for number in range(3):
                stream.ask(number, colour(1, number))
            # The proxy ends.
            before.close()
            with pytest.raises(grpc.RpcError) as cut:
                stream.next()
            assert cut.value.code() == grpc.StatusCode.UNAVAILABLE
            until(lambda: metric(echo_server, "detectd_streams") == 0)
            # And is there again, at the same address.
            with proxy.running(tmp_path, upstream, idle_s, port=int(address.rsplit(":", 1)[1])):
                stream = Stream(stub, wait_for_ready=True)
                assert stream.next().HasField("started")
                for number in range(3, 6):
                    stream.ask(number, colour(1, number))
                stream.close()
                assert list(stream.answers) == []


# A client with more frames under way than are looked at in a moment.
CLIENT = """
import sys, threading
import echo, wire
from streams import Stream, frame

with wire.channel(sys.argv[1]) as channel:
    streams = [Stream(wire.stub(channel), max_in_flight=64) for _ in range(4)]
    for stream in streams:
        assert stream.next().HasField("started")
        for number in range(200):
            stream.send(frame(number, echo.flat_png((1, 2, 3))))
    threading.Event().wait()
"""


def test_a_killed_client_takes_its_streams_and_its_frames_with_it(start_server, tmp_path, figure):
    # However many cores there are, one does it: the others would be through with it too soon.
    card = shutil.copytree(FIXTURES / "echo-slow", tmp_path / "echo-slow") / "model.toml"
    card.write_text(f'{card.read_text()}\n[[instances]]\ndevice = "cpu"\ncount = 1\n')
    with start_server(["echo-slow"], source=tmp_path, arguments=["--default-model", "echo-slow"]) as server:
        client = subprocess.Popen([sys.executable, "-c", CLIENT, server.grpc_address], cwd=Path(__file__).parent)
        try:
            # Its windows are full.
            until(lambda: metric(server, "detectd_frames_accepted_total") >= 4 * 64)
            assert metric(server, "detectd_streams") == 4
        finally:
            client.kill()
            client.wait()
        until(lambda: metric(server, "detectd_streams") == 0)
        accepted = metric(server, "detectd_frames_accepted_total")
        # Nobody's frames stand before a call's picture.
        assert shows(server.detect(echo.flat_png((9, 8, 7))), (9, 8, 7))
        prepared = metric(server, "detectd_pictures_prepared_total") - 1
        until(lambda: metric(server, "detectd_requests_let_go_total") >= accepted - prepared)
    figure(f"a client killed with four streams: {accepted} frames taken in, {prepared} of them begun")
    assert prepared < accepted
