"""A server that says what a test wrote."""

import pytest

from tests.runtime.server.scripted import scripted_server


@pytest.fixture(scope="module")
def shared_engine(tokenizer):
    with scripted_server(tokenizer) as engine:
        yield engine


@pytest.fixture
def engine(shared_engine):
    """The scripted engine, without what other tests left in it."""
    for kept in (
        shared_engine.scripts,
        shared_engine.requests,
        shared_engine.cancelled,
        shared_engine.said,
    ):
        kept.clear()
    yield shared_engine
    assert shared_engine.scripts == []
