"""DetectStream as asyncio sees it: several streams at once on one connection, some of their frames no pictures."""

import asyncio
from dataclasses import dataclass, field

import grpc
import pytest
from google.rpc import error_details_pb2

import echo
import wire
from streams import colour, config, frame, metric, shows, until
from wire import TIMEOUT_S, pb

STREAMS, FRAMES = 4, 300
NO_PROXY = [("grpc.enable_http_proxy", 0)]
INVALID_ARGUMENT = grpc.StatusCode.INVALID_ARGUMENT.value[0]
# What is wrong with one of so many frames of a stream.
FAULTS = {7: "UNSUPPORTED_FORMAT", 11: "INVALID_OPTION"}


def fault(number: int) -> str | None:
    """The reason that the error of a frame of that number gives; most have none."""
    return next((reason for each, reason in FAULTS.items() if number % each == each - 1), None)


def make_frame(stream: int, number: int) -> "pb.DetectStreamRequest":
    encoded = echo.flat_png(colour(stream, number))
    match fault(number):
        case "UNSUPPORTED_FORMAT":
            return frame(number, b"no picture at all")
        case "INVALID_OPTION":
            return frame(number, encoded, score_threshold=2)
        case _:
            return frame(number, encoded)


@dataclass
class Told:
    """What a stream was told: the numbers of its frames, in the order of their answers, and those of each kind."""

    order: list[int] = field(default_factory=list)
    answered: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    superseded: list[int] = field(default_factory=list)

    def add(self, stream: int, result: "pb.FrameResult") -> None:
        number = result.frame_id
        assert result.captured_at.seconds == number
        self.order.append(number)
        match result.WhichOneof("outcome"):
            case "detections":
                assert fault(number) is None
                assert shows(result.detections, colour(stream, number)), f"stream {stream}: {result}"
                self.answered.append(number)
            case "error":
                info = error_details_pb2.ErrorInfo()
                assert result.error.code == INVALID_ARGUMENT
                assert any(detail.Unpack(info) for detail in result.error.details)
                assert info.reason == fault(number)
                self.failed.append(number)
            case "dropped":
                assert result.dropped.reason == pb.DROP_REASON_SUPERSEDED
                self.superseded.append(number)


async def converse(stub, stream: int, policy: int) -> Told:
    """Sends all frames in one task and reads in another, as docs/STREAMING.md asks of a client."""
    call, told = stub.DetectStream(timeout=TIMEOUT_S), Told()

    async def send() -> None:
        await call.write(config(frame_policy=policy))
        for number in range(FRAMES):
            await call.write(make_frame(stream, number))
        await call.done_writing()

    async def read() -> None:
        started = (await call.read()).started
        assert (started.model.name, started.frame_policy) == ("echo", policy)
        while (message := await call.read()) is not grpc.aio.EOF:
            told.add(stream, message.result)

    await asyncio.gather(send(), read())
    assert await call.code() == grpc.StatusCode.OK
    return told


async def converse_all(address: str, policy: int) -> list[Told]:
    async with grpc.aio.insecure_channel(address, options=NO_PROXY) as channel:
        stub = wire.stub(channel)
        return await asyncio.gather(*(converse(stub, stream, policy) for stream in range(STREAMS)))


@pytest.mark.parametrize("policy", ["ALL", "LATEST"])
def test_four_streams_at_once_get_their_own_answers_and_errors(echo_server, figure, policy):
    value = pb.FramePolicy.Value(f"FRAME_POLICY_{policy}")
    accepted_before = metric(echo_server, "detectd_frames_accepted_total")
    streams = asyncio.run(converse_all(echo_server.grpc_address, value))
    for told in streams:
        # One for each, in order, whatever became of it.
        assert told.order == list(range(FRAMES))
        # Under LATEST a frame may be replaced before anyone sees what is wrong with it.
        assert told.failed == [number for number in range(FRAMES) if fault(number) and number not in told.superseded]
        # The newest is never replaced.
        assert told.answered and FRAMES - 1 not in told.superseded
        assert policy == "LATEST" or not told.superseded
    assert metric(echo_server, "detectd_frames_accepted_total") - accepted_before == STREAMS * FRAMES
    until(lambda: metric(echo_server, "detectd_streams") == 0)
    counts = [(len(told.answered), len(told.failed), len(told.superseded)) for told in streams]
    figure(f"{STREAMS} asyncio streams of {FRAMES} frames under {policy}: answered, failed, superseded {counts}")


def test_a_stream_that_is_cancelled_is_gone_and_its_neighbour_is_not(echo_server):
    async def cancel_one() -> None:
        async with grpc.aio.insecure_channel(echo_server.grpc_address, options=NO_PROXY) as channel:
            stub = wire.stub(channel)
            gone, stays = (stub.DetectStream(timeout=TIMEOUT_S) for _ in range(2))
            for call in (gone, stays):
                await call.write(config())
                assert (await call.read()).HasField("started")
            gone.cancel()
            await asyncio.to_thread(until, lambda: metric(echo_server, "detectd_streams") == 1)
            await stays.write(frame(1, echo.flat_png(colour(1, 1))))
            assert shows((await stays.read()).result.detections, colour(1, 1))
            await stays.done_writing()
            assert await stays.read() == grpc.aio.EOF

    asyncio.run(cancel_one())
    until(lambda: metric(echo_server, "detectd_streams") == 0)
