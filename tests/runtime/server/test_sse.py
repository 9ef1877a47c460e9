"""Streams whose engine is quiet, whose client takes nothing, leaves, or whose run fails."""

import asyncio

import pytest

from dsv4_trt.errors import EngineFault
from dsv4_trt.runtime.server import sse
from dsv4_trt.runtime.server.sse import EventStream


class Played:
    """A run, and what happened to it."""

    prompt_tokens = cached_tokens = completion_tokens = 1

    def __init__(self):
        self.is_cancelled = False

    def cancel(self):
        self.is_cancelled = True


async def answer(chunks, *, send=None, leave_after=None):
    """Run a stream; returns the run, what was sent, and whether the connection was aborted."""
    run, sent, aborted = Played(), [], []

    async def take(message):
        sent.append(message.get("body", b"").decode())
        if send is not None:
            await send(message)

    async def receive():
        await asyncio.sleep(1000 if leave_after is None else leave_after)
        return {"type": "http.disconnect"}

    scope = {"type": "http", "state": {"abort": lambda: aborted.append(True)}}
    stream = EventStream(run, chunks, lambda failure: f"error {failure.status}\n\n")
    async with asyncio.timeout(10):
        await stream(scope, receive, take)
    assert scope["state"]["usage"]["prompt_tokens"] == 1
    return run, "".join(sent), bool(aborted)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(sse, "QUIET_SECONDS", 0.05)
    monkeypatch.setattr(sse, "STALL_SECONDS", 0.2)


async def some(*chunks, pause=0.0):
    for chunk in chunks:
        await asyncio.sleep(pause)
        yield chunk


async def failing():
    yield "a\n\n"
    raise EngineFault("gone")


def test_chunks_in_order():
    run, sent, aborted = asyncio.run(answer(some("a\n\n", "b\n\n")))
    assert (sent, aborted) == ("a\n\nb\n\n", False)
    assert run.is_cancelled  # which does nothing to one that has ended


def test_a_quiet_stream_has_comments_between_its_chunks():
    _, sent, aborted = asyncio.run(answer(some("a\n\n", "b\n\n", pause=0.2)))
    assert sent.replace(": waiting\n\n", "") == "a\n\nb\n\n"
    assert sent.count(": waiting") >= 2
    assert not aborted


def test_an_error_is_the_last_chunk():
    _, sent, _ = asyncio.run(answer(failing()))
    assert sent == "a\n\nerror 500\n\n"


def test_a_client_that_leaves_ends_the_run():
    run, _, aborted = asyncio.run(answer(some("a\n\n", pause=5), leave_after=0.02))
    assert run.is_cancelled
    assert not aborted


@pytest.mark.parametrize("first", ["a\n\n", None])
def test_a_client_that_takes_nothing_is_cut_off(first):
    """Whether it is a chunk or a comment that it does not take."""

    async def stall(message):
        if message.get("body"):
            await asyncio.sleep(1000)

    chunks = some(first or "b\n\n", pause=0 if first else 5)
    run, _, aborted = asyncio.run(answer(chunks, send=stall))
    assert run.is_cancelled
    assert aborted
