#!/usr/bin/env python3
"""Makes the golden vectors of the vision room in tests/golden/vision/.

    pip install pillow==13.0.0 numpy==2.4.6
    python3 tests/golden/make_vision.py

What is compared:
- decoded.tsv: size and the mean colour of each quadrant of the *upright* picture, as Pillow decodes it
  (first line: the versions that made it). Alpha is dropped, 16 bits are divided by 257.
- resized.tsv: `source size mode`, and beside it the picture that Pillow's BILINEAR filter (which
  antialiases, and does so in both directions) makes of it, as PNG of the content without any filling.
"""

import io
import pathlib
import struct
import zlib

import numpy
import PIL
from PIL import Image, ImageOps

HERE = pathlib.Path(__file__).parent / "vision"
CORNERS = [(200, 40, 40), (40, 180, 60), (50, 60, 210), (220, 210, 60)]  # TL, TR, BL, BR


def corners(width, height):
    """Four plain quadrants of unlike colours, with a gradient so that a mirrored one shows."""
    rgb = numpy.zeros((height, width, 3))
    for index, color in enumerate(CORNERS):
        rows = slice(0, height // 2) if index < 2 else slice(height // 2, height)
        columns = slice(0, width // 2) if index % 2 == 0 else slice(width // 2, width)
        rgb[rows, columns] = color
    shade = numpy.linspace(-30, 30, width)[None, :, None]
    return numpy.clip(rgb + shade, 0, 255).astype(numpy.uint8)


def smooth(width, height):
    """A picture of slow waves: what differs between two good filters is small on it."""
    y, x = numpy.mgrid[0:height, 0:width] / max(width, height)
    waves = [
        128 + 100 * numpy.sin(9 * x + 2 * y),
        128 + 100 * numpy.cos(7 * y - 3 * x),
        128 + 60 * numpy.sin(12 * (x + y)) + 40 * numpy.cos(5 * x),
    ]
    return numpy.clip(numpy.stack(waves, -1), 0, 255).round().astype(numpy.uint8)


def exif(orientation):
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags


def png16(samples, color_type):
    """A 16-bit PNG of an array of rows, columns, channels; Pillow writes no 16-bit RGBA."""
    height, width, _ = samples.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in samples)

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 16, color_type, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows, 9))
        + chunk(b"IEND", b"")
    )


def saved(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def quadrants(rgb):
    height, width, _ = rgb.shape
    halves = [(rows, columns) for rows in (slice(0, height // 2), slice(height // 2, None))
              for columns in (slice(0, width // 2), slice(width // 2, None))]
    means = [rgb[rows, columns].reshape(-1, 3).mean(0) for rows, columns in halves]
    return ";".join(",".join(f"{value:.1f}" for value in mean) for mean in means)


def decoded_pictures():
    base = Image.fromarray(corners(48, 32))
    for orientation in range(1, 9):
        tags = exif(orientation)
        yield f"exif{orientation}.jpg", saved(base, "JPEG", quality=92, exif=tags), None
        yield f"exif{orientation}.png", saved(base, "PNG", exif=tags, optimize=True), None
    yield "progressive.jpg", saved(base, "JPEG", quality=92, progressive=True), None
    yield "restarts.jpg", saved(base, "JPEG", quality=92, restart_marker_blocks=2), None
    yield "gray.jpg", saved(base.convert("L"), "JPEG", quality=92), None
    yield "cmyk.jpg", saved(base.convert("CMYK"), "JPEG", quality=92), None
    for name, sampling in (("444", 0), ("422", 1), ("420", 2)):
        odd = Image.fromarray(corners(45, 29))
        yield f"sampling{name}.jpg", saved(odd, "JPEG", quality=92, subsampling=sampling), None
    palette = base.quantize(32)
    yield "palette.png", saved(palette, "PNG", optimize=True), None
    yield "palette_transparent.png", saved(palette, "PNG", transparency=0), None
    yield "bits1.png", saved(base.convert("1"), "PNG"), None

    rgb16 = corners(48, 32).astype(numpy.uint32) * 257
    gray16 = rgb16[:, :, :1]
    alpha16 = numpy.linspace(0, 65535, 48)[None, :, None] * numpy.ones((32, 1, 1))
    rgba16 = numpy.concatenate([rgb16, alpha16.astype(numpy.uint32)], -1)
    yield "gray16.png", png16(gray16, 0), numpy.repeat(gray16 / 257, 3, -1)
    yield "rgba16.png", png16(rgba16, 6), rgb16 / 257
    yield "gray_alpha16.png", png16(rgba16[:, :, [0, 3]], 4), numpy.repeat(gray16 / 257, 3, -1)
    alpha8 = Image.fromarray((alpha16[:, :, 0] / 257).astype(numpy.uint8))
    rgba = base.convert("RGBA")
    rgba.putalpha(alpha8)
    yield "rgba8.png", saved(rgba, "PNG", optimize=True), corners(48, 32).astype(float)


def write_decoded():
    lines = [f"# pillow {PIL.__version__}, numpy {numpy.__version__}"]
    for name, content, expected in decoded_pictures():
        (HERE / name).write_bytes(content)
        image = ImageOps.exif_transpose(Image.open(io.BytesIO(content)))
        if expected is None:
            if image.mode == "P":
                image = image.convert("RGBA")  # or its transparent colour is lost
            if image.mode == "RGBA":
                expected = numpy.asarray(image)[:, :, :3].astype(float)
            else:
                expected = numpy.asarray(image.convert("RGB")).astype(float)
        height, width, _ = expected.shape
        lines.append(f"{name}\t{width}\t{height}\t{quadrants(expected)}")
    (HERE / "decoded.tsv").write_text("\n".join(lines) + "\n")


def letterbox_size(source, target):
    ratio = min(target[0] / source[0], target[1] / source[1])
    return int(source[0] * ratio), int(source[1] * ratio)


def write_resized():
    lines = [f"# pillow {PIL.__version__}, numpy {numpy.__version__}"]
    cases = [
        ("down", (200, 150), (96, 96)),
        ("up", (40, 30), (96, 96)),
        ("tall", (60, 170), (96, 64)),
        ("odd", (157, 93), (100, 75)),
    ]
    for name, source, target in cases:
        image = Image.fromarray(smooth(*source))
        (HERE / f"{name}.png").write_bytes(saved(image, "PNG", optimize=True))
        for mode in ("letterbox", "stretch"):
            size = letterbox_size(source, target) if mode == "letterbox" else target
            resized = image.resize(size, Image.Resampling.BILINEAR)
            (HERE / f"{name}_{mode}.png").write_bytes(saved(resized, "PNG", optimize=True))
            lines.append(f"{name}\t{target[0]}\t{target[1]}\t{mode}")
    (HERE / "resized.tsv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    write_decoded()
    write_resized()
