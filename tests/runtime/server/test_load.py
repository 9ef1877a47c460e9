"""Load: hundreds of streams, slow readers, thousands of clients that leave. Own stage: `-m load`."""

import asyncio
import json
import os
import socket
import time
from itertools import cycle
from pathlib import Path

import pytest

from tests.runtime.server.fake_executor import expected_ids
from tests.runtime.server.live import fake_server
from tests.runtime.server.streams import connect, open_stream, request_bytes, token_ids
from tests.runtime.server.test_lifecycle import child_of, get, until

pytestmark = pytest.mark.load

STREAMS = 512
MB = 1 << 20


@pytest.fixture(scope="module")
def fake(tokenizer_dir):
    with fake_server(tokenizer_dir, step_seconds=0.05) as live:
        yield live


def memory(pid):
    """Resident bytes of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def open_files(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def stats(server):
    return json.loads(get(f"{server.url}/engine_stats")[2])


async def many(url, count, tokens, first=0):
    """Streams at the same time, each with a prompt of its own; each must bring exactly its tokens."""
    prompts = [[5 + i % 900, 7 + i // 900, first] for i in range(count)]
    asks = [token_ids(url, {"prompt": p, "max_tokens": tokens}) for p in prompts]
    found = await asyncio.gather(*asks)
    assert [status for status, _ in found] == [200] * count
    for prompt, (_, ids) in zip(prompts, found, strict=True):
        assert ids == expected_ids(prompt, tokens)


def test_512_streams_lose_and_repeat_no_token(fake):
    pids = (fake.process.pid, child_of(fake))
    asyncio.run(many(fake.url, STREAMS, 40))
    before = [memory(pid) for pid in pids]
    for round_ in range(1, 4):
        asyncio.run(many(fake.url, STREAMS, 40, round_))
    grown = [memory(pid) - bytes_ for pid, bytes_ in zip(pids, before, strict=True)]
    assert max(grown) < 30 * MB
    assert stats(fake)["running"] == 0


def test_slow_readers_hold_up_nobody(fake):
    async def slow():
        """Asks for much and reads nothing, over a connection that holds little."""
        place = socket.socket()
        place.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        place.setblocking(False)
        host, port = fake.url.removeprefix("http://").split(":")
        await asyncio.get_running_loop().sock_connect(place, (host, int(port)))
        reader, writer = await asyncio.open_connection(sock=place, limit=4096)
        body = {"prompt": [11, 12, 13], "max_tokens": 2000, "stream": True}
        writer.write(request_bytes(fake.url, {**body, "return_token_ids": True}))
        return reader, writer

    async def main():
        await many(fake.url, 64, 20)
        started = time.perf_counter()
        await many(fake.url, 64, 40)
        alone = time.perf_counter() - started
        connections = [await slow() for _ in range(64)]
        await asyncio.sleep(1)
        started = time.perf_counter()
        await many(fake.url, 64, 40, 1)
        beside = time.perf_counter() - started
        ids = [await rest(reader) for reader, _ in connections[:4]]
        for _, writer in connections:
            writer.close()
        return alone, beside, ids

    async def rest(reader):
        """All token ids of a stream that was left alone until now."""
        found = []
        while line := await reader.readline():
            if line.startswith(b"data: {"):
                (choice,) = json.loads(line[6:])["choices"]
                found += choice.get("token_ids") or []
        return found

    alone, beside, ids = asyncio.run(main())
    assert beside < 2 * alone + 1
    assert ids == [expected_ids([11, 12, 13], 2000)] * 4
    until(lambda: stats(fake)["running"] == 0, 60)


def test_10000_clients_that_leave_take_nothing_along(fake):
    body = {"prompt": [3, 4], "max_tokens": 3000, "stream": True}

    async def nothing():
        _, writer = await connect(fake.url)
        writer.close()

    async def half_a_request():
        _, writer = await connect(fake.url)
        writer.write(request_bytes(fake.url, body)[:-9])
        await writer.drain()
        writer.close()

    async def request():
        _, writer = await connect(fake.url)
        writer.write(request_bytes(fake.url, body))
        await writer.drain()
        writer.close()

    async def first_token():
        async with open_stream(fake.url, body) as stream:
            await anext(stream.events())

    async def leave(count):
        limit = asyncio.Semaphore(128)

        async def one(way):
            async with limit:
                await way()

        ways = cycle((nothing, half_a_request, request, first_token))
        await asyncio.gather(*(one(next(ways)) for _ in range(count)))

    pids = (fake.process.pid, child_of(fake))
    asyncio.run(leave(1000))
    until(lambda: stats(fake)["running"] == 0, 60)
    before = [(memory(pid), open_files(pid)) for pid in pids]
    asyncio.run(leave(10_000))
    until(lambda: stats(fake)["running"] == 0, 60)
    until(lambda: open_files(pids[0]) <= before[0][1] + 2, 60)
    for pid, (bytes_, files) in zip(pids, before, strict=True):
        assert memory(pid) - bytes_ < 40 * MB
        assert open_files(pid) <= files + 2
    asyncio.run(many(fake.url, 16, 20, 9))


def test_512_streams_of_the_tiny_model(server):
    """Real tokens under load are those of each request alone."""
    prompts = [[0, 100 + i, 200 + 3 * i, 300] for i in range(8)]

    def ask(prompt):
        body = {"prompt": prompt, "max_tokens": 3, "temperature": 0, "ignore_eos": True}
        return token_ids(server.url, body)

    async def main():
        alone = [await ask(prompt) for prompt in prompts]
        together = await asyncio.gather(*(ask(prompts[i % 8]) for i in range(STREAMS)))
        for i, found in enumerate(together):
            assert found == alone[i % 8]

    asyncio.run(main())
