"""What the test network echo answers (tests/fixtures/make_models.py), written down a second time."""

import io

from PIL import Image

SIDE = 16  # its input, pixels
LABELS = ("alpha", "beta", "gamma", "delta")
# The threshold on its card: lets three of the four boxes through.
DEFAULT_THRESHOLD = 0.25


def flat_png(colour: tuple[int, int, int], width: int = 64, height: int = 48) -> bytes:
    """Returns a picture of one colour (R, G, B in 0..255): resizing cannot change it."""
    sink = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(sink, "PNG")
    return sink.getvalue()


def answer(colour: tuple[int, int, int], width: int = SIDE, height: int = SIDE) -> list[tuple]:
    """Returns (label, score, (x_min, y_min, x_max, y_max)) for each box, in pixels of a `width` x `height` picture.

    By score, highest first, before any threshold.
    """
    red, green, blue = (value / 255 for value in colour)
    x, y = width / SIDE, height / SIDE
    boxes = []
    for k, (label, score) in enumerate(zip(LABELS, (0.8, 0.6, 0.4, 0.1))):
        inset = k / 2
        corners = (4 * red + inset, 4 * green + inset, 8 + 8 * blue - inset, 8 + 8 * red - inset)
        boxes.append((label, score + green / 10, tuple(c * s for c, s in zip(corners, (x, y, x, y)))))
    return boxes
