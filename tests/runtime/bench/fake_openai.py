"""A small OpenAI-compatible server on raw asyncio, in a thread, that misbehaves as its requests say.

A request's field `fake` may have:

    wait, gap       seconds before the first token and between tokens
    at_once         tokens of one chunk
    lose, double    the number of a chunk that is not sent, or sent twice
    no_ids          no token ids in chunks
    cut             bytes of each write of an answer
    status          an error instead
    die_at          the connection breaks before this chunk
    error_at        an error event instead of this chunk
    no_done, no_usage, no_finish, hang
"""

import asyncio
import json
import re
from contextlib import contextmanager
from threading import Thread
from zlib import crc32

MODEL = "fake"


class FakeOpenAI:
    """What it was sent is kept: `bodies`, `headers`, and how many requests ran at the same time."""

    def __init__(self):
        self.bodies, self.headers, self.open = [], [], 0
        self.running = self.most_running = self.connections = 0

    async def serve(self, reader, writer):
        self.connections += 1
        self.open += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                first, *lines = head.strip().split("\r\n")
                headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
                raw = await reader.readexactly(int(headers.get("content-length", 0)))
                await self.answer(first.split(" ")[1], headers, raw, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open -= 1
            writer.close()

    async def answer(self, path, headers, raw, writer):
        if path == "/v1/models":
            return plain(writer, 200, {"data": [{"id": MODEL}]})
        body = json.loads(raw)
        if path == "/tokenize":
            return plain(writer, 200, {"tokens": tokens_of(body["prompt"])})
        self.bodies.append(body)
        self.headers.append(headers)
        if "fake" in body and "status" in body["fake"]:
            return plain(writer, body["fake"]["status"], {"error": {"message": "as told"}})
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await self.stream(path, body, writer)
        finally:
            self.running -= 1

    async def stream(self, path, body, writer):
        fake = body.get("fake", {})
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n")
        writer.write(b"transfer-encoding: chunked\r\n\r\n")
        await asyncio.sleep(fake.get("wait", 0))
        if fake.get("hang"):
            await asyncio.sleep(3600)
        total, at_once = body["max_tokens"], fake.get("at_once", 1)
        for number, start in enumerate(range(0, total, at_once)):
            if number:
                await asyncio.sleep(fake.get("gap", 0))
            if fake.get("die_at") == number:
                raise ConnectionError
            if fake.get("error_at") == number:
                await send(writer, {"error": {"message": "broke"}}, fake)
                break
            count = min(at_once, total - start)
            choice = choice_of(path, count, with_ids=not fake.get("no_ids"))
            if start + count >= total and not fake.get("no_finish"):
                choice["finish_reason"] = "length"
            times = {fake.get("lose"): 0, fake.get("double"): 2}.get(number, 1)
            for _ in range(times):
                await send(writer, {"choices": [choice]}, fake)
        if not fake.get("no_usage"):
            prompt = body.get("prompt", body.get("messages"))
            usage = {"prompt_tokens": len(prompt), "completion_tokens": total}
            await send(writer, {"choices": [], "usage": usage}, fake)
        if not fake.get("no_done"):
            await send(writer, b"[DONE]", fake)
        writer.write(b"0\r\n\r\n")
        await writer.drain()


def tokens_of(text):
    """A token for each word with the space before it."""
    return [2 + crc32(word.encode()) % 500 for word in re.findall(r" ?\S+", text)]


def choice_of(path, count, *, with_ids):
    choice = {"index": 0, "finish_reason": None}
    if path == "/v1/completions":
        choice["text"] = "x" * count
    else:
        choice["delta"] = {"content": "x" * count}
    return choice | ({"token_ids": [7] * count} if with_ids else {})


async def send(writer, data, fake):
    data = data if isinstance(data, bytes) else json.dumps(data).encode()
    event = b"data: " + data + b"\n\n"
    size = fake.get("cut", len(event))
    for start in range(0, len(event), size):
        piece = event[start : start + size]
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        await writer.drain()


def plain(writer, status, body):
    raw = json.dumps(body).encode()
    writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n" % (status, len(raw)) + raw)


@contextmanager
def fake_openai():
    """Yields the server and its address."""
    fake, loop = FakeOpenAI(), asyncio.new_event_loop()

    async def start():
        return await asyncio.start_server(fake.serve, "127.0.0.1", 0)

    async def stop(server):
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    server = loop.run_until_complete(start())
    thread = Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield fake, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        asyncio.run_coroutine_threadsafe(stop(server), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
