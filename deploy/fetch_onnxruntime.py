#!/usr/bin/env python3
"""Fetches the pinned ONNX Runtime library: `fetch_onnxruntime.py FOLDER`.

The library comes out of the project's own wheel, whose hash pip checks against onnxruntime.txt beside this
script. FOLDER receives libonnxruntime.so, its licence and the notices of what it contains. A second run
with the same pin downloads nothing; an interrupted one leaves no half-written library behind. Needs pip and
nothing else; the Python that runs it may be another than the one the wheel was built for.
"""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PIN = Path(__file__).resolve().with_name("onnxruntime.txt")
MACHINES = ("x86_64", "aarch64")
# The one library wanted; its version ends the name.
LIBRARY_PREFIX = "onnxruntime/capi/libonnxruntime.so."
NOTICES = ("onnxruntime/LICENSE", "onnxruntime/ThirdPartyNotices.txt")


class FetchFailed(Exception):
    """One line that tells the reader what to do."""


def download_wheel(folder: Path) -> Path:
    """Returns the wheel for this machine, its hash checked by pip, in `folder`."""
    machine = platform.machine()
    if platform.system() != "Linux" or machine not in MACHINES:
        raise FetchFailed(
            f"no ONNX Runtime is pinned for {platform.system()} {machine}: "
            "set DETECTD_ONNXRUNTIME to a library of your own"
        )
    # The tags are spelled out so that any Python's pip picks the same file, whatever it runs on itself.
    command = [
        *(sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "download"),
        *("--no-deps", "--only-binary=:all:", "--require-hashes", "--requirement", str(PIN)),
        *("--python-version", "3.11", "--implementation", "cp", "--abi", "cp311"),
        *("--platform", f"manylinux_2_28_{machine}", "--dest", str(folder)),
    ]
    finished = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if finished.returncode != 0:
        raise FetchFailed(f"could not download ONNX Runtime: {reason_in(finished.stdout)}")
    return next(folder.glob("*.whl"))


def reason_in(output: str) -> str:
    """Returns the one line of pip's `output` that names the trouble."""
    if "from versions: none" in output:
        return "the package index lists no version of it, or cannot be reached"
    lines = [line for line in output.splitlines() if line.strip()] or ["pip said nothing"]
    # pip closes with the line that matters, except for a wrong hash, which it follows up with the hashes.
    return next((line for line in lines if "DO NOT MATCH" in line), lines[-1])


def unpack(wheel: Path, staging: Path) -> None:
    """Writes the library and its notices from `wheel` into `staging`."""
    with zipfile.ZipFile(wheel) as archive:
        libraries = [name for name in archive.namelist() if name.startswith(LIBRARY_PREFIX)]
        if len(libraries) != 1:
            raise FetchFailed(f"{wheel.name} holds {len(libraries)} files {LIBRARY_PREFIX}*, expected one")
        for name, target in [*((n, Path(n).name) for n in NOTICES), (libraries[0], "libonnxruntime.so")]:
            with archive.open(name) as source, open(staging / target, "wb") as sink:
                shutil.copyfileobj(source, sink)


def fetch(target: Path) -> None:
    """Brings `target` to the pinned version; does nothing where it is there already."""
    library, receipt = target / "libonnxruntime.so", target / "pin.txt"
    pin = PIN.read_bytes()
    if library.exists() and receipt.exists() and receipt.read_bytes() == pin:
        library.touch()  # make compares its time with the pin's
        return
    target.mkdir(parents=True, exist_ok=True)
    # Inside the target, so that the moves below stay on one file system and are atomic.
    with tempfile.TemporaryDirectory(dir=target, prefix=".fetching-") as scratch:
        staging = Path(scratch, "unpacked")
        staging.mkdir()
        unpack(download_wheel(Path(scratch)), staging)
        receipt.unlink(missing_ok=True)
        for file in sorted(staging.iterdir()):
            os.replace(file, target / file.name)
    receipt.write_bytes(pin)


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: fetch_onnxruntime.py FOLDER", file=sys.stderr)
        return 64
    try:
        fetch(Path(sys.argv[1]))
    except FetchFailed as failure:
        print(failure, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
