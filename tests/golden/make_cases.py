#!/usr/bin/env python3
"""Makes pictures of every class that people send, tests/golden/cases/, and what each must become.

    pip install pillow==13.0.0 numpy==2.4.6
    python3 tests/golden/make_cases.py

cases.tsv has for each file either OK with the size and the mean colours (whole; quadrants) of the *upright*
picture as Pillow decodes it, or the reason for which it is refused. Alpha is dropped, 16 bits are divided by
257. What is broken or rare is made of what is whole by changing its bytes.
"""

import base64
import io
import pathlib
import struct
import zlib

import numpy
import PIL
from PIL import Image, ImageCms, ImageOps

from make_vision import corners, exif, png16, quadrants, saved

HERE = pathlib.Path(__file__).parent / "cases"
BASE = Image.fromarray(corners(48, 32))


def translucent():
    rgba = BASE.convert("RGBA")
    rgba.putalpha(Image.linear_gradient("L").resize(BASE.size).point(lambda value: value // 2 + 100))
    return rgba


def frames():
    return {"save_all": True, "append_images": [ImageOps.flip(BASE), ImageOps.mirror(BASE)], "duration": 90}


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def interlaced_gray16(gray):
    """Adam7, which Pillow does not write."""
    height, width = gray.shape
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    rows = b""
    for left, top, step_x, step_y in passes:
        for row in gray[top::step_y, left::step_x]:
            rows += b"\0" + row.astype(">u2").tobytes() if len(row) else b""
    header = struct.pack(">IIBBBBB", width, height, 16, 0, 0, 0, 1)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9))
            + chunk(b"IEND", b""))


def frame_header(jpeg):
    """Where the SOF marker's second byte is."""
    for marker in (b"\xff\xc0", b"\xff\xc2"):
        if marker in jpeg:
            return jpeg.index(marker) + 1
    raise ValueError("no frame header")


def gif_colors_end(gif):
    """Where the first block behind a GIF's colours is."""
    return 13 + 3 * 2 ** ((gif[10] & 7) + 1)


def solid_webp(width, height):
    """A lossless WebP of one colour: its few bytes fit any size."""
    small = saved(Image.new("RGB", (1, 1), (7, 7, 7)), "WEBP", lossless=True)
    bits = struct.unpack("<I", small[21:25])[0] & 0xF0000000
    return patched(small, 21, struct.pack("<I", bits | width - 1 | (height - 1) << 14))


def patched(content, at, new):
    return content[:at] + new + content[at + len(new):]


def animated_on_a_larger_canvas():
    """A WebP whose first frame is smaller than its canvas and not in its corner."""
    still = saved(BASE, "WEBP", lossless=True)
    bitstream = still[12:]
    # left / 2, top / 2, width - 1, height - 1, duration, flags
    place = b"".join(struct.pack("<I", n)[:3] for n in (4, 3, 47, 31, 90)) + b"\0"
    frame = place + bitstream
    parts = b"WEBP" + b"VP8X" + struct.pack("<IB3x", 10, 2)
    parts += struct.pack("<I", 79)[:3] + struct.pack("<I", 59)[:3]
    parts += b"ANIM" + struct.pack("<IIH", 6, 0, 0) + b"ANMF" + struct.pack("<I", len(frame)) + frame
    return b"RIFF" + struct.pack("<I", len(parts)) + parts


def pictures():
    """Name, bytes, and the pixels where Pillow does not give them."""
    for orientation in range(1, 9):
        tags = exif(orientation)
        yield f"exif{orientation}_lossy.webp", saved(BASE, "WEBP", quality=90, exif=tags), None
        yield f"exif{orientation}_lossless.webp", saved(BASE, "WEBP", lossless=True, exif=tags), None
    yield "exif_orientation_9.jpg", saved(BASE, "JPEG", quality=92, exif=exif(9)), None
    tiny = Image.fromarray(numpy.array([[[254, 0, 0], [254, 0, 0]]], numpy.uint8))
    yield "exif8_2x1.jpg", saved(tiny, "JPEG", quality=95, exif=exif(8)), None

    cmyk = saved(BASE.convert("CMYK"), "JPEG", quality=92)
    yield "cmyk_adobe.jpg", cmyk, None
    # The last byte of Adobe's segment says what the channels are; now luma, chroma and black.
    yield "ycck_adobe.jpg", patched(cmyk, cmyk.index(b"Adobe") + 11, b"\2"), None
    yield "gray.jpg", saved(BASE.convert("L"), "JPEG", quality=92), None
    yield "progressive.jpg", saved(BASE, "JPEG", quality=92, progressive=True), None
    whole = saved(BASE, "JPEG", quality=92)
    yield "missing_eoi.jpg", whole[:-2], numpy.asarray(Image.open(io.BytesIO(whole)).convert("RGB"))
    yield "trailing_zip.jpg", whole + b"PK\3\4" + bytes(500), None
    yield "mpo.jpg", saved(BASE, "MPO", quality=92, save_all=True, append_images=[ImageOps.flip(BASE)]), None
    yield "aspect_1000x1.jpg", saved(BASE.resize((1000, 1)), "JPEG", quality=92), None
    yield "aspect_1x1000.png", saved(BASE.resize((1, 1000)), "PNG"), None

    gray16 = corners(48, 32)[:, :, 0].astype(numpy.uint32) * 257 + 100
    expected = numpy.repeat(gray16[:, :, None] / 257, 3, -1)
    yield "gray16_interlaced.png", interlaced_gray16(gray16), expected
    rgba16 = numpy.concatenate([corners(48, 32), numpy.full((32, 48, 1), 99)], -1).astype(numpy.uint32) * 257
    yield "rgba16.png", png16(rgba16, 6), rgba16[:, :, :3] / 257
    yield "rgba8.png", saved(translucent(), "PNG"), corners(48, 32)
    yield "palette_trns.png", saved(BASE.quantize(32), "PNG", transparency=0), None
    yield "gray_alpha.png", saved(translucent().convert("LA"), "PNG"), None
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    yield "icc.png", saved(BASE, "PNG", icc_profile=profile), None
    yield "animated.png", saved(BASE, "PNG", **frames()), None

    yield "animated.gif", saved(BASE, "GIF", **frames()), None
    yield "interlaced.gif", saved(BASE, "GIF", interlace=1), None
    yield "animated.webp", saved(BASE, "WEBP", lossless=True, **frames()), None
    canvas = numpy.zeros((60, 80, 3), numpy.uint8)
    canvas[6:38, 8:56] = corners(48, 32)
    yield "animated_larger_canvas.webp", animated_on_a_larger_canvas(), canvas
    yield "alpha_lossy.webp", saved(translucent(), "WEBP", quality=90), None
    yield "alpha_lossless.webp", saved(translucent(), "WEBP", lossless=True, exact=True), corners(48, 32)
    svg = b"<svg xmlns='http://www.w3.org/2000/svg'/>"
    yield "svg_text_inside.webp", saved(BASE, "WEBP", quality=90, xmp=svg), None

    odd = Image.fromarray(corners(45, 29))
    yield "rgb24.bmp", saved(odd, "BMP"), None
    yield "palette.bmp", saved(odd.quantize(16), "BMP"), None
    yield "bits1.bmp", saved(odd.convert("1"), "BMP"), None
    yield "rgba32.bmp", saved(translucent(), "BMP"), corners(48, 32)
    bmp = saved(odd, "BMP")
    # A negative height: the rows come from the top.
    yield "top_down.bmp", patched(bmp, 22, struct.pack("<i", -29)), numpy.asarray(ImageOps.flip(odd))


def refused():
    """Name, bytes, reason."""
    jpeg = saved(BASE, "JPEG", quality=92)
    progressive = saved(BASE, "JPEG", quality=92, progressive=True)
    yield "empty.jpg", b"", "EMPTY_IMAGE"
    whole = {
        "baseline.jpg": jpeg,
        "progressive.jpg": progressive,
        "png": saved(BASE, "PNG"),
        "gif": saved(BASE, "GIF"),
        "bmp": saved(BASE, "BMP"),
        "lossy.webp": saved(BASE, "WEBP", quality=90),
        "lossless.webp": saved(BASE, "WEBP", lossless=True),
        "animated.webp": saved(BASE, "WEBP", lossless=True, **frames()),
    }
    for name, content in whole.items():
        separator = "_" if "." in name else "."
        yield f"truncated{separator}{name}", content[: len(content) // 2], "TRUNCATED_IMAGE"

    yield "zero_height.jpg", patched(jpeg, frame_header(jpeg) + 4, b"\0\0"), "CORRUPT_IMAGE"
    yield "no_picture.gif", whole["gif"][: gif_colors_end(whole["gif"])] + b";", "CORRUPT_IMAGE"
    webp = whole["lossless.webp"]
    yield "corrupt.webp", patched(webp, 30, bytes([0xFF] * 20)), "CORRUPT_IMAGE"
    yield "corrupt.png", patched(whole["png"], 45, b"\xff\xff\xff"), "CORRUPT_IMAGE"

    yield "jpeg12bit.jpg", patched(jpeg, frame_header(jpeg) + 3, b"\x0c"), "UNSUPPORTED_FORMAT"
    yield "arithmetic.jpg", patched(jpeg, frame_header(jpeg), b"\xc9"), "UNSUPPORTED_FORMAT"
    yield "lossless.jpg", patched(jpeg, frame_header(jpeg), b"\xc3"), "UNSUPPORTED_FORMAT"
    yield "svg_named.jpg", b"<svg xmlns='http://www.w3.org/2000/svg' width='9'/>", "UNSUPPORTED_FORMAT"
    yield "html_named.jpg", b"<!DOCTYPE html><title>404</title>", "UNSUPPORTED_FORMAT"
    yield "base64_text.jpg", base64.b64encode(jpeg), "UNSUPPORTED_FORMAT"
    avif = struct.pack(">I", 32) + b"ftypavif\0\0\0\0avifmif1miafMA1A"
    yield "avif_named.jpg", avif, "UNSUPPORTED_FORMAT"
    yield "tiff_named.jpg", saved(BASE, "TIFF")[:200], "UNSUPPORTED_FORMAT"
    yield "pdf_named.jpg", b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "UNSUPPORTED_FORMAT"
    array = io.BytesIO()
    numpy.save(array, numpy.zeros((4, 4, 3), numpy.float32))
    yield "array.npy", array.getvalue(), "UNSUPPORTED_FORMAT"
    yield "tensor.bin", numpy.linspace(-1, 1, 48, dtype="<f4").tobytes(), "UNSUPPORTED_FORMAT"

    # Headers that promise more than is allowed; nothing of it follows.
    yield "bomb_65535x65535.jpg", patched(jpeg, frame_header(jpeg) + 4, b"\xff" * 4)[:400], "IMAGE_TOO_LARGE"
    header = struct.pack(">IIBBBBB", 30000, 30000, 1, 0, 0, 0, 0)
    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(9999), 9))
    yield "bomb_30000x30000_1bit.png", bomb, "IMAGE_TOO_LARGE"
    yield "bomb_16383x16383.webp", solid_webp(16383, 16383), "IMAGE_TOO_LARGE"
    yield "bomb_65535x65535.gif", patched(whole["gif"], 6, b"\xff" * 4), "IMAGE_TOO_LARGE"
    place = whole["gif"].index(b"\x2c", gif_colors_end(whole["gif"]))
    yield "bomb_frame.gif", patched(whole["gif"], place + 5, b"\xff" * 4), "IMAGE_TOO_LARGE"
    bomb = patched(whole["bmp"], 18, struct.pack("<ii", 60000, -60000))
    yield "bomb_60000x60000.bmp", bomb, "IMAGE_TOO_LARGE"


def write():
    HERE.mkdir(exist_ok=True)
    for old in HERE.iterdir():
        old.unlink()
    lines = [f"# pillow {PIL.__version__}, numpy {numpy.__version__}"]
    lines.append("file\texpected\tupright_width\tupright_height\tmean_rgb\tquadrant_mean_rgb(TL;TR;BL;BR)")
    for name, content, expected in pictures():
        (HERE / name).write_bytes(content)
        if expected is None:
            image = ImageOps.exif_transpose(Image.open(io.BytesIO(content)))
            if image.mode in ("P", "LA"):
                image = image.convert("RGBA")
            expected = numpy.asarray(image.convert("RGB") if image.mode != "RGBA" else image)[:, :, :3]
        height, width, _ = expected.shape
        mean = ",".join(f"{value:.1f}" for value in expected.reshape(-1, 3).mean(0))
        quarters = quadrants(expected.astype(float)) if min(width, height) > 1 else ""
        lines.append(f"{name}\tOK\t{width}\t{height}\t{mean}\t{quarters}")
    for name, content, reason in refused():
        (HERE / name).write_bytes(content)
        lines.append(f"{name}\tINVALID_ARGUMENT reason={reason}\t\t\t\t")
    (HERE / "cases.tsv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    write()
