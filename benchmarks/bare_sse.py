"""A bare loop of server-sent events: the least that a server of streams in Python can do.

It reads a request up to its body, then writes the same chunk at each tick to every stream, and at last a
tail with the number of tokens. No HTTP library, no JSON, no text, no other process; on uvloop, as the
server that is compared with it.

    python bare_sse.py CHUNKS.json STEP_SECONDS
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import uvloop

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
TOTAL = b"TOTAL"  # in the tail, where the number of tokens belongs
MAX_TOKENS = re.compile(rb'"max_tokens":(\d+)')


@dataclass(slots=True, eq=False)
class Stream:
    """One answer under way."""

    writer: asyncio.StreamWriter
    total: int
    left: int
    done: asyncio.Event


class BareServer:
    """All streams move at each tick; there are none while there are no streams, as in an executor."""

    def __init__(self, chunks: dict[str, str], step_seconds: float) -> None:
        self._first, self._token = (framed(chunks[name].encode()) for name in ("first", "token"))
        self._tail = chunks["tail"].encode()
        self._step_seconds = step_seconds
        self._streams: dict[Stream, None] = {}
        self._has_work = asyncio.Event()

    async def tick(self) -> None:
        while True:
            await self._has_work.wait()
            await asyncio.sleep(self._step_seconds)
            for stream in list(self._streams):
                self._move(stream)
            if not self._streams:
                self._has_work.clear()

    def _move(self, stream: Stream) -> None:
        stream.left -= 1
        data = self._token
        if stream.left == 0:
            data += framed(self._tail.replace(TOTAL, b"%d" % stream.total)) + b"0\r\n\r\n"
            del self._streams[stream]
            stream.done.set()
        stream.writer.write(data)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                body = await reader.readexactly(size)
                found = MAX_TOKENS.search(body)
                assert found is not None
                stream = Stream(writer, int(found[1]), int(found[1]), asyncio.Event())
                writer.write(HEAD + self._first)
                self._streams[stream] = None
                self._has_work.set()
                await stream.done.wait()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


def framed(data: bytes) -> bytes:
    """A chunk of HTTP's chunked encoding; none for no data, which would be the end."""
    return b"%x\r\n%s\r\n" % (len(data), data) if data else b""


async def main(chunks: Path, step_seconds: float) -> None:
    bare = BareServer(json.loads(chunks.read_text("utf-8")), step_seconds)
    server = await asyncio.start_server(bare.serve, "127.0.0.1", 0, backlog=2048)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await bare.tick()


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1]), float(sys.argv[2])))
