"""models/fetch.py, run as `make models` runs it, on cards of its own and on the project's.

    python3 -m pytest tests/python/test_fetch.py
"""

import hashlib
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FETCH = ROOT / "models" / "fetch.py"
SHARED = ROOT.parent / "shared" / "models"

NETWORK = b"a network " * 1000
UPSTREAM = b"another network"

# Turns UPSTREAM into NETWORK.
SCRIPT = """
import pathlib, sys
assert pathlib.Path(sys.argv[1]).read_bytes() == b"another network"
pathlib.Path(sys.argv[2]).write_bytes(b"a network " * {times})
"""

needs_shared = pytest.mark.skipif(
    not (SHARED / "SHA256SUMS").is_file(), reason="../shared is absent"
)


def digest(data):
    return hashlib.sha256(data).hexdigest()


class Place:
    """A folder of cards, a folder of models at hand, and a folder that file:// addresses lead to."""

    def __init__(self, root):
        self.models, self.shared, self.web = root / "models", root / "shared", root / "web"
        for folder in (self.models, self.shared, self.web):
            folder.mkdir()

    def card(self, name="net", sha256=digest(NETWORK), origin=None, version=""):
        folder = self.models / name
        folder.mkdir()
        origin = origin or f'url = "{self.url("net.onnx")}"'
        (folder / "model.toml").write_text(f'[source]\nfile = "net.onnx"\nsha256 = "{sha256}"\n{version}\n{origin}\n')
        return folder

    def derived_card(self, times=1000):
        origin = f"""[source.derived_from]
file = "up.onnx"
sha256 = "{digest(UPSTREAM)}"
url = "{self.url("up.onnx")}"
script = "make.py"
"""
        folder = self.card(origin=origin)
        (folder / "make.py").write_text(SCRIPT.format(times=times))
        return folder

    def url(self, name):
        return (self.web / name).as_uri()

    def fetch(self, *names):
        command = [sys.executable, FETCH, "--models", self.models, "--shared", self.shared, *names]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def assert_refused(done, folder, *words):
    """One line that has these words, a failing exit, and nothing but the card left in the folder."""
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    for word in words:
        assert word in done.stderr
    assert {path.name for path in folder.iterdir()} <= {"model.toml", "make.py"}


def test_a_file_at_hand_is_taken_and_a_second_run_is_quiet(place):
    folder = place.card()
    (place.shared / "net.onnx").write_bytes(NETWORK)
    done = place.fetch()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("net: 1/model.onnx, 10000 bytes, from ")
    assert (folder / "1" / "model.onnx").read_bytes() == NETWORK
    assert {path.name for path in folder.iterdir()} == {"model.toml", "1"}
    # Neither is looked at once the file is there.
    (place.shared / "net.onnx").write_bytes(b"wrong")
    done = place.fetch()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_what_is_not_at_hand_is_downloaded(place):
    folder = place.card(version="version = 12")
    (place.web / "net.onnx").write_bytes(NETWORK)
    done = place.fetch("net")
    assert done.returncode == 0, done.stderr
    assert "file://" in done.stdout
    assert (folder / "12" / "model.onnx").read_bytes() == NETWORK


@pytest.mark.parametrize("where", ["shared", "web"])
def test_a_wrong_hash_is_refused_with_both_and_leaves_nothing(place, where):
    folder = place.card()
    (getattr(place, where) / "net.onnx").write_bytes(b"wrong")
    assert_refused(place.fetch(), folder, "net.onnx", f"expected {digest(NETWORK)}", f"got {digest(b'wrong')}")


def test_with_neither_at_hand_one_line_says_what_to_do(place):
    folder = place.card()
    done = place.fetch()
    assert_refused(done, folder, str(place.shared / "net.onnx"), place.url("net.onnx"), "put it there")


def test_a_file_that_someone_put_there_is_refused_and_kept(place):
    folder = place.card()
    (place.shared / "net.onnx").write_bytes(NETWORK)
    (folder / "1").mkdir()
    (folder / "1" / "model.onnx").write_bytes(b"mine")
    done = place.fetch()
    assert done.returncode == 1
    assert f"got {digest(b'mine')}" in done.stderr
    assert (folder / "1" / "model.onnx").read_bytes() == b"mine"


@pytest.mark.parametrize("where", ["shared", "web"])
def test_a_derived_network_is_made_from_its_upstream_file(place, where):
    folder = place.derived_card()
    (getattr(place, where) / "up.onnx").write_bytes(UPSTREAM)
    done = place.fetch()
    assert done.returncode == 0, done.stderr
    assert (folder / "1" / "model.onnx").read_bytes() == NETWORK


def test_a_derived_network_at_hand_is_not_made_again(place):
    folder = place.derived_card()
    (folder / "make.py").write_text("raise SystemExit('it ran')")
    (place.shared / "net.onnx").write_bytes(NETWORK)
    assert place.fetch().returncode == 0


def test_a_derived_network_that_came_out_wrong_is_refused(place):
    folder = place.derived_card(times=999)
    (place.web / "up.onnx").write_bytes(UPSTREAM)
    assert_refused(place.fetch(), folder, "make.py made has the wrong SHA-256")


def test_a_script_that_fails_is_told_in_one_line(place):
    folder = place.derived_card()
    (folder / "make.py").write_text("raise ValueError('no such constant')")
    (place.web / "up.onnx").write_bytes(UPSTREAM)
    assert_refused(place.fetch(), folder, "make.py failed: ValueError: no such constant")


def test_one_model_that_fails_does_not_keep_others_from_coming(place):
    place.card("a", sha256=digest(b"another"))
    place.card("b")
    (place.shared / "net.onnx").write_bytes(NETWORK)
    done = place.fetch()
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("fetch.py: a: ")
    assert (place.models / "b" / "1" / "model.onnx").is_file()


@pytest.mark.parametrize(
    "card, words",
    [
        ("", "no [source]; put the network at"),
        ("[source", "model.toml"),
        ('[source]\nfile = "x"', "`[source]` lacks 'url'"),
    ],
)
def test_a_card_without_a_usable_source_is_told_in_one_line(place, card, words):
    folder = place.card()
    (folder / "model.toml").write_text(card)
    assert_refused(place.fetch(), folder, words)


def test_a_name_without_a_card_is_told_in_one_line(place):
    done = place.fetch("nowhere")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and "nowhere" in done.stderr


def test_an_interrupted_download_leaves_no_network_behind(place):
    """The network's name appears by a rename of a whole file: until then there is no version folder at all."""
    folder = place.derived_card()
    (folder / "make.py").write_text(
        "import pathlib, sys\n"
        "pathlib.Path(sys.argv[2]).write_bytes(b'half a netw')\n"
        "versions = [p.name for p in pathlib.Path(__file__).parent.iterdir() if p.name[0] != '.']\n"
        "sys.exit(f'interrupted, seeing {sorted(versions)}')\n"
    )
    (place.web / "up.onnx").write_bytes(UPSTREAM)
    assert_refused(place.fetch(), folder, "interrupted, seeing ['make.py', 'model.toml']")


@needs_shared
def test_the_projects_models_come_from_their_upstream_files(place):
    """With the dynamic YOLOX not at hand it is made from the export, bit for bit."""
    for name in ("yolox-nano", "deimv2-femto"):
        shutil.copytree(ROOT / "models" / name, place.models / name, ignore=shutil.ignore_patterns("[0-9]*"))
    for name in ("yolox_nano_416_b1_original.onnx", "deimv2_femto_416.onnx"):
        (place.shared / name).symlink_to(SHARED / name)
    done = place.fetch()
    assert (done.returncode, done.stderr) == (0, "")
    made = (place.models / "yolox-nano" / "1" / "model.onnx").read_bytes()
    assert made == (SHARED / "yolox_nano_416.onnx").read_bytes()


@needs_shared
def test_freeing_the_batch_of_another_network_is_refused(tmp_path):
    script = ROOT / "models" / "yolox-nano" / "free_batch.py"
    for name in ("yolox_nano_416.onnx", "README.md"):
        target = tmp_path / "out.onnx"
        done = subprocess.run([sys.executable, script, SHARED / name, target], capture_output=True, text=True)
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1 and name in done.stderr
        assert not target.exists()
