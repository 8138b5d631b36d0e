"""Fixtures: servers to talk to, and a place for figures that the outcome should show."""

import pytest

import server
from paths import FIXTURES

_FIGURES = pytest.StashKey[list[str]]()


def pytest_configure(config):
    config.stash[_FIGURES] = []


@pytest.fixture(scope="session")
def figure(pytestconfig):
    """Call it with a line of text: it appears below the outcome, whether the test passes or not."""
    return pytestconfig.stash[_FIGURES].append


def pytest_terminal_summary(terminalreporter, config):
    if config.stash[_FIGURES]:
        terminalreporter.section("figures")
        for line in config.stash[_FIGURES]:
            terminalreporter.write_line(line)


@pytest.fixture(scope="module")
def start_server(tmp_path_factory):
    """`start_server(names, source=..., arguments=...)` gives a context manager: see `server.running`."""

    def start(names, source=FIXTURES, arguments=(), ready=True):
        models = server.lay_out(names, source, tmp_path_factory.mktemp("models"))
        return server.running(models, *arguments, ready=ready)

    return start


@pytest.fixture(scope="module")
def echo_server(start_server):
    """A server with the network echo, which is its default."""
    with start_server(["echo"], arguments=["--default-model", "echo"]) as running:
        yield running
