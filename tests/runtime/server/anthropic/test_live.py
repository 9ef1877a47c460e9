"""The official client against the real server on the tiny model: grammars, greedy choices, the cache.

Few tokens: each is a step of the reference engine. Loops of several steps are in `test_client.py`.
"""

import asyncio

import anthropic
import pytest
from pydantic import BaseModel

WAIT_SECONDS = 300  # a busy machine is no failure
NO_THINK = {"type": "disabled"}
EMPTY = {"type": "object", "properties": {}, "additionalProperties": False}
TOOLS = [{"name": name, "input_schema": EMPTY} for name in ("tide", "sun")]


@pytest.fixture(scope="module")
def at_once(server):
    """Answers of these requests, which share the engine's steps; one with `stream` is streamed."""

    async def answer(client, fields):
        if not fields.pop("stream", False):
            return await client.messages.create(**fields)
        async with client.messages.stream(**fields) as stream:
            return await stream.get_final_message()

    async def answers(requests):
        options = {"base_url": server.url, "api_key": "none", "max_retries": 0}
        async with anthropic.AsyncAnthropic(**options, timeout=WAIT_SECONDS) as client:
            return await asyncio.gather(*(answer(client, fields) for fields in requests))

    return lambda *requests: asyncio.run(answers(requests))


def request(text="Hello", **fields):
    given = {"model": "tiny", "max_tokens": 3, "thinking": NO_THINK}
    greedy = {"extra_body": {"temperature": 0}}
    return given | greedy | {"messages": [{"role": "user", "content": text}]} | fields


def test_greedy_answers_are_the_same_whole_and_streamed(at_once):
    whole, streamed, thought = at_once(
        request(), request(stream=True), request(thinking={"type": "adaptive"})
    )
    assert whole.stop_reason == streamed.stop_reason == "max_tokens"
    assert whole.usage.output_tokens == streamed.usage.output_tokens == 3
    assert whole.content[0].text
    assert whole.content[0].text == streamed.content[0].text
    assert [block.type for block in thought.content] == ["thinking"]
    assert thought.usage.output_tokens_details.thinking_tokens == 3


class Warm(BaseModel):
    is_warm: bool


def test_required_calls_are_made_and_schemas_followed(at_once):
    fields = {"tools": TOOLS, "max_tokens": 200}
    any_tool = {"type": "any", "disable_parallel_tool_use": True}
    tide = {"type": "tool", "name": "tide", "disable_parallel_tool_use": True}
    first, second, third = at_once(
        request(**fields, tool_choice=any_tool),
        request(**fields, tool_choice=tide, stream=True),
        request(max_tokens=100, output_format=Warm, stream=True),
    )
    assert first.stop_reason == second.stop_reason == "tool_use"
    assert [block.name in ("tide", "sun") for block in first.content] == [True]
    assert [block.name for block in second.content] == ["tide"]
    assert third.stop_reason == "end_turn"
    assert isinstance(third.parsed_output, Warm)


def test_a_schema_that_is_none_is_refused_by_its_field(at_once):
    broken = {"format": {"type": "json_schema", "schema": {"type": "no such type"}}}
    with pytest.raises(anthropic.BadRequestError, match=r"output_config\.format"):
        at_once(request(output_config=broken))


def test_a_prompt_is_found_in_the_cache_by_the_next_turn(at_once):
    text = "The sky is blue. " * 60
    (first,) = at_once(request(text, max_tokens=1))
    (again,) = at_once(request(text, max_tokens=1))
    assert first.usage.cache_read_input_tokens == 0
    assert again.usage.cache_read_input_tokens == 256
    assert again.usage.input_tokens + 256 == first.usage.input_tokens
    assert again.content == first.content
