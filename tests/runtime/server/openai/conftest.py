"""Clients of the shared server: OpenAI's own, unmodified."""

import asyncio

import openai
import pytest

from dsv4_trt.runtime.chat.markup import Markup
from dsv4_trt.runtime.text.tokenizer import Tokenizer

WAIT_SECONDS = 300  # a busy machine is no failure


def client_options(server):
    return {
        "base_url": server.url + "/v1",
        "api_key": "none",
        "max_retries": 0,
        "timeout": WAIT_SECONDS,
    }


@pytest.fixture(scope="session")
def client(server):
    """The synchronous client."""
    with openai.OpenAI(**client_options(server)) as client:
        yield client


@pytest.fixture
def at_once(server):
    """Runs coroutines that get the asynchronous client, all at once: they share the engine's steps."""

    def run(*jobs):
        async def main():
            async with openai.AsyncOpenAI(**client_options(server)) as client:
                return await asyncio.gather(*(job(client) for job in jobs))

        return asyncio.run(main())

    return run


@pytest.fixture(scope="session")
def tokenizer(tiny_engine):
    return Tokenizer.load(tiny_engine)


@pytest.fixture(scope="session")
def markup(tokenizer):
    return Markup.resolve(tokenizer)


@pytest.fixture(scope="session")
def prefer(tokenizer, markup):
    """A bias under which greedy decoding ends thinking at once and spells these texts where it may."""

    def bias(*texts):
        wanted = {token_id: 50 for text in texts for token_id in tokenizer.encode(text)}
        return {str(i): b for i, b in (wanted | {markup.end_think: 100}).items()}

    return bias
