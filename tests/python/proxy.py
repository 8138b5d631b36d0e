"""Runs a real Envoy in front of a server, for a test."""

import contextlib
import importlib.util
import json
import re
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Iterator

# Starting is a matter of a second; a bound on a hang.
START_TIMEOUT_S = 30


def binary() -> Path | None:
    """Envoy itself, not the script around it, which would not pass signals on; None where it is not installed."""
    package = importlib.util.find_spec("envoy")
    found = package and Path(package.origin).with_name("_bin") / "envoy"
    return found if found and found.exists() else None


def config(upstream: str, stream_idle_timeout_s: float, port: int = 0) -> dict:
    """HTTP/2 on both sides, one route to `upstream`. Without `port` its port is Envoy's to choose."""
    host, upstream_port = upstream.rsplit(":", 1)
    any_port = {"socket_address": {"address": "127.0.0.1", "port_value": 0}}
    manager = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
    protocol = "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    endpoint = {"address": {"socket_address": {"address": host, "port_value": int(upstream_port)}}}
    connection_manager = {
        "@type": manager,
        "stat_prefix": "grpc",
        "codec_type": "HTTP2",
        "stream_idle_timeout": f"{stream_idle_timeout_s}s",
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    # A stream has no end that a route could wait for.
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "detectd", "timeout": "0s"}}],
                }
            ]
        },
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
            }
        ],
    }
    filters = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": connection_manager}]
    own = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    listener = {"name": "grpc", "address": own, "filter_chains": [{"filters": filters}]}
    cluster = {
        "name": "detectd",
        "type": "STATIC",
        "connect_timeout": "5s",
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": protocol,
                "explicit_http_config": {"http2_protocol_options": {}},
            }
        },
        "load_assignment": {"cluster_name": "detectd", "endpoints": [{"lb_endpoints": [{"endpoint": endpoint}]}]},
    }
    return {"admin": {"address": any_port}, "static_resources": {"listeners": [listener], "clusters": [cluster]}}


@contextlib.contextmanager
def running(folder: Path, upstream: str, stream_idle_timeout_s: float, port: int = 0) -> Iterator[str]:
    """Gives the address of an Envoy in front of `upstream`; its files lie in `folder`."""
    (folder / "envoy.json").write_text(json.dumps(config(upstream, stream_idle_timeout_s, port)))
    admin = folder / "admin.txt"
    # One that ran here before has told of itself.
    admin.unlink(missing_ok=True)
    with (folder / "envoy.log").open("w") as log:
        process = subprocess.Popen(
            [binary(), "-c", folder / "envoy.json", "--admin-address-path", admin, "--use-dynamic-base-id"]
            + ["--concurrency", "1", "--log-level", "warning"],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield _listening(process, admin, folder / "envoy.log")
    finally:
        process.terminate()
        process.wait(timeout=START_TIMEOUT_S)


def _listening(process: subprocess.Popen, admin: Path, log: Path) -> str:
    """Asks the admin page until it tells where Envoy listens."""
    by = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < by:
        assert process.poll() is None, log.read_text()
        with contextlib.suppress(OSError):
            page = urllib.request.urlopen(f"http://{admin.read_text()}/listeners?format=text", timeout=5)
            if found := re.search(r"grpc::(\S+:\d+)", page.read().decode()):
                return found[1]
        time.sleep(0.05)
    raise AssertionError(f"Envoy does not listen:\n{log.read_text()}")
