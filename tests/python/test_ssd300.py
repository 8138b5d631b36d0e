"""models/ssd300-vgg16: the network that export.py makes against numpy, what it refuses, and the card beside it.

    python3 -m pytest tests/python/test_ssd300.py
"""

import re
import sys
import types
from fractions import Fraction

import numpy as np
import onnx
import pytest

from paths import MODELS

ort = pytest.importorskip("onnxruntime", reason="onnxruntime is absent")
tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11")

FOLDER = MODELS / "ssd300-vgg16"
# Not imported: that leaves a folder of bytecode beside the card, which a server takes for a version and warns of.
export = types.ModuleType("ssd300_export")
exec(compile((FOLDER / "export.py").read_text(encoding="utf-8"), FOLDER / "export.py", "exec"), export.__dict__)

CLASSES = 21
WIDTH = Fraction(1, 16)
# The reference code's state dict at 1/16 of its width: outputs, inputs and kernel of each convolution.
CONVOLUTIONS = {
    "vgg.0": (4, 3, 3), "vgg.2": (4, 4, 3), "vgg.5": (8, 4, 3), "vgg.7": (8, 8, 3),
    "vgg.10": (16, 8, 3), "vgg.12": (16, 16, 3), "vgg.14": (16, 16, 3),
    "vgg.17": (32, 16, 3), "vgg.19": (32, 32, 3), "vgg.21": (32, 32, 3),
    "vgg.24": (32, 32, 3), "vgg.26": (32, 32, 3), "vgg.28": (32, 32, 3),
    "vgg.31": (64, 32, 3), "vgg.33": (64, 64, 1),
    "extras.0": (16, 64, 1), "extras.1": (32, 16, 3), "extras.2": (8, 32, 1), "extras.3": (16, 8, 3),
    "extras.4": (8, 16, 1), "extras.5": (16, 8, 3), "extras.6": (8, 16, 1), "extras.7": (16, 8, 3),
    "loc.0": (16, 32, 3), "loc.1": (24, 64, 3), "loc.2": (24, 32, 3),
    "loc.3": (24, 16, 3), "loc.4": (16, 16, 3), "loc.5": (16, 16, 3),
    "conf.0": (84, 32, 3), "conf.1": (126, 64, 3), "conf.2": (126, 32, 3),
    "conf.3": (126, 16, 3), "conf.4": (84, 16, 3), "conf.5": (84, 16, 3),
}  # fmt: skip
# The cells of the maps and a cell's boxes.
MAPS = [(38, 4), (19, 6), (10, 6), (5, 6), (3, 4), (1, 4)]


def drawn_state():
    """Weights under which each layer, its bias and each map shows in the outputs."""
    rng = np.random.default_rng(7)
    state = {"L2Norm.weight": rng.uniform(0.5, 4, 32).astype(np.float32)}
    for key, (outputs, inputs, kernel) in CONVOLUTIONS.items():
        spread = 1.6 / np.sqrt(inputs * kernel**2)
        state[f"{key}.weight"] = rng.normal(0, spread, (outputs, inputs, kernel, kernel)).astype(np.float32)
        state[f"{key}.bias"] = rng.normal(0.1, 0.3, outputs).astype(np.float32)
    return state


def pictures(count):
    return np.random.default_rng(8).normal(0, 1, (count, 3, 300, 300)).astype(np.float32)


def session(model):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(model.SerializeToString(), options)


def run(model, images):
    return session(model).run(["loc", "conf"], {"image": images})


# === the network in numpy ===


def windows(x, kernel, stride, dilation=1):
    """[C, H, W] as [C, H', W', kernel, kernel]."""
    reach = (kernel - 1) * dilation + 1
    views = np.lib.stride_tricks.sliding_window_view(x, (reach, reach), axis=(1, 2))
    return views[:, ::stride, ::stride, ::dilation, ::dilation]


def padded(x, pad, value):
    return np.pad(x, ((0, 0), (pad, pad), (pad, pad)), constant_values=value)


def reference(state, image):
    """The outputs for one picture, in float64."""

    def conv(x, key, stride=1, pad=1, dilation=1):
        weight, bias = state[f"{key}.weight"].astype(np.float64), state[f"{key}.bias"].astype(np.float64)
        seen = windows(padded(x, pad, 0), weight.shape[2], stride, dilation)
        return np.tensordot(weight, seen, axes=([1, 2, 3], [0, 3, 4])) + bias[:, None, None]

    def relu(x, key, **how):
        return np.maximum(conv(x, key, **how), 0)

    def halved(x):
        # An odd row or column at the end is a window of its own.
        x = np.pad(x, ((0, 0), (0, x.shape[1] % 2), (0, x.shape[2] % 2)), constant_values=-np.inf)
        return windows(x, 2, 2).max(axis=(3, 4))

    x = image.astype(np.float64)
    for key in ["vgg.0", "vgg.2", None, "vgg.5", "vgg.7", None, "vgg.10", "vgg.12", "vgg.14", None, "vgg.17", "vgg.19", "vgg.21"]:
        x = relu(x, key) if key else halved(x)
    sources = [x / np.sqrt((x**2).sum(axis=0)) * state["L2Norm.weight"][:, None, None]]
    x = halved(x)
    for key in ["vgg.24", "vgg.26", "vgg.28"]:
        x = relu(x, key)
    x = windows(padded(x, 1, -np.inf), 3, 1).max(axis=(3, 4))
    x = relu(relu(x, "vgg.31", pad=6, dilation=6), "vgg.33", pad=0)
    sources.append(x)
    for index, (stride, pad) in enumerate([(2, 1), (2, 1), (1, 0), (1, 0)]):
        x = relu(relu(x, f"extras.{2 * index}", pad=0), f"extras.{2 * index + 1}", stride=stride, pad=pad)
        sources.append(x)

    loc, logits = [], []
    for index, (source, (cells, boxes)) in enumerate(zip(sources, MAPS, strict=True)):
        assert source.shape[1:] == (cells, cells)
        raw, scores = conv(source, f"loc.{index}"), conv(source, f"conf.{index}")
        for row in range(cells):
            for column in range(cells):
                for box in range(boxes):
                    loc.append(raw[4 * box : 4 * box + 4, row, column])
                    logits.append(scores[CLASSES * box : CLASSES * (box + 1), row, column])
    powers = np.exp(logits - np.max(logits, axis=1, keepdims=True))
    return np.array(loc), powers / powers.sum(axis=1, keepdims=True)


# === the network ===


def test_the_network_is_what_numpy_makes_of_the_same_weights():
    state, image = drawn_state(), pictures(1)
    loc, conf = run(export.build(state), image)
    expected_loc, expected_conf = reference(state, image[0])
    assert loc.shape == (1, 8732, 4) and conf.shape == (1, 8732, CLASSES)
    # On each map the numbers differ enough for the comparison to mean something.
    ends = np.cumsum([cells**2 * boxes for cells, boxes in MAPS])
    for part in np.split(np.arange(8732), ends[:-1]):
        assert expected_loc[part].std() > 0.1 and expected_conf[part].std() > 0.01
    np.testing.assert_allclose(loc[0], expected_loc, rtol=0, atol=1e-4)
    np.testing.assert_allclose(conf[0], expected_conf, rtol=0, atol=1e-4)


def test_a_batch_is_answered_like_its_pictures_alone():
    images, network = pictures(3), session(export.build(drawn_state()))
    together = network.run(["loc", "conf"], {"image": images})
    assert [len(output) for output in together] == [3, 3]
    for index in range(3):
        alone = network.run(["loc", "conf"], {"image": images[index : index + 1]})
        for ours, theirs in zip(together, alone):
            np.testing.assert_allclose(ours[index], theirs[0], rtol=0, atol=1e-5)
    assert np.abs(together[0][0] - together[0][1]).max() > 0.1


def test_a_cell_without_features_gives_numbers():
    state = drawn_state()
    state["vgg.21.weight"][:] = 0
    state["vgg.21.bias"][:] = -1
    loc, conf = run(export.build(state), pictures(1))
    assert np.isfinite(loc).all() and np.isfinite(conf).all()


@pytest.mark.parametrize("classes", [2, 21, 201])
def test_the_file_says_what_goes_in_and_comes_out(classes):
    model = export.build(export.random_state(0, Fraction(1, 64), classes))
    onnx.checker.check_model(model, full_check=True)
    shapes = {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in [*model.graph.input, *model.graph.output]
    }
    assert shapes == {"image": ["N", 3, 300, 300], "loc": ["N", 8732, 4], "conf": ["N", 8732, classes]}


def test_a_seed_is_a_network_and_another_seed_another():
    one, same, other = (export.build(export.random_state(seed, WIDTH, CLASSES)).SerializeToString() for seed in (1, 1, 2))
    assert one == same != other


def test_drawn_weights_see_something_and_not_everything():
    image = 60 * pictures(1)
    _, conf = run(export.build(export.random_state(1, WIDTH, CLASSES)), image)
    seen = (conf[0, :, 1:] >= 0.2).any(axis=1).sum()
    assert 1 <= seen <= 873


# === a state dict ===


def test_a_state_dict_gives_the_network_that_it_was_made_from(tmp_path, monkeypatch, capsys):
    drawn, read = tmp_path / "drawn.onnx", tmp_path / "new" / "1" / "model.onnx"
    export.main(["--random", "3", "--width", "1/16", "--classes", str(CLASSES), "--out", str(drawn)])
    # Key by key in the reference code's layout and its order, which is not the one in which they were drawn.
    source = export.random_state(3, WIDTH, CLASSES)
    layout = {"L2Norm.weight": (32,)}
    for key, (outputs, inputs, kernel) in CONVOLUTIONS.items():
        layout |= {f"{key}.weight": (outputs, inputs, kernel, kernel), f"{key}.bias": (outputs,)}
    state = {key: source.pop(key) for key in layout}
    assert not source and {key: value.shape for key, value in state.items()} == layout
    monkeypatch.setattr(export, "read_pth", lambda path: state)
    export.main(["weights.pth", "--out", str(read)])
    assert read.read_bytes() == drawn.read_bytes()
    assert [path.name for path in read.parent.iterdir()] == ["model.onnx"]
    assert "20 lines of labels.txt" in capsys.readouterr().out


def without(*keys):
    return lambda state: [state.pop(key) for key in keys]


def put(key, value):
    return lambda state: state.update({key: value})


@pytest.mark.parametrize(
    ("spoil", "classes", "said"),
    [
        (without("conf.5.bias"), None, "the state dict lacks conf.5.bias: this is no SSD300 of ssd.pytorch"),
        (
            without("L2Norm.weight", "vgg.0.weight", "vgg.0.bias", "loc.0.bias", "loc.0.weight"),
            None,
            "the state dict lacks L2Norm.weight, loc.0.bias, loc.0.weight and 2 more: this is no SSD300 of ssd.pytorch",
        ),
        (put("extras.8.weight", np.zeros(3)), None, "the state dict has extras.8.weight besides: this is another network"),
        (lambda state: None, 201, "the network knows 21 classes with the background, not 201"),
        (
            put("vgg.2.weight", np.zeros((4, 8, 3, 3))),
            None,
            "vgg.2.weight is [4, 8, 3, 3], not [4, 4, 3, 3]",
        ),
        (put("vgg.0.weight", np.zeros(())), None, "vgg.0.weight is [], not [0, 3, 3, 3]"),
        (put("conf.1.bias", np.zeros(84)), None, "conf.1.bias is [84], not [126]"),
        (
            put("conf.0.weight", np.zeros((85, 32, 3, 3))),
            None,
            "conf.0.weight is [85, 32, 3, 3]: no two or more classes for each of 4 boxes",
        ),
        (put("conf.0.weight", np.float32(1)), None, "conf.0.weight is []: no two or more classes for each of 4 boxes"),
        (put("loc.3.bias", np.full(24, np.nan)), None, "loc.3.bias holds values that are not finite"),
    ],
)
def test_a_wrong_state_dict_is_refused_in_one_line(spoil, classes, said):
    state = drawn_state()
    spoil(state)
    with pytest.raises(export.Refusal) as refused:
        export.build(state, classes)
    assert str(refused.value) == said


def test_a_refusal_leaves_no_file_and_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(export, "read_pth", lambda path: {})
    with pytest.raises(SystemExit, match="^export.py: the state dict lacks .*$"):
        export.main(["weights.pth", "--out", str(tmp_path / "1" / "model.onnx")])
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_written_whole_is_not_left_behind(tmp_path, monkeypatch):
    def save(model, path):
        path.write_bytes(b"a part")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export.onnx, "save", save)
    (tmp_path / "model.onnx").write_bytes(b"the one before")
    with pytest.raises(SystemExit, match="^export.py: .*No space left on device$"):
        export.main(["--random", "1", "--width", "1/64", "--out", str(tmp_path / "model.onnx")])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"model.onnx": b"the one before"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give either WEIGHTS.pth or --random SEED"),
        (["w.pth", "--random", "1"], "give either WEIGHTS.pth or --random SEED"),
        (["w.pth", "--width", "1/2"], "--width is told by the weights"),
        (["--random", "1", "--width", "1/128"], "multiple of 1/64"),
        (["--random", "1", "--width", "2"], "multiple of 1/64"),
        (["--random", "1", "--width", "1/0"], "multiple of 1/64"),
        (["--random", "1", "--classes", "1"], "at least 2"),
        (["--random", "-1"], "seed of 0 or more"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(tmp_path, capsys, arguments, said):
    with pytest.raises(SystemExit) as ended:
        export.main([*arguments, "--out", str(tmp_path / "model.onnx")])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


# === a .pth ===


class Tensor:
    """As much of torch's as the reader uses; half precision, which numpy would keep."""

    def __init__(self, values):
        self.values = np.asarray(values)

    def float(self):
        return Tensor(self.values.astype(np.float32))

    def numpy(self):
        return self.values


@pytest.fixture
def torch(monkeypatch):
    """Stands in for torch, which is too large for a test environment; `torch.holds` is what a file holds."""
    module = types.SimpleNamespace(Tensor=Tensor, holds={}, calls=[])

    def load(path, **options):
        module.calls.append((path, options))
        if isinstance(module.holds, Exception):
            raise module.holds
        return module.holds

    module.load = load
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


def test_a_pth_is_read_as_weights_alone_and_loses_the_prefix_of_data_parallel(torch):
    torch.holds = {"module.vgg.0.bias": Tensor(np.array([1, 2], np.float16)), "L2Norm.weight": Tensor([3.0])}
    state = export.read_pth("some.pth")
    assert torch.calls == [("some.pth", {"map_location": "cpu", "weights_only": True})]
    assert {key: value.tolist() for key, value in state.items()} == {"vgg.0.bias": [1, 2], "L2Norm.weight": [3]}
    assert state["vgg.0.bias"].dtype == np.float32


@pytest.mark.parametrize(
    ("holds", "said"),
    [
        (
            RuntimeError("Run what is in it.\n WeightsUnpickler error: posix.system is no weight\nand more"),
            "x.pth cannot be read as weights alone: posix.system is no weight",
        ),
        (OSError(2, "No such file"), "x.pth cannot be read as weights alone: [Errno 2] No such file"),
        (EOFError(), "x.pth cannot be read as weights alone: EOFError"),
        ({"epoch": 3, "state_dict": {}}, "x.pth holds something else than a state dict; save `network.state_dict()`"),
        ([Tensor([1.0])], "x.pth holds something else than a state dict; save `network.state_dict()`"),
    ],
)
def test_a_pth_of_something_else_is_refused_in_one_line(torch, holds, said):
    torch.holds = holds
    with pytest.raises(export.Refusal) as refused:
        export.read_pth("x.pth")
    assert str(refused.value) == said


def test_without_torch_a_pth_is_refused_with_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(export.Refusal, match="pip install torch"):
        export.read_pth("x.pth")


# === the card ===

CARD = (FOLDER / "model.toml").read_text(encoding="utf-8")
# The comment block in place of the setting above it.
SWAPPED = re.sub(r"^maps = \[\n.*?^\]\n", "", CARD, flags=re.MULTILINE | re.DOTALL).replace("# maps", "maps")
SWAPPED = re.sub(r"^# (    \{ cells.*|\])$", r"\1", SWAPPED, flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("card", "sizes"),
    [(CARD, [30, 60, 111, 162, 213, 264, 315]), (SWAPPED, [21, 45, 99, 153, 207, 261, 315])],
    ids=["voc", "coco"],
)
def test_the_cards_priors_are_the_networks_in_either_setting(card, sizes):
    anchors = tomllib.loads(card)["head"]["anchors"]
    assert anchors["clip"] is True
    maps = anchors["maps"]
    assert [entry["cells"] for entry in maps] == [[cells, cells] for cells, _ in MAPS]
    assert [2 + 2 * len(entry["aspect_ratios"]) for entry in maps] == [boxes for _, boxes in MAPS]
    assert [entry["step"] for entry in maps] == [8, 16, 32, 64, 100, 300]
    assert [entry["min_sizes"] + entry["max_sizes"] for entry in maps] == [list(pair) for pair in zip(sizes, sizes[1:])]


def test_the_card_fits_the_network():
    card = tomllib.loads(CARD)
    model = export.build(export.random_state(0, Fraction(1, 64), CLASSES))
    assert card["required"] is False and "source" not in card
    assert card["input"]["name"] == model.graph.input[0].name
    assert [card["head"]["boxes"], card["head"]["scores"]] == [output.name for output in model.graph.output]
    # Caffe's means are told as B, G, R.
    means = {"b": 104, "g": 117, "r": 123}
    assert card["input"]["mean"] == [means[plane] for plane in card["input"]["color"]]
    assert len((FOLDER / "labels.txt").read_text(encoding="utf-8").split("\n")) == CLASSES
