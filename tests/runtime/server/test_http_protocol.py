"""Heads of requests that are too large or too slow, bodies that drip, and addresses that are none."""

import socket
import time
from urllib.parse import urlsplit

import pytest

from tests.runtime.server.live import fake_server

HEALTH = b"GET /health HTTP/1.1\r\nhost: x\r\n"


@pytest.fixture(scope="module")
def place(tokenizer_dir):
    with fake_server(tokenizer_dir, "--host", "127.0.0.1", "--body_timeout", 1) as live:
        url = urlsplit(live.url)
        yield url.hostname, url.port


def speak(place, *pieces, pause=0.0):
    """What comes back until the other side closes."""
    with socket.create_connection(place, timeout=20) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
                time.sleep(pause)
        except OSError:
            pass
        found = b""
        try:
            while part := connection.recv(65536):
                found += part
        except ConnectionResetError:
            found += b"(reset)"
        return found


@pytest.mark.parametrize(
    "pieces",
    [
        [HEALTH, *[b"a: " + b"x" * 8000 + b"\r\n"] * 10_000],
        [HEALTH + b"a: ", *[b"x" * 8000] * 10_000],
        [b"GET /", *[b"x" * 8000] * 10_000],
    ],
    ids=["many", "one", "path"],
)
def test_a_head_without_end_is_refused(place, pieces):
    found = speak(place, *pieces)
    assert b"431" in found or found == b"(reset)"
    assert b"200 OK" in speak(place, HEALTH + b"connection: close\r\n\r\n")


@pytest.mark.parametrize("offer", ["h2c", "websocket"])
@pytest.mark.parametrize("size", [1, 40, 10_000])
def test_an_offer_of_another_protocol_is_passed_over(place, offer, size):
    """As Java's client makes it; in pieces, with a body, and with a request behind it."""
    body = b'{"prompt": "one two"}'
    head = (
        b"POST /tokenize HTTP/1.1\r\nhost: x\r\nconnection: Upgrade, HTTP2-Settings\r\n"
        b"content-type: application/json\r\nhttp2-settings: AAEAAEAAAAIAAAABAAMAAABk\r\n"
    )
    head += b"upgrade: %s\r\ncontent-length: %d\r\n\r\n" % (offer.encode(), len(body))
    sent = head + body + HEALTH + b"connection: close\r\n\r\n"
    found = speak(place, *(sent[at : at + size] for at in range(0, len(sent), size)))
    assert b'"tokens"' in found
    assert found.count(b"200 OK") == 2


def test_a_large_head_and_a_pipelined_one_are_taken(place):
    large = HEALTH + b"a: " + b"x" * 50_000 + b"\r\n"
    found = speak(place, large + b"\r\n", large + b"connection: close\r\n\r\n", pause=0.1)
    assert found.count(b"200 OK") == 2


def test_a_body_that_drips_has_one_time_for_all_of_it(place):
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    begun = time.monotonic()
    found = speak(place, head + b"content-length: 100\r\n\r\n", *[b" "] * 20, pause=0.2)
    assert found.startswith(b"HTTP/1.1 408")
    assert b"connection: close" in found
    assert time.monotonic() - begun < 10


def test_a_host_that_is_no_address_is_no_matter(place):
    found = speak(place, b"GET /nothing HTTP/1.1\r\nhost: [\r\nconnection: close\r\n\r\n")
    assert found.startswith(b"HTTP/1.1 404")
    assert b"there is nothing at /nothing" in found


def test_a_head_that_does_not_come_is_not_waited_for(monkeypatch):
    """The timer alone: the real time is half a minute."""
    import asyncio

    from uvicorn import Config
    from uvicorn.server import ServerState

    from dsv4_trt.runtime.server import http_protocol

    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 0.2)

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def main():
        loop = asyncio.get_running_loop()
        config = Config(app, lifespan="off", log_config=None)
        config.load()
        state = ServerState()
        server = await loop.create_server(
            lambda: http_protocol.BoundedProtocol(config, state, {}), "127.0.0.1", 0
        )
        address = server.sockets[0].getsockname()
        for begin in (b"", b"GET / HTTP/1.1\r\n"):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(begin)
            async with asyncio.timeout(5):
                assert await reader.read() == b""
            writer.close()
        reader, writer = await asyncio.open_connection(*address)
        for _ in range(3):  # kept open between requests
            writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            assert b"204" in await reader.readuntil(b"\r\n\r\n")
            await asyncio.sleep(0.3)
        writer.close()
        server.close()

    asyncio.run(main())
