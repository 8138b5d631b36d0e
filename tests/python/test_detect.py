"""A stock Python client against the real server: boxes, models, health, reflection and errors."""

import grpc
import pytest
from google.protobuf import descriptor_pool
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

import echo
from server import detect_request
from wire import SERVICE, TIMEOUT_S, error_info, pb

COLOUR = (200, 100, 50)
PICTURE = echo.flat_png(COLOUR)
SERVING = health_pb2.HealthCheckResponse.SERVING


def assert_answers(reply, expected):
    """`reply` holds the boxes `expected` (as `echo.answer` gives them), within f32 rounding."""
    assert [d.label for d in reply.detections] == [label for label, _, _ in expected]
    for detection, (label, score, box) in zip(reply.detections, expected):
        got = (detection.box.x_min, detection.box.y_min, detection.box.x_max, detection.box.y_max)
        assert detection.class_id == echo.LABELS.index(label)
        assert detection.score == pytest.approx(score, abs=1e-4)
        assert got == pytest.approx(box, abs=1e-2)


def refused(call, code):
    """Returns the ErrorInfo of `call`, which must fail with `code`."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    assert caught.value.code() == code, caught.value.details()
    info = error_info(caught.value)
    assert info.domain == "detectd"
    return info


# --- boxes ---


@pytest.mark.parametrize("colour", [COLOUR, (0, 0, 0), (255, 255, 255), (0, 0, 255), (255, 0, 0), (0, 255, 0)])
@pytest.mark.parametrize("size", [(64, 48), (16, 16), (5, 700)])
def test_boxes_are_those_of_the_picture_sent(echo_server, colour, size):
    reply = echo_server.detect(echo.flat_png(colour, *size), score_threshold=0)
    assert_answers(reply, echo.answer(colour, *size))
    assert (reply.image_size.width, reply.image_size.height) == size


def test_reply_names_model_version_and_timings(echo_server):
    reply = echo_server.detect(PICTURE, model="echo")
    assert (reply.model.name, reply.model.version) == ("echo", "1")
    timings = reply.timings
    assert timings.total.ToNanoseconds() >= timings.inference.ToNanoseconds() > 0
    assert timings.preprocess.ToNanoseconds() > 0
    assert timings.device == "cpu:0"
    assert timings.batch_size == 1 and timings.tiles == 1


def test_threshold_unset_means_the_models_own(echo_server):
    reply = echo_server.detect(PICTURE)
    assert_answers(reply, echo.answer(COLOUR, 64, 48)[:3])
    assert reply.effective_options.score_threshold == pytest.approx(echo.DEFAULT_THRESHOLD)


def test_threshold_0_means_0(echo_server):
    reply = echo_server.detect(PICTURE, score_threshold=0)
    assert_answers(reply, echo.answer(COLOUR, 64, 48))
    assert reply.effective_options.HasField("score_threshold")
    assert reply.effective_options.score_threshold == 0


def test_threshold_1_means_1(echo_server):
    reply = echo_server.detect(PICTURE, score_threshold=1)
    assert_answers(reply, [])
    assert reply.effective_options.score_threshold == 1


def test_max_detections_cuts_the_list_and_says_so(echo_server):
    reply = echo_server.detect(PICTURE, score_threshold=0, max_detections=2)
    assert_answers(reply, echo.answer(COLOUR, 64, 48)[:2])
    assert reply.total_detections == 4


def test_labels_filter(echo_server):
    reply = echo_server.detect(PICTURE, score_threshold=0, labels=["delta", "beta"])
    assert_answers(reply, [box for box in echo.answer(COLOUR, 64, 48) if box[0] in ("beta", "delta")])


def test_concurrent_calls_get_their_own_answers(echo_server):
    colours = [(level, 255 - level, level // 2) for level in range(0, 256, 5)]
    calls = [
        echo_server.stub.Detect.future(
            detect_request(echo.flat_png(colour), score_threshold=0.0), timeout=TIMEOUT_S
        )
        for colour in colours
    ]
    for colour, call in zip(colours, calls):
        assert_answers(call.result(), echo.answer(colour, 64, 48))


def test_gzip_request_is_accepted(echo_server):
    reply = echo_server.stub.Detect(
        detect_request(PICTURE, score_threshold=0.0), timeout=TIMEOUT_S, compression=grpc.Compression.Gzip
    )
    assert_answers(reply, echo.answer(COLOUR, 64, 48))


# --- models, health, reflection ---


def test_list_models_describes_the_model(echo_server):
    (model,) = echo_server.stub.ListModels(pb.ListModelsRequest(), timeout=TIMEOUT_S).models
    assert (model.model.name, model.model.version) == ("echo", "1")
    assert model.state == pb.MODEL_STATE_READY and model.is_default
    assert (model.input_width, model.input_height, model.max_batch_size) == (16, 16, 8)
    assert tuple(model.labels) == echo.LABELS
    assert set(model.devices) == {"cpu:0"}
    assert model.default_options.score_threshold == pytest.approx(echo.DEFAULT_THRESHOLD)
    assert model.default_options.max_detections == 100


@pytest.mark.parametrize("name", ["", SERVICE, f"{SERVICE}/echo", "liveness"])
def test_health_name_is_serving(echo_server, name):
    answer = echo_server.health.Check(health_pb2.HealthCheckRequest(service=name), timeout=TIMEOUT_S)
    assert answer.status == SERVING


@pytest.mark.parametrize("name", ["nobody", f"{SERVICE}/nobody"])
def test_unknown_health_name_is_not_found(echo_server, name):
    with pytest.raises(grpc.RpcError) as caught:
        echo_server.health.Check(health_pb2.HealthCheckRequest(service=name), timeout=TIMEOUT_S)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


def test_reflection_tells_the_contract(echo_server):
    database = ProtoReflectionDescriptorDatabase(echo_server.channel)
    assert SERVICE in database.get_services()
    service = descriptor_pool.DescriptorPool(database).FindServiceByName(SERVICE)
    assert set(service.methods_by_name) == {"Detect", "DetectStream", "ListModels"}
    # A message of another package: the whole import closure is there.
    outcome = service.methods_by_name["DetectStream"].output_type.fields_by_name["result"].message_type
    assert outcome.fields_by_name["error"].message_type.full_name == "google.rpc.Status"


# --- errors ---


@pytest.mark.parametrize(
    "request_",
    [
        pb.DetectRequest(),
        pb.DetectRequest(image=pb.Image()),
        pb.DetectRequest(image=pb.Image(encoded=b"")),
    ],
    ids=["no image", "no source", "no bytes"],
)
def test_empty_image_is_refused(echo_server, request_):
    info = refused(
        lambda: echo_server.stub.Detect(request_, timeout=TIMEOUT_S), grpc.StatusCode.INVALID_ARGUMENT
    )
    assert info.reason == "EMPTY_IMAGE"


def test_text_is_refused(echo_server):
    text = b"this is no picture, but it is long enough to have been one " * 20
    info = refused(lambda: echo_server.detect(text), grpc.StatusCode.INVALID_ARGUMENT)
    assert info.reason == "UNSUPPORTED_FORMAT"


def test_unknown_model_is_not_found(echo_server):
    info = refused(lambda: echo_server.detect(PICTURE, model="nobody"), grpc.StatusCode.NOT_FOUND)
    assert info.reason == "MODEL_NOT_FOUND"


@pytest.mark.parametrize(
    "option",
    [
        {"score_threshold": -0.1},
        {"score_threshold": 1.1},
        {"score_threshold": float("nan")},
        {"score_threshold": float("inf")},
        {"iou_threshold": -0.1},
        {"iou_threshold": float("nan")},
        {"max_detections": 0},
    ],
    ids=str,
)
def test_option_out_of_range_is_refused(echo_server, option):
    info = refused(lambda: echo_server.detect(PICTURE, **option), grpc.StatusCode.INVALID_ARGUMENT)
    assert info.reason == "INVALID_OPTION"


def test_unknown_label_is_refused(echo_server):
    refused(lambda: echo_server.detect(PICTURE, labels=["omega"]), grpc.StatusCode.INVALID_ARGUMENT)


def test_server_answers_after_refusals(echo_server):
    refused(lambda: echo_server.detect(b"GIF89a"), grpc.StatusCode.INVALID_ARGUMENT)
    assert_answers(echo_server.detect(PICTURE), echo.answer(COLOUR, 64, 48)[:3])


def test_a_calls_name_is_in_the_log_when_it_is_answered(start_server, tmp_path):
    config = tmp_path / "detectd.toml"
    config.write_text('default_model = "echo"\n[log]\nlevel = "info,detectd::grpc=debug"\n')
    with start_server(["echo"], arguments=["--config", str(config)]) as server:
        server.stub.Detect(
            detect_request(PICTURE), metadata=[("x-request-id", "a-name-of-mine")], timeout=TIMEOUT_S
        )
    lines = [line for line in server.log if "a-name-of-mine" in line]
    assert any("answered" in line and "code=Ok" in line for line in lines), lines
