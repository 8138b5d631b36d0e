"""A quiet minute behind a proxy, which passes while other tests run: two streams take little of the machine."""

import contextlib
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator

import grpc

import echo
import proxy
import wire
from server import Server
from streams import Stream, frame

PROXY_IDLE_S, HEARTBEAT_S, QUIET_S = 5, 2, 60


@dataclass
class Silent:
    """A stream without heartbeats: how it ended, and after how long."""

    code: grpc.StatusCode
    details: str
    after_s: float


@dataclass
class Beating:
    """A stream with heartbeats: how many came, for how long, and what it said to the frame after them."""

    beats: int
    quiet_s: float
    result: "wire.pb.FrameResult"
    code: grpc.StatusCode


@dataclass
class Minute:
    """Two streams of one connection to one proxy, begun together."""

    silent: "Future[Silent]"
    beating: "Future[Beating]"


def _stay_silent(stub) -> Silent:
    stream = Stream(stub)
    assert stream.next().HasField("started")
    began = time.monotonic()
    try:
        raise AssertionError(f"{stream.next()} on a stream that says nothing")
    except grpc.RpcError as error:
        return Silent(error.code(), error.details(), time.monotonic() - began)


def _beat(stub, given_up: threading.Event) -> Beating:
    stream, beats = Stream(stub, heartbeat={"seconds": HEARTBEAT_S}), 0
    assert stream.next().HasField("started")
    began = time.monotonic()
    while (quiet_s := time.monotonic() - began) < QUIET_S and not given_up.is_set():
        assert stream.next().HasField("heartbeat")
        beats += 1
    stream.send(frame(1, echo.flat_png((1, 2, 3))))
    stream.close()
    # The next beat may be on its way already.
    told = [message for message in stream.answers if not message.HasField("heartbeat")]
    assert len(told) == 1, told
    return Beating(beats, quiet_s, told[0].result, stream.answers.code())


@contextlib.contextmanager
def minute(server: Server, folder: Path) -> Iterator[Minute]:
    """Begins it. On leaving before its end it is given up, without an outcome."""
    given_up = threading.Event()
    with (
        proxy.running(folder, server.grpc_address, PROXY_IDLE_S) as address,
        wire.channel(address) as channel,
        ThreadPoolExecutor(2) as threads,
    ):
        stub = wire.stub(channel)
        begun = Minute(threads.submit(_stay_silent, stub), threads.submit(_beat, stub, given_up))
        try:
            yield begun
        finally:
            given_up.set()
