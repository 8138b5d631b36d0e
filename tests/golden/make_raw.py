#!/usr/bin/env python3
"""Makes the golden vectors of raw frames, tests/golden/raw.json.

    pip install opencv-python-headless==5.0.0.93 numpy==2.4.6
    python3 tests/golden/make_raw.py

Each case is a frame (its layout and its bytes, in hex) and the R, G, B that it shows. Bytes that belong to
no pixel (padding, gaps between planes) are 0xAA. Expected values:
- BT.601 in limited range: OpenCV's own conversions, on planes padded to even sides where they are odd.
- the other colour spaces, which OpenCV does not have: the published matrices in double precision. On
  BT.601 limited both are compared here.
- RGB and gray: rearranged in numpy.
Widths reach over two blocks of 16 pixels, which are converted at once, and into a part of a third.
Y, U and V stay in their nominal ranges: OpenCV clips Y below black before it adds chroma.
"""

import json
import pathlib

import cv2
import numpy

HERE = pathlib.Path(__file__).parent
FILLER = 0xAA

# R = y + a v, G = y + b u + c v, B = y + d u, after scaling; from the tables of the standards.
MATRICES = {
    "bt601_limited": (16, 255 / 219, 1.596027, -0.391762, -0.812968, 2.017232),
    "bt601_full": (0, 1.0, 1.402, -0.344136, -0.714136, 1.772),
    "bt709_limited": (16, 255 / 219, 1.792741, -0.213249, -0.532909, 2.112402),
    "bt709_full": (0, 1.0, 1.5748, -0.187324, -0.468124, 1.8556),
}


def formula(y, u, v, space):
    black, scale, a, b, c, d = MATRICES[space]
    luma = (y.astype(float) - black) * scale
    u, v = u.astype(float) - 128, v.astype(float) - 128
    rgb = numpy.stack([luma + a * v, luma + b * u + c * v, luma + d * u], -1)
    return numpy.clip(rgb, 0, 255).round().astype(numpy.uint8)


def even(plane):
    return numpy.pad(plane, [(0, side % 2) for side in plane.shape], mode="edge")


def opencv(format, y, u, v):
    """u and v in their own resolution."""
    height, width = y.shape
    padded = even(y)
    if format == "yuyv":
        packed = numpy.empty((height, padded.shape[1], 2), numpy.uint8)
        padded = numpy.pad(y, [(0, 0), (0, width % 2)], mode="edge")
        packed[:, :, 0] = padded
        packed[:, 0::2, 1] = u
        packed[:, 1::2, 1] = v
        return cv2.cvtColor(packed, cv2.COLOR_YUV2RGB_YUYV)[:, :width]
    pair = (u, v) if format != "nv21" else (v, u)
    codes = {"nv12": cv2.COLOR_YUV2RGB_NV12, "nv21": cv2.COLOR_YUV2RGB_NV21}
    if format in codes:
        chroma = numpy.stack(pair, -1)
        return cv2.cvtColorTwoPlane(padded, chroma, codes[format])[:height, :width]
    whole = numpy.concatenate([padded.ravel(), u.ravel(), v.ravel()])
    whole = whole.reshape(padded.shape[0] * 3 // 2, padded.shape[1])
    return cv2.cvtColor(whole, cv2.COLOR_YUV2RGB_I420)[:height, :width]


def planes_of(format, y, u, v):
    """The planes as rows of bytes."""
    height, width = y.shape
    if format == "yuyv":
        pairs = numpy.full((height, (width + 1) // 2, 4), FILLER, numpy.uint8)
        luma = numpy.pad(y, [(0, 0), (0, width % 2)], mode="edge")
        pairs[:, :, 0], pairs[:, :, 2] = luma[:, 0::2], luma[:, 1::2]
        pairs[:, :, 1], pairs[:, :, 3] = u, v
        return [pairs.reshape(height, -1)]
    if format == "i420":
        return [y, u, v]
    pair = (u, v) if format == "nv12" else (v, u)
    return [y, numpy.stack(pair, -1).reshape(u.shape[0], -1)]


def laid_out(planes, padding, gap):
    """Bytes, strides and offsets; without padding and gap both lists are empty."""
    data, strides, offsets = bytearray(), [], []
    for index, plane in enumerate(planes):
        stride = plane.shape[1] + (padding + index if padding else 0)
        data += bytes([FILLER]) * gap
        offsets.append(len(data))
        strides.append(stride)
        for row in plane:
            data += row.tobytes() + bytes([FILLER]) * (stride - len(row))
    data += bytes([FILLER]) * gap
    return bytes(data), strides if padding else [], offsets if gap else []


def case(format, rgb, planes, padding, gap, space=None):
    data, strides, offsets = laid_out(planes, padding, gap)
    height, width, _ = rgb.shape
    return {
        "format": format,
        "width": width,
        "height": height,
        "strides": strides,
        "plane_offsets": offsets,
        "color_space": space,
        "data": data.hex(),
        "rgb": numpy.ascontiguousarray(rgb).tobytes().hex(),
    }


def yuv_cases(random):
    for format in ("nv12", "i420", "nv21", "yuyv"):
        for width, height in ((34, 4), (35, 5), (9, 3)):
            for number, space in enumerate(MATRICES):
                low, high = (16, 236) if space.endswith("limited") else (0, 256)
                y = random.integers(low, high, (height, width), dtype=numpy.uint8)
                half = (height if format == "yuyv" else (height + 1) // 2, (width + 1) // 2)
                u, v = random.integers(16, 241, (2, *half), dtype=numpy.uint8)
                wide = [numpy.repeat(plane, 2, 1)[:, :width] for plane in (u, v)]
                if format != "yuyv":
                    wide = [numpy.repeat(plane, 2, 0)[:height] for plane in wide]
                rgb = formula(y, *wide, space)
                if space == "bt601_limited":
                    other = opencv(format, y, u, v)
                    assert numpy.abs(other.astype(int) - rgb).max() <= 2, (format, width)
                    rgb = other
                padding, gap = [(0, 0), (7, 0), (0, 5), (3, 4)][number]
                yield case(format, rgb, planes_of(format, y, u, v), padding, gap, space)


def packed_cases(random):
    orders = {"rgb24": [0, 1, 2], "bgr24": [2, 1, 0], "rgba32": [0, 1, 2, 3], "bgra32": [2, 1, 0, 3]}
    for number, (format, order) in enumerate(orders.items()):
        rgba = random.integers(0, 256, (5, 7, 4), dtype=numpy.uint8)
        rows = rgba[:, :, order].reshape(5, -1)
        for padding, gap in ((0, 0), (11, 0), (2, 3)):
            yield case(format, rgba[:, :, :3], [rows], padding, gap)
    gray = random.integers(0, 256, (5, 7), dtype=numpy.uint8)
    for padding, gap in ((0, 0), (9, 6)):
        yield case("gray8", numpy.repeat(gray[:, :, None], 3, 2), [gray], padding, gap)


if __name__ == "__main__":
    random = numpy.random.default_rng(20)
    cases = [*packed_cases(random), *yuv_cases(random)]
    text = ",\n".join(json.dumps(case) for case in cases)
    (HERE / "raw.json").write_text(
        f'{{"made_with": "opencv {cv2.__version__}, numpy {numpy.__version__}", "cases": [\n{text}\n]}}\n'
    )
    print(len(cases), "cases")
