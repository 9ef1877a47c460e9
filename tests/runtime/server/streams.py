"""Streams of a completions API, read by hand: what each chunk held, and connections that are cut."""

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit


def request_bytes(url, body, path="/v1/completions"):
    """A whole HTTP request."""
    data = json.dumps(body).encode()
    host = urlsplit(url).netloc
    head = (
        f"POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(data)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + data


async def connect(url):
    place = urlsplit(url)
    return await asyncio.open_connection(place.hostname, place.port)


class Stream:
    """An open answer: its status, and the JSON of its events."""

    def __init__(self, reader, status):
        self.reader, self.status = reader, status

    async def events(self):
        """Each event as it comes; ends at [DONE], or after an error."""
        event = {}
        while line := await self.reader.readline():
            if line.startswith(b"data: "):
                data = line[6:].strip()
                if data == b"[DONE]":
                    return
                event = json.loads(data)
                yield event
        if "error" not in event:
            raise EOFError("the stream ended without [DONE]")


@asynccontextmanager
async def open_stream(url, body, path="/v1/completions"):
    """Send a request; the `with` begins once the head of the answer is there, and ends the connection."""
    reader, writer = await connect(url)
    try:
        writer.write(request_bytes(url, {"stream": True, **body}, path))
        head = await reader.readuntil(b"\r\n\r\n")
        yield Stream(reader, int(head.split()[1]))
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def token_ids(url, body):
    """Status and token ids of a streamed completion."""
    ids = []
    async with open_stream(url, {"return_token_ids": True, **body}) as stream:
        if stream.status == 200:
            async for event in stream.events():
                for choice in event["choices"]:
                    ids += choice.get("token_ids") or []
    return stream.status, ids
