"""The official client against the real server on the tiny model: schemas, greedy choices, streams.

Few tokens: each is a step of the reference engine. Tools and loops are in `test_client.py`; that grammars
make calls is tested with the other APIs.
"""

import asyncio

import openai
import pytest
from pydantic import BaseModel

WAIT_SECONDS = 300  # a busy machine is no failure
NO_THINK = {"effort": "none"}


@pytest.fixture(scope="module")
def at_once(server):
    """Answers of these requests, which share the engine's steps; one with `stream` is streamed."""

    async def answer(client, fields):
        if not fields.pop("stream", False):
            return await client.responses.parse(**fields)
        *_, last = [event async for event in await client.responses.create(**fields, stream=True)]
        return last.response

    async def answers(requests):
        options = {"base_url": f"{server.url}/v1", "api_key": "none", "max_retries": 0}
        async with openai.AsyncOpenAI(**options, timeout=WAIT_SECONDS) as client:
            return await asyncio.gather(*(answer(client, fields) for fields in requests))

    return lambda *requests: asyncio.run(answers(requests))


def request(given="Hello", **fields):
    base = {"model": "tiny", "max_output_tokens": 3, "temperature": 0, "reasoning": NO_THINK}
    return base | {"input": given} | fields


def test_greedy_answers_are_the_same_whole_and_streamed(at_once):
    whole, streamed, thought = at_once(
        request(), request(stream=True), request(reasoning={"effort": "high"})
    )
    assert whole.status == streamed.status == "incomplete"
    assert whole.output_text == streamed.output_text
    assert whole.output_text
    assert whole.usage.output_tokens == streamed.usage.output_tokens == 3
    assert [item.type for item in thought.output] == ["reasoning"]
    assert thought.usage.output_tokens_details.reasoning_tokens == 3


class Warm(BaseModel):
    is_warm: bool


def test_structured_output_follows_its_schema(at_once):
    (response,) = at_once(request(max_output_tokens=100, text_format=Warm))
    assert response.status == "completed"
    assert isinstance(response.output_parsed, Warm)


def test_a_schema_that_is_none_is_refused_by_its_field(at_once):
    broken = {"format": {"type": "json_schema", "name": "n", "schema": {"type": "no such type"}}}
    with pytest.raises(openai.BadRequestError) as caught:
        at_once(request(text=broken))
    assert caught.value.param == "text.format"
