"""A server on the tiny model that the tests of a run share, and one that says what a test wrote."""

import pytest

from tests.runtime.server.live import live_server, make_engine
from tests.runtime.server.scripted import scripted_server
from tests.workshop import run_cli


@pytest.fixture(scope="session")
def tiny_engine(workshop):
    """A bundle of the tiny model with the real tokenizer."""
    return make_engine(workshop, run_cli)


@pytest.fixture(scope="session")
def server(tiny_engine):
    """A server on the CPU that nobody ends; tests must not leave requests behind."""
    options = ("--device", "cpu", "--served_model_name", "tiny")
    with live_server(tiny_engine, *options) as live:
        yield live


@pytest.fixture(scope="module")
def shared_engine(tokenizer):
    with scripted_server(tokenizer) as engine:
        yield engine


@pytest.fixture
def engine(shared_engine):
    """The scripted engine, without what other tests left in it."""
    shared_engine.clear()
    yield shared_engine
    assert shared_engine.scripts == []
