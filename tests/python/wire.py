"""The contract as Python sees it, and what a client reads out of an error.

The stubs are made from proto/ each time this module is imported and kept in memory only, so they are never
older than the contract.
"""

import sys
import sysconfig
import tempfile
from importlib.resources import files

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from grpc_tools import protoc

from paths import PROTO

SERVICE = "detectd.v1.DetectionService"
# A call that takes longer has hung; no test waits on purpose.
TIMEOUT_S = 30


def _load_stubs():
    # google/protobuf/*.proto come with grpcio-tools, google/rpc/*.proto with googleapis-common-protos. The
    # latter's Python modules are installed too, which is why only our own package is generated.
    includes = (PROTO, files("grpc_tools") / "_proto", sysconfig.get_paths()["purelib"])
    with tempfile.TemporaryDirectory() as folder:
        command = ["protoc", *(f"-I{path}" for path in includes)]
        command += [f"--python_out={folder}", f"--grpc_python_out={folder}"]
        if protoc.main([*command, "detectd/v1/detection.proto"]) != 0:
            raise RuntimeError("proto/detectd/v1/detection.proto does not compile")
        sys.path.insert(0, folder)
        try:
            from detectd.v1 import detection_pb2, detection_pb2_grpc
        finally:
            sys.path.remove(folder)
    return detection_pb2, detection_pb2_grpc


pb, pb_grpc = _load_stubs()


def channel(address: str, **options: int) -> grpc.Channel:
    """Opens a channel to `address`, past any proxy that the environment names. `options` are of gRPC's http2."""
    named = [(f"grpc.http2.{name}", value) for name, value in options.items()]
    return grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0), *named])


def stub(open_channel: grpc.Channel) -> "pb_grpc.DetectionServiceStub":
    return pb_grpc.DetectionServiceStub(open_channel)


def error_info(error: grpc.RpcError) -> error_details_pb2.ErrorInfo:
    """Returns the google.rpc.ErrorInfo that came with `error`."""
    status = rpc_status.from_call(error)
    assert status is not None, f"no details came with {error.code()}: {error.details()}"
    for detail in status.details:
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info):
            return info
    raise AssertionError(f"no ErrorInfo came with {error.code()}: {error.details()}")
