"""A loop of tool calls against a live server, in one piece and as streams at once."""

import asyncio
import json

import openai
import pytest

from dsv4_trt.runtime.chat.encoding import encode_segments
from tests.runtime.server.openai.bodies import CLOCK, WEATHER
from tests.runtime.server.openai.conftest import client_options

TOOLS = [WEATHER, CLOCK]
ASKED = [{"role": "user", "content": "What is the weather, and when?"}]
BLOCK = '\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="weather">\n</｜DSML｜invoke>\n'  # no clock
CITY = '<｜DSML｜parameter name="city" string="true">Rome</｜DSML｜parameter>\n'
STEPS = [
    {"tool_choice": {"type": "function", "function": {"name": "clock"}}},
    {"tool_choice": "required"},
    {"tool_choice": "none", "extra_body": {"guided_choice": ["Sun at noon."]}},
]


async def ask(client, **fields):
    """The message of an answer, as a client keeps it, and its reason to finish."""
    answer = await client.chat.completions.create(model="tiny", temperature=0, **fields)
    choice = answer.choices[0]
    return choice.message.model_dump(exclude_none=True), choice.finish_reason, answer


async def ask_streamed(client, **fields):
    """The same through the client's helper for streams."""
    async with client.chat.completions.stream(model="tiny", temperature=0, **fields) as events:
        done = [e async for e in events if e.type == "tool_calls.function.arguments.done"]
        answer = await events.get_final_completion()
    choice = answer.choices[0]
    calls = choice.message.tool_calls or []
    assert [(e.name, e.arguments) for e in done] == [
        (call.function.name, call.function.arguments) for call in calls
    ]
    message = choice.message.model_dump(exclude_none=True, exclude={"parsed"})
    for call in message.get("tool_calls", []):
        call["function"].pop("parsed_arguments", None)
        call.pop("index", None)
    return message, choice.finish_reason, answer


async def loop(client, how, bias):
    """Three steps; the messages after each, and what each prompt was."""
    messages, reasons, prompts = list(ASKED), [], []
    for step in STEPS:
        extra = {"return_token_ids": True, **step.get("extra_body", {})}
        fields = step | {"tools": TOOLS, "logit_bias": bias, "max_tokens": 64, "extra_body": extra}
        message, reason, answer = await how(
            client, messages=messages, parallel_tool_calls=False, **fields
        )
        messages.append(message)
        reasons.append(reason)
        prompts.append(answer.prompt_token_ids)
        for call in message.get("tool_calls", []):
            result = f"{call['function']['name']} ok"
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    return messages, reasons, prompts


def stripped(messages):
    """Messages without what differs from run to run, and without empty content."""
    return [
        {
            key: [each["function"] for each in value] if key == "tool_calls" else value
            for key, value in message.items()
            if key != "tool_call_id" and value != ""
        }
        for message in messages
    ]


@pytest.fixture(scope="module")
def loops(server, prefer):
    """The loop in one piece, and streamed, side by side."""
    bias = prefer(BLOCK, CITY, "Sun at noon.")

    async def both():
        async with openai.AsyncOpenAI(**client_options(server)) as client:
            return await asyncio.gather(loop(client, ask, bias), loop(client, ask_streamed, bias))

    return asyncio.run(both())


def test_each_step_calls_what_it_must(loops):
    messages, reasons, _ = loops[0]
    assert reasons == ["tool_calls", "tool_calls", "stop"]
    assert [message["role"] for message in messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    (first,) = messages[1]["tool_calls"]
    assert first["type"] == "function"
    assert first["function"] == {"name": "clock", "arguments": "{}"}
    (second,) = messages[3]["tool_calls"]
    assert second["function"]["name"] == "weather"
    assert json.loads(second["function"]["arguments"])["city"] in ("Rome", "Oslo")
    assert messages[5]["content"] == "Sun at noon."
    assert first["id"] != second["id"]


def test_streamed_steps_are_the_same(loops):
    assert loops[0][1] == loops[1][1]
    assert loops[0][2] == loops[1][2]
    assert stripped(loops[0][0]) == stripped(loops[1][0])


def test_each_prompt_is_the_encoding_of_what_was_said(loops, markup, tokenizer):
    messages, _, prompts = loops[0]
    for said, prompt in zip((1, 3, 5), prompts, strict=True):
        history = [m if m.get("content") else {**m, "content": ""} for m in messages[:said]]
        segments = encode_segments(history, TOOLS, thinking=True)
        assert prompt == markup.encode(segments, tokenizer)
    assert prompts[1][: len(prompts[0])] == prompts[0]  # so that its pages are shared
