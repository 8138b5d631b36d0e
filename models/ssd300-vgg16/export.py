#!/usr/bin/env python3
"""Makes the ONNX file of an SSD300 (VGG16) that was trained with the ssd.pytorch code.

    export.py WEIGHTS.pth --out 1/model.onnx [--classes 201]
    export.py --random SEED [--width 1/16] [--classes 21] --out FILE

WEIGHTS.pth is a state dict with the keys vgg.N, L2Norm.weight, extras.N, loc.N and conf.N. Classes are counted with
the background, as that code does; they and the width are told by the weights. With --random the weights are drawn:
the same network, untrained, for tests and benches.

Input `image` f32 [N, 3, 300, 300]; outputs `loc` f32 [N, 8732, 4], the offsets from the priors, and `conf` f32
[N, 8732, C] after softmax, background first. N is free. Priors, decoding and suppression are the server's.

Needs onnx and numpy, and torch to read a .pth.
"""

import argparse
import os
import pathlib
import sys
from fractions import Fraction
from typing import NamedTuple

try:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    sys.exit(f"export.py: {error}: it needs the packages onnx and numpy")

OPSET = 17
IR_VERSION = 8
SIDE = 300
PRIORS = 8732
# What keeps a division by a norm of zero from being one.
EPSILON = 1e-10
# How many names an error lists.
NAMED = 3


class Refusal(Exception):
    """Why there is no network to be had, in one line."""


class Conv(NamedTuple):
    """A convolution and the ReLU behind it."""

    key: str
    channels: int
    kernel: int = 3
    stride: int = 1
    pad: int = 1
    dilation: int = 1


class Pool(NamedTuple):
    """A max pool."""

    kernel: int = 2
    stride: int = 2
    pad: int = 0
    ceil: bool = False


class Tap(NamedTuple):
    """Boxes are read off here: so many a cell."""

    boxes: int
    norm: bool = False


# Channels are those of the whole width; the numbers in the keys count the reference code's layers, ReLUs and pools
# included.
LAYERS = [
    Conv("vgg.0", 64), Conv("vgg.2", 64), Pool(),
    Conv("vgg.5", 128), Conv("vgg.7", 128), Pool(),
    # 75 cells become 38, not 37.
    Conv("vgg.10", 256), Conv("vgg.12", 256), Conv("vgg.14", 256), Pool(ceil=True),
    Conv("vgg.17", 512), Conv("vgg.19", 512), Conv("vgg.21", 512), Tap(4, norm=True), Pool(),
    Conv("vgg.24", 512), Conv("vgg.26", 512), Conv("vgg.28", 512), Pool(kernel=3, stride=1, pad=1),
    Conv("vgg.31", 1024, pad=6, dilation=6), Conv("vgg.33", 1024, kernel=1, pad=0), Tap(6),
    Conv("extras.0", 256, kernel=1, pad=0), Conv("extras.1", 512, stride=2), Tap(6),
    Conv("extras.2", 128, kernel=1, pad=0), Conv("extras.3", 256, stride=2), Tap(6),
    Conv("extras.4", 128, kernel=1, pad=0), Conv("extras.5", 256, pad=0), Tap(4),
    Conv("extras.6", 128, kernel=1, pad=0), Conv("extras.7", 256, pad=0), Tap(4),
]  # fmt: skip
NARROWEST = min(layer.channels for layer in LAYERS if isinstance(layer, Conv))


def expected_shapes(width, classes):
    """The state dict of such a network: each key's shape."""
    shapes = {}

    def convolution(key, inputs, outputs, kernel):
        shapes[f"{key}.weight"] = (outputs, inputs, kernel, kernel)
        shapes[f"{key}.bias"] = (outputs,)

    channels, taps = 3, 0
    for layer in LAYERS:
        match layer:
            case Conv():
                outputs = int(layer.channels * width)
                convolution(layer.key, channels, outputs, layer.kernel)
                channels = outputs
            case Tap():
                if layer.norm:
                    shapes["L2Norm.weight"] = (channels,)
                convolution(f"loc.{taps}", channels, layer.boxes * 4, 3)
                convolution(f"conf.{taps}", channels, layer.boxes * classes, 3)
                taps += 1
    return shapes


def some(names):
    """A few of the names, and how many there are besides."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def check(state, classes=None):
    """Refuses a state dict that is of another network, or of another number of classes when that is given.

    Returns the width and the classes of the one that it is of."""
    keys = expected_shapes(1, 1).keys()
    if missing := sorted(keys - state.keys()):
        raise Refusal(f"the state dict lacks {some(missing)}: this is no SSD300 of ssd.pytorch")
    if others := sorted(state.keys() - keys):
        raise Refusal(f"the state dict has {some(others)} besides: this is another network")

    first, scores = np.shape(state["vgg.0.weight"]), np.shape(state["conf.0.weight"])
    boxes = next(layer.boxes for layer in LAYERS if isinstance(layer, Tap))
    if not scores or scores[0] % boxes or scores[0] < 2 * boxes:
        raise Refusal(f"conf.0.weight is {list(scores)}: no two or more classes for each of {boxes} boxes")
    found = scores[0] // boxes
    if classes not in (None, found):
        raise Refusal(f"the network knows {found} classes with the background, not {classes}")
    width = Fraction(first[0] if first else 0, NARROWEST)
    for key, shape in expected_shapes(width, found).items():
        if np.shape(state[key]) != shape:
            raise Refusal(f"{key} is {list(np.shape(state[key]))}, not {list(shape)}")
        if not np.isfinite(state[key]).all():
            raise Refusal(f"{key} holds values that are not finite")
    return width, found


def read_pth(path):
    """The state dict in a .pth, as numpy arrays. The file may be a stranger's: nothing in it is run."""
    try:
        import torch
    except ImportError:
        raise Refusal("a .pth can only be read with torch: pip install torch") from None
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # Whatever it is that a file of any kind makes it raise.
        # Without torch's advice to run what is in the file after all.
        said = str(error).rpartition("WeightsUnpickler error: ")[2].splitlines()
        reason = said[0] if said else type(error).__name__
        raise Refusal(f"{path} cannot be read as weights alone: {reason}") from None
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise Refusal(f"{path} holds something else than a state dict; save `network.state_dict()`")
    # The name that a network wrapped in DataParallel adds.
    return {str(key).removeprefix("module."): value.float().numpy() for key, value in state.items()}


def random_state(seed, width, classes):
    """Weights in the layout of a state dict, drawn so that signals neither vanish nor grow on their way, most
    priors are background and some are not."""
    rng = np.random.default_rng(seed)
    state = {}
    for key, shape in expected_shapes(width, classes).items():
        if key == "L2Norm.weight":
            state[key] = np.full(shape, 20, np.float32)
        elif key.endswith(".bias"):
            bias = rng.normal(0, 0.05, shape).astype(np.float32)
            if key.startswith("conf."):
                bias.reshape(-1, classes)[:, 0] += 7
            state[key] = bias
        else:
            gain = np.sqrt(2 / np.prod(shape[1:]))
            if key == "vgg.0.weight":
                gain /= 64  # Its input is pixels.
            elif key.startswith(("loc.", "conf.")):
                gain *= 0.4
            state[key] = rng.standard_normal(shape, np.float32) * np.float32(gain)
    return state


def build(state, classes=None):
    """The ONNX model of a state dict of numpy arrays."""
    width, classes = check(state, classes)
    nodes, constants = [], []

    def constant(name, value):
        constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(operator, inputs, name, **attributes):
        nodes.append(helper.make_node(operator, inputs, [name], name=name, **attributes))
        return name

    def convolution(x, key, name, kernel=3, stride=1, pad=1, dilation=1):
        weight = constant(f"{key}.weight", np.asarray(state[f"{key}.weight"], np.float32))
        bias = constant(f"{key}.bias", np.asarray(state[f"{key}.bias"], np.float32))
        return node(
            "Conv", [x, weight, bias], name,
            kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4, dilations=[dilation] * 2,
        )  # fmt: skip

    def l2_norm(x):
        """Each cell's features, scaled to a length of one and then by a weight a channel."""
        length = node("ReduceL2", [x], "norm.length", axes=[1], keepdims=1)
        divisor = node("Add", [length, constant("norm.epsilon", np.float32(EPSILON))], "norm.divisor")
        unit = node("Div", [x, divisor], "norm.unit")
        weight = np.asarray(state["L2Norm.weight"], np.float32).reshape(1, -1, 1, 1)
        return node("Mul", [unit, constant("L2Norm.weight", weight)], "norm")

    def rows(x, key, columns):
        """A row for every box of every cell: cells row by row, and the boxes of a cell together."""
        raw = convolution(x, key, f"{key}.map")
        last = node("Transpose", [raw], f"{key}.cells", perm=[0, 2, 3, 1])
        return node("Reshape", [last, columns], f"{key}.rows")

    # 0: as it is, which keeps the batch free.
    four, per_class = (constant(f"rows_of_{n}", np.array([0, -1, n], np.int64)) for n in (4, classes))
    x, loc, conf = "image", [], []
    for index, layer in enumerate(LAYERS):
        match layer:
            case Conv():
                x = convolution(x, layer.key, f"{layer.key}.sum", *layer[2:])
                x = node("Relu", [x], f"{layer.key}.relu")
            case Pool():
                sizes = {"kernel_shape": [layer.kernel] * 2, "strides": [layer.stride] * 2, "pads": [layer.pad] * 4}
                x = node("MaxPool", [x], f"pool.{index}", ceil_mode=int(layer.ceil), **sizes)
            case Tap():
                source = l2_norm(x) if layer.norm else x
                loc.append(rows(source, f"loc.{len(loc)}", four))
                conf.append(rows(source, f"conf.{len(conf)}", per_class))
    node("Concat", loc, "loc", axis=1)
    node("Softmax", [node("Concat", conf, "logits", axis=1)], "conf", axis=-1)

    def value(name, *shape):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", *shape])

    graph = helper.make_graph(
        nodes,
        "ssd300",
        [value("image", 3, SIDE, SIDE)],
        [value("loc", PRIORS, 4), value("conf", PRIORS, classes)],
        constants,
    )
    return helper.make_model(
        graph,
        producer_name="detectd",
        doc_string=f"SSD300 over VGG16 at {width} of its width, {classes} classes with the background",
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )


def write(model, path):
    """The file appears under its name whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    try:
        onnx.save(model, partial)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def width_of(text):
    try:
        width = Fraction(text)
    except (ValueError, ZeroDivisionError):
        width = Fraction(0)
    if not 0 < width <= 1 or (width * NARROWEST).denominator != 1:
        raise argparse.ArgumentTypeError(f"{text} is no multiple of 1/{NARROWEST} up to 1")
    return width


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Makes the ONNX file of an SSD300 trained with ssd.pytorch.")
    parser.add_argument("weights", metavar="WEIGHTS.pth", nargs="?", type=pathlib.Path, help="its state dict")
    parser.add_argument("--random", metavar="SEED", type=int, help="draw the weights instead")
    parser.add_argument("--width", type=width_of, help="of a drawn network, as 1/16 (default: 1)")
    parser.add_argument("--classes", type=int, help="with the background (drawn: 21; else checked against the weights)")
    parser.add_argument("--out", metavar="FILE", type=pathlib.Path, required=True, help="as 1/model.onnx beside the card")
    options = parser.parse_args(arguments)
    drawn = options.random is not None
    if drawn == (options.weights is not None):
        parser.error("give either WEIGHTS.pth or --random SEED")
    if options.width is not None and not drawn:
        parser.error("--width is told by the weights")
    if options.classes is not None and options.classes < 2:
        parser.error("--classes counts the background, so there are at least 2")
    if drawn and options.random < 0:
        parser.error("--random takes a seed of 0 or more")
    try:
        if drawn:
            state = random_state(options.random, options.width or Fraction(1), options.classes or 21)
        else:
            state = read_pth(options.weights)
        model = build(state, options.classes)
        write(model, options.out)
    except (Refusal, OSError) as error:
        sys.exit(f"export.py: {error}")
    classes = check(state)[1]
    print(f"{options.out}: {options.out.stat().st_size} bytes, {classes - 1} lines of labels.txt and the background")


if __name__ == "__main__":
    main()
