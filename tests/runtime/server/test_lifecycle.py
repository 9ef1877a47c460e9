"""A server from its start to its end: refusals, health, disconnects, drains, deaths."""

import asyncio
import json
import os
import re
import signal
import socket
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from tests.runtime.server.fake_executor import expected_ids
from tests.runtime.server.live import fake_server, live_server
from tests.runtime.server.streams import open_stream, token_ids

LONG = {"prompt": [5, 6, 7], "max_tokens": 5000}


def get(url):
    """Status, headers and body."""
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read()


def stats(server):
    return json.loads(get(f"{server.url}/engine_stats")[2])


def until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def child_of(server):
    """The process id of the executor."""
    pid = server.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    (found,) = (c for c in children if b"spawn_main" in Path(f"/proc/{c}/cmdline").read_bytes())
    return int(found)


@pytest.fixture(scope="module")
def fake(tokenizer_dir):
    with fake_server(tokenizer_dir, "--served_model_name", "fake") as live:
        yield live


def test_what_a_server_tells_of_itself(fake):
    assert get(f"{fake.url}/health")[0] == 200
    assert get(f"{fake.url}/health_generate")[0] == 200
    info = json.loads(get(f"{fake.url}/server_info")[2])
    assert (info["model"], info["state"], info["max_seq_len"]) == ("fake", "ready", 16384)
    assert json.loads(get(f"{fake.url}/version")[2])["version"] == info["version"]
    text = get(f"{fake.url}/metrics")[2].decode()
    assert "dsv4_output_tokens_total" in text
    assert 'dsv4_http_requests_total{method="GET",route="/health",status="200"}' in text
    assert stats(fake)["max_batch_size"] == 1024


def test_a_stream_brings_every_token_once(fake):
    status, ids = asyncio.run(token_ids(fake.url, {"prompt": [9, 8], "max_tokens": 50}))
    assert status == 200
    assert ids == expected_ids([9, 8], 50)


def test_a_client_that_disconnects_ends_its_request_within_two_steps(tokenizer_dir):
    with fake_server(tokenizer_dir, step_seconds=0.2) as live:

        async def leave():
            async with open_stream(live.url, LONG) as stream:
                await anext(stream.events())

        before = stats(live)
        asyncio.run(leave())
        left = stats(live)["output_tokens"]
        until(lambda: stats(live)["requests_finished"]["cancelled"] == 1)
        assert stats(live)["output_tokens"] - left <= 2
        assert before["requests_finished"]["cancelled"] == 0


def test_a_client_that_leaves_a_whole_answer_ends_its_request(fake):
    before = stats(fake)["requests_finished"]["cancelled"]

    async def leave():
        with suppress(TimeoutError):
            async with asyncio.timeout(0.3), open_stream(fake.url, {**LONG, "stream": False}):
                pass

    asyncio.run(leave())
    until(lambda: stats(fake)["requests_finished"]["cancelled"] == before + 1)


def test_a_full_queue_refuses_with_a_time_to_come_back(tokenizer_dir):
    with fake_server(tokenizer_dir, "--max_queue_size", 3) as live:

        async def fill():
            async with AsyncExitStack() as stack:
                for _ in range(3):
                    stream = await stack.enter_async_context(open_stream(live.url, LONG))
                    assert stream.status == 200
                refused = await stack.enter_async_context(open_stream(live.url, LONG))
                assert refused.status == 429
                return json.loads(await refused.reader.read())

        body = asyncio.run(fill())
        assert (body["error"]["type"], body["error"]["code"]) == ("rate_limit_error", "queue_full")


def test_a_drain_lets_requests_end_and_takes_no_more(tokenizer_dir):
    with fake_server(tokenizer_dir) as live:

        async def main():
            async with open_stream(live.url, {**LONG, "max_tokens": 150}) as stream:
                events = stream.events()
                await anext(events)
                live.process.send_signal(signal.SIGTERM)
                await asyncio.sleep(0.3)
                status, headers, _ = await asyncio.to_thread(get, f"{live.url}/health")
                assert status == 503
                assert "retry-after" in headers
                async with open_stream(live.url, LONG) as refused:
                    assert refused.status == 503
                reasons = [c["finish_reason"] async for e in events for c in e["choices"]]
                assert reasons[-1] == "length"

        asyncio.run(main())
        assert live.process.wait(20) == 0
        assert "draining" in live.logged


def test_a_drain_that_takes_too_long_cancels(tokenizer_dir):
    with fake_server(tokenizer_dir, "--drain_timeout", 0.5) as live:

        async def main():
            async with open_stream(live.url, LONG) as stream:
                events = stream.events()
                await anext(events)
                live.process.send_signal(signal.SIGTERM)
                return [event async for event in events][-1]

        assert "error" in asyncio.run(main())
        assert live.process.wait(20) == 0


def test_a_second_signal_ends_at_once(tokenizer_dir):
    with fake_server(tokenizer_dir) as live:

        async def main():
            async with open_stream(live.url, LONG):
                live.process.send_signal(signal.SIGINT)
                await asyncio.sleep(0.3)
                live.process.send_signal(signal.SIGINT)
                await asyncio.to_thread(live.process.wait, 10)

        asyncio.run(main())


def test_a_killed_executor_gives_clean_errors_and_comes_back(tokenizer_dir):
    with fake_server(tokenizer_dir) as live:
        first = child_of(live)

        async def main():
            async with open_stream(live.url, LONG) as stream:
                events = stream.events()
                await anext(events)
                os.kill(first, signal.SIGKILL)
                return [event async for event in events][-1]

        error = asyncio.run(main())["error"]
        assert error["type"] == "internal_error"
        status, headers, _ = get(f"{live.url}/health")
        if status != 200:  # it may be back already
            assert status == 503
            assert "retry-after" in {name.lower() for name in headers}
        until(lambda: get(f"{live.url}/health")[0] == 200)
        assert child_of(live) != first
        found = asyncio.run(token_ids(live.url, {"prompt": [9, 8], "max_tokens": 5}))
        assert found == (200, expected_ids([9, 8], 5))
        assert "the executor's process ended" in live.logged
        assert "Traceback" not in live.logged


def test_the_executor_goes_with_a_killed_server(tokenizer_dir):
    with fake_server(tokenizer_dir) as live:
        child = child_of(live)
        live.process.kill()
        live.process.wait()
        until(lambda: not os.path.exists(f"/proc/{child}"))


def start_and_fail(folder, *options, command=None):
    """What a server that can not start says."""
    with pytest.raises(AssertionError) as found, live_server(folder, *options, command=command):
        pass
    return str(found.value)


def test_a_port_that_is_taken_is_told_before_the_engine_is_opened(tiny_engine):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        started = time.monotonic()
        port = taken.getsockname()[1]
        text = start_and_fail(tiny_engine, "--host", "127.0.0.1", "--port", port)
        assert f"error: the server can not have 127.0.0.1:{port}" in text
        assert "Traceback" not in text
        assert time.monotonic() - started < 30


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (("--tp_size", "2"), "tp_size is 2, the bundle .* was converted for 1"),
        (("--max_seq_len", "99999"), "max_seq_len is 99999, the engine was built for 4096"),
        (("--tool_parser", "hermes"), "tool_parser is 'hermes'; expected deepseek_v4"),
    ],
)
def test_refusals_at_the_start_are_one_line(tiny_engine, options, match):
    text = start_and_fail(tiny_engine, "--device", "cpu", *options)
    assert re.search(f"error: {match}", text)
    assert "Traceback" not in text


def test_many_probes_at_once(fake):
    with ThreadPoolExecutor(16) as pool:
        paths = ("health", "engine_stats", "metrics", "server_info")
        found = list(pool.map(lambda i: get(f"{fake.url}/{paths[i % 4]}")[0], range(200)))
    assert set(found) == {200}
