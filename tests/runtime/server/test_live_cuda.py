"""A server over the engine on a GPU: the tokens of `LLM`, grammars, load, and nothing held afterwards."""

import asyncio
import json

import pytest

from dsv4_trt.runtime.llm import LLM, KvCacheConfig, SamplingParams
from tests.runtime.server.live import live_server
from tests.runtime.server.streams import open_stream, token_ids
from tests.runtime.server.test_lifecycle import get, until

pytestmark = pytest.mark.gpu

PROMPTS = [[0, 100 + i, 200 + 3 * i, 300 + i] for i in range(16)]
TOKENS = 12
SHARE = "--kv_cache_free_gpu_memory_fraction"  # other engines run beside this one
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "enum": ["Oslo", "Lima"]},
                "days": {"type": "integer", "minimum": 1, "maximum": 9},
            },
            "required": ["city", "days"],
        },
    },
}


@pytest.fixture(scope="module")
def server(tiny_engine):
    options = ("--device", "cuda", "--served_model_name", "tiny", SHARE, 0.05)
    with live_server(tiny_engine, *options) as live:
        yield live


def greedy(prompt, **more):
    return {"prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True, **more}


def stats(server):
    return json.loads(get(f"{server.url}/engine_stats")[2])


async def answer(server, body, path="/v1/chat/completions"):
    """The JSON of a whole answer."""
    async with open_stream(server.url, {"stream": False, **body}, path) as stream:
        assert stream.status == 200
        return json.loads(await stream.reader.read())


def test_each_prompt_brings_what_it_brings_an_llm(server, tiny_engine):
    params = SamplingParams(max_tokens=TOKENS, temperature=0, ignore_eos=True)
    with LLM(tiny_engine, device="cuda", kv_cache_config=KvCacheConfig(max_tokens=20_000)) as llm:
        alone = [llm.generate(prompt, params).outputs[0].token_ids for prompt in PROMPTS]

    async def one_by_one():
        return [await token_ids(server.url, greedy(prompt)) for prompt in PROMPTS]

    assert asyncio.run(one_by_one()) == [(200, ids) for ids in alone]


def test_512_streams(server):
    async def main():
        asks = [token_ids(server.url, greedy(PROMPTS[i % 16])) for i in range(512)]
        return await asyncio.gather(*asks)

    found = asyncio.run(main())
    assert {(status, len(ids)) for status, ids in found} == {(200, TOKENS)}
    assert stats(server)["running"] == 0


@pytest.mark.parametrize("thinking", ["enabled", "disabled"])
def test_a_required_call_fits_its_schema(server, thinking):
    body = {
        "messages": [{"role": "user", "content": "weather"}],
        "tools": [TOOL],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "thinking": {"type": thinking},
        "max_tokens": 300,
        "n": 4,
        # thinking ends at once: noise would go on
        "logit_bias": {"128822": 100} if thinking == "enabled" else {},
    }
    choices = asyncio.run(answer(server, body))["choices"]
    assert len(choices) == 4
    for choice in choices:
        assert choice["finish_reason"] == "tool_calls"
        (call,) = choice["message"]["tool_calls"]
        arguments = json.loads(call["function"]["arguments"])
        assert arguments["city"] in ("Oslo", "Lima")
        assert 1 <= arguments["days"] <= 9


def test_many_follow_grammars_at_once(server):
    schema = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"]}
    schema["additionalProperties"] = False
    body = {
        "messages": [{"role": "user", "content": "json"}],
        "thinking": {"type": "disabled"},
        "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}},
        "max_tokens": 60,
    }

    async def main():
        return await asyncio.gather(*(answer(server, body) for _ in range(64)))

    for found in asyncio.run(main()):
        (choice,) = found["choices"]
        assert json.loads(choice["message"]["content"]) in ({"a": "x"}, {"a": "y"})


def test_clients_that_leave_free_their_pages(server):
    async def leave():
        async with open_stream(server.url, greedy(PROMPTS[0], max_tokens=3000)) as stream:
            await anext(stream.events())

    async def main():
        await asyncio.gather(*(leave() for _ in range(64)))

    asyncio.run(main())
    until(lambda: stats(server)["running"] == 0)
    assert stats(server)["waiting"] == 0
    assert all(pool["held"] == 0 for pool in stats(server)["pages"].values())
