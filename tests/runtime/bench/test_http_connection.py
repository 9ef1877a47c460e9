"""Answers in every shape that HTTP/1.1 allows, and ends of connections at every point."""

import asyncio
from contextlib import suppress

import pytest

from dsv4_trt.runtime.bench.http_connection import HttpConnection

CHUNKED = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
)
SIZED = b"HTTP/1.1 404 No\r\nContent-Length: 5\r\n\r\nabcde"
CLOSED = b"HTTP/1.0 200 OK\r\n\r\nabcde"
LAST = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 5\r\n\r\nabcde"


async def answered(*writes, closes=False, then=None):
    """What a client gets of a server that writes these pieces: status, body, whether it stays open."""

    ended = asyncio.Event()

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        with suppress(ConnectionError):
            for piece in writes:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            if not closes:
                await reader.read()
            writer.close()
            await writer.wait_closed()
        writer.close()
        ended.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        connection = await HttpConnection.connect("127.0.0.1", port, None)
        pieces = []
        try:
            async with asyncio.timeout(1):
                await connection.exchange(
                    b"GET / HTTP/1.1\r\n\r\n", lambda b, now: pieces.append(b)
                )
            if then is not None:
                await then(connection)
            return connection.status, b"".join(pieces), connection.is_open
        finally:
            connection.close()
            await ended.wait()
    finally:
        server.close()


@pytest.mark.parametrize(
    ("answer", "closes", "status", "stays"),
    [
        (CHUNKED, False, 200, True),
        (SIZED, False, 404, True),
        (CLOSED, True, 200, False),
        (LAST, False, 200, False),
    ],
)
@pytest.mark.parametrize("size", [1, 10, 1000])
def test_answers(answer, closes, status, stays, size):
    writes = [answer[i : i + size] for i in range(0, len(answer), size)]
    assert asyncio.run(answered(*writes, closes=closes)) == (status, b"abcde", stays)


@pytest.mark.parametrize("cut", [0, 8, 30, len(CHUNKED) - 6])
def test_a_connection_that_ends_too_early(cut):
    with pytest.raises(ConnectionError, match="before the end of the answer"):
        asyncio.run(answered(CHUNKED[:cut], closes=True))


def test_what_is_no_http():
    with pytest.raises(ConnectionError, match="is no HTTP"):
        asyncio.run(answered(b"SSH-2.0-x\r\n"))


def test_a_cancelled_exchange_closes_the_connection():
    with pytest.raises(TimeoutError):
        asyncio.run(answered(b""))


def test_bytes_that_nobody_asked_for_close_the_connection():
    async def wait(connection):
        for _ in range(200):
            if not connection.is_open:
                return
            await asyncio.sleep(0.01)

    assert asyncio.run(answered(SIZED, b"more", then=wait)) == (404, b"abcde", False)
