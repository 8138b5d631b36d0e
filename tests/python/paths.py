"""Where things lie: the checkout, the binary under test, and what may be absent."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROTO = ROOT / "proto"
FIXTURES = ROOT / "tests" / "fixtures" / "models"
MODELS = ROOT / "models"
# Real networks and photos; they stay outside the project, and tests that need them skip without them.
SHARED = ROOT.parent / "shared"
# The server to test.
BINARY = Path(os.environ.get("DETECTD_BIN", ROOT / "target" / "debug" / "detectd")).absolute()
ONNXRUNTIME = Path(
    os.environ.get("DETECTD_ONNXRUNTIME", ROOT / ".deps" / "onnxruntime" / "libonnxruntime.so")
).absolute()
