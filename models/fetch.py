#!/usr/bin/env python3
"""Puts the networks in place that the cards beside this script ask for: `make models`.

    python3 models/fetch.py [NAME...] [--shared DIR]

For each card with a [source]: is the right file (by SHA-256) there, nothing is done or said. Otherwise it is taken
from DIR, a folder of models at hand, and where that lacks it from the upstream address. A file with another hash
is refused. The network appears under its final name whole or not at all. Needs Python 3.11 and no package.
"""

import argparse
import hashlib
import http.client
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import urllib.request

try:
    import tomllib
except ImportError:
    sys.exit("fetch.py: needs Python 3.11 or later (for tomllib)")

HERE = pathlib.Path(__file__).resolve().parent
CHUNK = 1 << 20
# Seconds without a byte after which a download is given up.
SILENCE = 60


class Refusal(Exception):
    """Why a model cannot be put in place, in one line."""


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check(path, expected, called):
    got = sha256(path)
    if got != expected:
        raise Refusal(f"{called} has the wrong SHA-256: expected {expected}, got {got}")


def obtain(source, shared, path):
    """Writes the file that `source` (file, sha256, url) describes to `path`; returns where it came from."""
    at_hand = shared / source["file"]
    if at_hand.is_file():
        shutil.copyfile(at_hand, path)
        check(path, source["sha256"], at_hand)
        return at_hand
    url = source["url"]
    try:
        with urllib.request.urlopen(url, timeout=SILENCE) as response, open(path, "wb") as file:
            shutil.copyfileobj(response, file, CHUNK)
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = " ".join(str(error).split())
        raise Refusal(f"{at_hand} is absent and {url} cannot be had ({reason}); get that file and put it there") from None
    check(path, source["sha256"], url)
    return url


def derive(source, folder, shared, scratch, path):
    """Makes the file at `path` from the one in `derived_from`; returns where that came from."""
    origin = source["derived_from"]
    original = scratch / "original"
    came_from = obtain(origin, shared, original)
    script = folder / origin["script"]
    made = subprocess.run([sys.executable, script, original, path], capture_output=True, text=True)
    if made.returncode != 0:
        last = made.stderr.strip().splitlines()[-1:] or [f"exit status {made.returncode}"]
        raise Refusal(f"{script} failed: {last[0]}")
    check(path, source["sha256"], f"what {script} made")
    return came_from


def sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def place(folder, shared):
    """Puts one model's network in place; returns what to say about it, or None when it was there."""
    try:
        card = tomllib.loads((folder / "model.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Refusal(f"{folder / 'model.toml'}: {error}") from None
    source = card.get("source")
    if source is None:
        if any(folder.glob("[1-9]*/model.onnx")):
            return None
        raise Refusal(f"its card has no [source]; put the network at {folder / '1' / 'model.onnx'}")

    target = folder / str(source.get("version", 1)) / "model.onnx"
    if target.is_file():
        check(target, source["sha256"], target)
        return None
    # Hidden, and in the same file system as the target: nobody takes it for a version, and the rename is atomic.
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as scratch:
        scratch = pathlib.Path(scratch)
        path = scratch / "model.onnx"
        if "derived_from" in source and not (shared / source["file"]).is_file():
            came_from = derive(source, folder, shared, scratch, path)
        else:
            came_from = obtain(source, shared, path)
        sync(path)
        size = path.stat().st_size
        target.parent.mkdir(exist_ok=True)
        os.replace(path, target)
        sync(target.parent)
    return f"{target.relative_to(folder)}, {size} bytes, from {came_from}"


def main():
    parser = argparse.ArgumentParser(description="Puts the networks in place that the cards ask for.")
    parser.add_argument("names", metavar="NAME", nargs="*", help="models to fetch; all of them when none is named")
    parser.add_argument(
        "--shared",
        metavar="DIR",
        type=pathlib.Path,
        default=HERE.parent.parent / "shared" / "models",
        help="folder of models at hand, looked into first (default: ../shared/models beside the project)",
    )
    parser.add_argument("--models", metavar="DIR", type=pathlib.Path, default=HERE, help="folder of the cards")
    options = parser.parse_args()

    names = options.names or sorted(card.parent.name for card in options.models.glob("[!.]*/model.toml"))
    failed = {}
    for name in names:
        try:
            said = place(options.models / name, options.shared)
        except (Refusal, KeyError, OSError) as error:
            failed[name] = f"`[source]` lacks {error}" if isinstance(error, KeyError) else error
        else:
            if said:
                print(f"{name}: {said}")
    if failed:
        # One line, one thing to do first.
        (name, reason), *others = failed.items()
        also = f" (and so for {', '.join(other for other, _ in others)})" if others else ""
        sys.exit(f"fetch.py: {name}: {reason}{also}")


if __name__ == "__main__":
    main()
