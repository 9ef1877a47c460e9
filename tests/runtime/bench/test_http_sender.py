"""The client against a server on raw asyncio: times, failures, and that nothing is lost on the way."""

import asyncio
import socket
import time

import pytest

from dsv4_trt.errors import ConfigError
from dsv4_trt.runtime.bench.ask import Ask
from dsv4_trt.runtime.bench.http_sender import Target, base_of, new_senders
from dsv4_trt.runtime.bench.load import Load, Run
from dsv4_trt.runtime.bench.remote_server import RemoteEncoder, served_model
from tests.runtime.bench.fake_openai import MODEL, fake_openai, tokens_of


@pytest.fixture(scope="module")
def server():
    with fake_openai() as (fake, url):
        yield fake, url


def send(url, tokens=5, count=1, concurrency=1, target=(), **fake):
    options = {"endpoint": "completions", "model": MODEL, "more": {"fake": fake}} | dict(target)
    asks = [Ask(token_ids=[1, 2, 3], max_tokens=tokens) for _ in range(count)]
    senders = new_senders(Target(base_url=url, **options), asks)
    run = Run(Load(concurrency=concurrency, num_requests=count), asks, senders)
    asyncio.run(run.go())
    return run.records if count > 1 else run.records[0]


@pytest.mark.parametrize("cut", [1, 7, 10_000])
def test_an_answer_in_pieces_of_any_size(server, cut):
    found = send(server[1], tokens=12, cut=cut)
    assert (found.error, found.status, found.streamed, found.output_tokens) == (None, 200, 12, 12)
    assert (found.input_tokens, found.finish_reason) == (3, "length")


def test_times_are_those_of_the_server(server):
    """Sleeps are never shorter than asked; how much longer the client makes them is bounded."""
    found = send(server[1], tokens=11, wait=0.1, gap=0.02)
    assert 0.1 <= found.ttft < 0.3
    assert 0.02 <= found.tpot < 0.04
    assert len(found.itls) == 10
    assert found.e2el >= found.ttft + 10 * found.tpot


def test_connections_are_kept_and_closed(server):
    fake, url = server
    before = fake.connections
    found = send(url, count=30, concurrency=3)
    assert all(record.error is None for record in found)
    assert fake.connections - before == 3
    deadline = time.monotonic() + 5
    while fake.open and time.monotonic() < deadline:
        time.sleep(0.01)
    assert fake.open == 0


def test_headers_and_body(server):
    fake, url = server
    send(url, target={"api_key": "secret"})
    assert fake.headers[-1]["authorization"] == "Bearer secret"
    assert fake.headers[-1]["content-type"] == "application/json"
    assert fake.headers[-1]["accept-encoding"] == "identity"
    assert (fake.bodies[-1]["prompt"], fake.bodies[-1]["max_tokens"]) == ([1, 2, 3], 5)
    send(url)
    assert "authorization" not in fake.headers[-1]


@pytest.mark.parametrize(
    ("fake", "error", "message"),
    [
        ({"lose": 2}, "tokens", "usage says 5, 4 were streamed"),
        ({"double": 2}, "tokens", "usage says 5, 6 were streamed"),
        ({"double": 1, "no_ids": True}, "tokens", "usage says 5, 6 were streamed"),
        ({"status": 429}, "http 429", "as told"),
        ({"status": 500}, "http 500", "as told"),
        ({"die_at": 2}, "connection", "closed the connection before the end"),
        ({"error_at": 2}, "stream", "broke"),
        ({"no_done": True}, "stream", "without [DONE]"),
        ({"no_finish": True}, "stream", "without a finish_reason"),
    ],
)
def test_failures_have_a_kind(server, fake, error, message):
    found = send(server[1], **fake)
    assert found.error == error
    assert message in found.message
    assert found.ended is not None


def test_a_sender_goes_on_after_a_failure(server):
    """The next request of the same sender has a connection again."""
    found = send(server[1], count=3, die_at=1)
    assert [record.error for record in found] == ["connection"] * 3
    assert all(record.sent is not None for record in found)


def test_a_timeout_ends_a_request(server):
    found = send(server[1], hang=True, target={"timeout": 0.2})
    assert (found.error, found.message) == ("timeout", "no end after 0.2 s")
    assert 0.2 <= found.e2el < 2


def test_nobody_listens():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        found = send(url)
        assert found.error == "connect"
        with pytest.raises(ConfigError, match=f"nothing answers at {url}"):
            served_model(url, None)
        with (
            RemoteEncoder(url, "m", None) as remote,
            pytest.raises(ConfigError, match="--engine_dir"),
        ):
            remote.encode("x")


def test_many_streams_lose_nothing_and_cost_little(server):
    """256 streams at once; what a token costs the client stays far below what a server takes for it."""
    asks = [Ask(token_ids=[1], max_tokens=20) for _ in range(256)]
    more = {"fake": {"gap": 0.02}}
    target = Target(base_url=server[1], endpoint="completions", model=MODEL, more=more)
    run = Run(Load(concurrency=256, num_requests=256), asks, new_senders(target, asks))
    asyncio.run(run.go())
    assert [record.error for record in run.records] == [None] * 256
    assert sum(record.streamed for record in run.records) == 256 * 20
    # the server's thread is in it: together about 0.15 ms on one core of 2.5 GHz
    assert run.cpu_seconds / (256 * 20) < 0.002


def test_what_a_server_tells_of_itself(server):
    _, url = server
    assert served_model(url, None) == MODEL
    with RemoteEncoder(url, MODEL, None) as remote:
        assert remote.encode("an apple an") == [*tokens_of("an"), *tokens_of(" apple an")]


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://h:8000", "http://h:8000"),
        ("http://h:8000/v1/", "http://h:8000"),
        ("https://h/api/v1", "https://h/api"),
    ],
)
def test_base_urls(url, base):
    assert base_of(url) == base


@pytest.mark.parametrize(
    "url",
    ["h:8000", "ftp://h", "http://", "http://h:x", "http://a b", "http://k@h", "http://h\n", ""],
)
def test_illegal_base_urls(url):
    with pytest.raises(ConfigError, match="base_url is"):
        base_of(url)
