"""Runs the real binary for a test: its own models, free ports, a proper end."""

import contextlib
import os
import queue
import re
import shutil
import signal
import subprocess
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Iterable, Iterator

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

import wire
from paths import BINARY, ONNXRUNTIME

ADDRESSES = re.compile(r"grpc=(?P<grpc>\S+) http=(?P<http>\S+)")
# Binding comes before any model is loaded, loading on a busy machine takes its time, draining has nothing to wait
# for. All are bounds on a hang.
BIND_TIMEOUT_S, READY_TIMEOUT_S, STOP_TIMEOUT_S = 30, 120, 30


@dataclass
class Server:
    """A server that is SERVING, and a client of it."""

    process: subprocess.Popen
    grpc_address: str
    http_address: str
    channel: grpc.Channel
    stub: "wire.pb_grpc.DetectionServiceStub"
    # What it logged so far, line by line; complete once the server has ended.
    log: list[str] = field(default_factory=list)

    @property
    def health(self) -> health_pb2_grpc.HealthStub:
        return health_pb2_grpc.HealthStub(self.channel)

    def detect(self, encoded: bytes, model: str = "", **options) -> "wire.pb.DetectResponse":
        """Sends one encoded picture; `options` are fields of DetectOptions."""
        return self.stub.Detect(detect_request(encoded, model, **options), timeout=wire.TIMEOUT_S)


def detect_request(encoded: bytes, model: str = "", **options) -> "wire.pb.DetectRequest":
    return wire.pb.DetectRequest(
        model=model,
        image=wire.pb.Image(encoded=encoded),
        options=wire.pb.DetectOptions(**options) if options else None,
    )


def lay_out(names: Iterable[str], source: Path, target: Path) -> Path:
    """Copies the models `names` of the repository `source` into a repository `target` of their own."""
    for name in names:
        shutil.copytree(source / name, target / name)
    return target


def environment() -> dict[str, str]:
    """The caller's environment without settings for a detectd of his own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DETECTD_")}
    return {**kept, "DETECTD_ONNXRUNTIME": str(ONNXRUNTIME), "NO_COLOR": "1"}


def _await_addresses(process: subprocess.Popen, log: list[str]) -> tuple[str, str]:
    """Returns the addresses that the server logs; goes on collecting its log in the background."""
    found: queue.Queue = queue.Queue()

    def read() -> None:
        for line in process.stderr:
            log.append(line)
            if match := ADDRESSES.search(line):
                found.put((match["grpc"], match["http"]))
        found.put(None)

    threading.Thread(target=read, daemon=True).start()
    try:
        addresses = found.get(timeout=BIND_TIMEOUT_S)
    except queue.Empty:
        addresses = None
    assert addresses, f"the server did not log its addresses:\n{''.join(log)}"
    return addresses


def await_serving(channel: grpc.Channel, service: str = "", timeout: float = READY_TIMEOUT_S) -> None:
    """Returns once the health of `service` is SERVING, as the server itself announces it."""
    watch = health_pb2_grpc.HealthStub(channel).Watch(
        health_pb2.HealthCheckRequest(service=service), timeout=timeout
    )
    for answer in watch:
        if answer.status == health_pb2.HealthCheckResponse.SERVING:
            watch.cancel()
            return
    raise AssertionError(f"the health of {service!r} ended without SERVING")


@contextlib.contextmanager
def running(models: Path, *arguments: str, ready: bool = True, port: int = 0) -> Iterator[Server]:
    """Runs a server over the repository `models`; on leaving it must end by itself, with exit code 0.

    `arguments` follow `detectd serve`. With `ready` false it is yielded as soon as it is bound. `port` is
    the gRPC door's; 0 is any that is free.
    """
    assert BINARY.is_file(), f"{BINARY} is missing: build it (cargo build) or set DETECTD_BIN"
    command = [BINARY, "serve", "--grpc-addr", f"127.0.0.1:{port}", "--http-addr", "127.0.0.1:0"]
    process = subprocess.Popen(
        [*map(str, command), "--models", str(models), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=environment(),
        cwd=models,
    )
    log: list[str] = []
    try:
        grpc_address, http_address = _await_addresses(process, log)
        with wire.channel(grpc_address) as channel:
            if ready:
                try:
                    await_serving(channel)
                except grpc.RpcError as error:
                    raise AssertionError(f"not ready: {error.details()}\n{''.join(log)}") from error
            yield Server(process, grpc_address, http_address, channel, wire.stub(channel), log)
        process.send_signal(signal.SIGTERM)
        code = process.wait(timeout=STOP_TIMEOUT_S)
        assert code == 0, f"the server ended with {code}:\n{''.join(log)}"
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
