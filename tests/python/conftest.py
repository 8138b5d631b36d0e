"""Fixtures: servers to talk to, and a place for figures that the outcome should show."""

import pytest

import proxy
import quiet
import server
from paths import FIXTURES

_FIGURES = pytest.StashKey[list[str]]()


def pytest_configure(config):
    config.stash[_FIGURES] = []


def pytest_collection_modifyitems(items):
    # By then most of the minute has passed.
    items.sort(key=lambda item: item.get_closest_marker("quiet_minute") is not None)


@pytest.fixture(scope="session")
def figure(pytestconfig):
    """Call it with a line of text: it appears below the outcome, whether the test passes or not."""
    return pytestconfig.stash[_FIGURES].append


def pytest_terminal_summary(terminalreporter, config):
    if config.stash[_FIGURES]:
        terminalreporter.section("figures")
        for line in config.stash[_FIGURES]:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session", autouse=True)
def quiet_minute(request, tmp_path_factory):
    """See `quiet.minute`. It begins before the first test, and the one that asks for it comes last."""
    if proxy.binary() is None or not any(item.get_closest_marker("quiet_minute") for item in request.session.items):
        yield None
        return
    models = server.lay_out(["echo"], FIXTURES, tmp_path_factory.mktemp("models"))
    with server.running(models, "--default-model", "echo") as running:
        with quiet.minute(running, tmp_path_factory.mktemp("envoy")) as begun:
            yield begun


@pytest.fixture(scope="module")
def start_server(tmp_path_factory):
    """`start_server(names, source=..., arguments=...)` gives a context manager: see `server.running`."""

    def start(names, source=FIXTURES, arguments=(), ready=True, port=0):
        models = server.lay_out(names, source, tmp_path_factory.mktemp("models"))
        return server.running(models, *arguments, ready=ready, port=port)

    return start


@pytest.fixture(scope="module")
def echo_server(start_server):
    """A server with the network echo, which is its default."""
    with start_server(["echo"], arguments=["--default-model", "echo"]) as running:
        yield running
