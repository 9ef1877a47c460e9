"""Chat completions of a live server on the tiny model, through OpenAI's client."""

import pytest
from pydantic import BaseModel

from dsv4_trt.runtime.chat.encoding import encode_segments
from dsv4_trt.runtime.llm import LLM, KvCacheConfig, SamplingParams
from tests.runtime.server.openai.bodies import HI

GREEDY = {"model": "tiny", "messages": HI, "temperature": 0}
NO_THINKING = {"extra_body": {"thinking": {"type": "disabled"}}}


def whole(**fields):
    """A job that gives a `ChatCompletion`."""

    async def run(client):
        return await client.chat.completions.create(**(GREEDY | fields))

    return run


def stream(**fields):
    """A job that gives all chunks of a stream."""

    async def run(client):
        return [c async for c in await whole(stream=True, **fields)(client)]

    return run


def joined(chunks, index=0):
    """What the chunks of one sequence say: reasoning, content, reason to finish, log-probabilities."""
    choices = [c for chunk in chunks for c in chunk.choices if c.index == index]
    reasoning = "".join(getattr(c.delta, "reasoning_content", None) or "" for c in choices)
    content = "".join(c.delta.content or "" for c in choices)
    told = [c.logprobs.model_dump() for c in choices if c.logprobs is not None]
    tokens = [t for each in told for t in [*each.get("reasoning_content", []), *each["content"]]]
    ids = [i for c in choices for i in getattr(c, "token_ids", None) or []]
    assert [c.finish_reason for c in choices[:-1]] == [None] * (len(choices) - 1)
    return reasoning, content, choices[-1].finish_reason, tokens, ids


def test_whole_stream_and_llm_say_the_same(at_once, tiny_engine, tokenizer, markup):
    extra = {"return_token_ids": True, "reasoning_effort": "max"}
    fields = {"max_tokens": 5, "logprobs": True, "top_logprobs": 2, "extra_body": extra}
    usage = {"include_usage": True}
    answer, chunks, two = at_once(
        whole(**fields), stream(**fields, stream_options=usage), stream(**fields, n=2)
    )
    params = SamplingParams(max_tokens=5, temperature=0)
    with LLM(tiny_engine, device="cpu", kv_cache_config=KvCacheConfig(max_tokens=4096)) as llm:
        expected = llm.generate(answer.prompt_token_ids, params).outputs[0]

    segments = encode_segments(HI, thinking=True, reasoning_effort="max")
    assert answer.prompt_token_ids == markup.encode(segments, tokenizer)
    assert chunks[0].prompt_token_ids == answer.prompt_token_ids
    (choice,) = answer.choices
    assert choice.token_ids == expected.token_ids
    assert choice.message.reasoning_content == expected.text
    assert choice.message.content == ""
    assert choice.finish_reason == "length"
    named = choice.logprobs.reasoning_content
    assert [t["logprob"] for t in named] == pytest.approx(
        [t.logprob for t in expected.tokens], abs=0.2
    )
    assert [bytes(t["bytes"]) for t in named] == [
        tokenizer.token_bytes(token_id) for token_id in choice.token_ids
    ]
    assert [t["token"] for t in named] == [tokenizer.decode([i]) for i in choice.token_ids]
    assert all(t["top_logprobs"][0]["token"] == t["token"] for t in named)
    assert all(len(t["top_logprobs"]) == 2 for t in named)
    for found in (joined(chunks), joined(two, 0), joined(two, 1)):
        reasoning, content, reason, tokens, ids = found
        assert (reasoning, content, reason) == (expected.text, "", "length")
        assert ids == expected.token_ids
        assert [t["token"] for t in tokens] == [t["token"] for t in named]
        assert [t["logprob"] for t in tokens] == pytest.approx(
            [t["logprob"] for t in named], abs=0.2
        )  # rounding to 8 bits makes more of the last bits of a sum
    assert chunks[-1].usage == answer.usage
    assert answer.usage.completion_tokens_details.reasoning_tokens == 5
    assert answer.usage.prompt_tokens == len(answer.prompt_token_ids)
    assert {chunk.system_fingerprint for chunk in (*chunks, *two)} == {answer.system_fingerprint}


def test_a_grammar_holds_after_thinking(at_once, prefer):
    words = ["It is so.", "It is not."]
    fields = {"logit_bias": prefer(*words), "max_tokens": 24, "logprobs": True}
    fields["extra_body"] = {"guided_choice": words, "return_token_ids": True}
    answer, chunks, format_ = at_once(
        whole(**fields),
        stream(**fields),
        whole(**(fields | {"extra_body": {"structured_outputs": {"regex": "It is (not|so)\\."}}})),
    )
    (choice,) = answer.choices
    assert choice.finish_reason == "stop"
    assert choice.message.content in words
    assert not hasattr(choice.message, "reasoning_content")  # thinking ended at once
    assert format_.choices[0].message.content in words
    reasoning, content, reason, _, ids = joined(chunks)
    assert (reasoning, content, reason) == ("", choice.message.content, "stop")
    assert ids == choice.token_ids
    assert answer.usage.completion_tokens == len(ids)
    assert answer.usage.completion_tokens_details.reasoning_tokens == 1
    named = [t.token for t in choice.logprobs.content]
    assert "".join(named[:-1]) == content
    assert named[-1] == "<｜end▁of▁sentence｜>"
    assert [t["token"] for t in choice.logprobs.reasoning_content] == ["</think>"]


class Verdict(BaseModel):
    ok: bool


def test_parse_helpers(at_once, prefer):
    fields = GREEDY | {"max_tokens": 24, "response_format": Verdict}
    fields["logit_bias"] = prefer('{"ok": true}')

    async def parsed(client):
        return await client.chat.completions.parse(**fields)

    async def streamed(client):
        async with client.chat.completions.stream(**fields) as events:
            kinds = [event.type async for event in events]
            return kinds, await events.get_final_completion()

    async def json_object(client):
        fields = {"response_format": {"type": "json_object"}, "max_tokens": 7}
        bias = prefer('{"ok": true}')
        return await whole(logit_bias=bias, **fields, **NO_THINKING)(client)

    answer, (kinds, final), free = at_once(parsed, streamed, json_object)
    verdict = answer.choices[0].message.parsed
    assert isinstance(verdict, Verdict)
    assert final.choices[0].message.parsed == verdict
    assert kinds[-1] == "content.done"
    assert free.choices[0].message.content.startswith("{")


def test_seeds(at_once):
    def drawn(seed, **fields):
        extra = {"return_token_ids": True}
        return whole(temperature=1, max_tokens=3, seed=seed, extra_body=extra, **fields)

    (first,) = at_once(drawn(5))  # alone, as sums of another batch differ in their last bits
    (again,) = at_once(drawn(5))
    other, two = at_once(drawn(-6), drawn(5, n=2))
    ids = [answer.choices[0].token_ids for answer in (first, again, other)]
    assert ids[0] == ids[1] != ids[2]
    assert [c.index for c in two.choices] == [0, 1]
    assert two.choices[0].token_ids != two.choices[1].token_ids
    assert two.usage.completion_tokens == 6


def test_stop_bias_and_limits(at_once, markup, tokenizer):
    (letter,) = tokenizer.encode("a")
    always = {"logit_bias": {str(letter): 100}, "max_tokens": 4, **NO_THINKING}
    ids = {"stop_token_ids": [letter], "min_tokens": 2, **NO_THINKING["extra_body"]}
    stopped, by_id, never, none = at_once(
        whole(**always, stop=["aaa", "x"]),
        whole(**(always | {"extra_body": ids})),
        whole(**(always | {"logit_bias": {str(markup.eos): 100, str(letter): 50}}), n=2),
        whole(**(always | {"logit_bias": {str(letter): 100, str(markup.eos): 50}})),
    )
    assert stopped.choices[0].message.content == ""
    assert (stopped.choices[0].finish_reason, stopped.choices[0].stop_reason) == ("stop", "aaa")
    assert by_id.choices[0].stop_reason == letter
    assert by_id.usage.completion_tokens == 3  # what ends an answer is barred for two tokens
    assert [c.finish_reason for c in never.choices] == ["stop", "stop"]
    assert [c.message.content for c in never.choices] == ["", ""]
    assert none.choices[0].message.content == "aaaa"
    assert none.choices[0].finish_reason == "length"


def test_prompts_end_as_they_are_told_to(at_once, markup, tokenizer):
    said = {"role": "assistant", "content": "An old", "reasoning_content": "5-7-5"}
    closed = {"role": "assistant", "content": "An old"}

    def tail(messages, **extra):
        fields = {"return_token_ids": True, **extra}
        return whole(messages=messages, max_tokens=1, extra_body=fields)

    found = at_once(
        tail([*HI, {**said, "prefix": True}]),
        tail([*HI, said], continue_final_message=True, add_generation_prompt=False),
        tail([*HI, {**closed, "prefix": True}], thinking={"type": "disabled"}),
        tail(HI),
        tail(HI, chat_template_kwargs={"enable_thinking": False}),
    )
    texts = [tokenizer.decode(answer.prompt_token_ids) for answer in found]
    begin = "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜>"
    assert texts == [
        begin + "<think>5-7-5</think>An old",
        begin + "<think>5-7-5</think>An old",
        begin + "</think>An old",
        begin + "<think>",
        begin + "</think>",
    ]
    thought = [getattr(a.choices[0].message, "reasoning_content", None) for a in found]
    assert [text is None for text in thought] == [True, True, True, False, True]
