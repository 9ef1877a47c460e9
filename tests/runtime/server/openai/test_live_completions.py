"""Completions and the tokenizer's routes of a live server, through OpenAI's client and as plain HTTP."""

import json
from urllib.request import Request, urlopen

import pytest

from dsv4_trt.runtime.chat.encoding import encode_segments
from tests.runtime.server.openai.bodies import HI, WEATHER

GREEDY = {"model": "tiny", "temperature": 0}


def complete(**fields):
    async def run(client):
        return await client.completions.create(**(GREEDY | fields))

    return run


def stream(**fields):
    async def run(client):
        return [c async for c in await complete(stream=True, **fields)(client)]

    return run


def texts(chunks):
    found = {}
    for choice in (c for chunk in chunks for c in chunk.choices):
        found[choice.index] = found.get(choice.index, "") + choice.text
    return found


def test_prompts_in_all_forms(at_once, tokenizer):
    ids = [0, *tokenizer.encode("The sky is")]
    fields = {"max_tokens": 3, "logprobs": 1}
    one, by_id, many, lists, chunks = at_once(
        complete(prompt="The sky is", **fields),
        complete(prompt=ids, **fields),
        complete(prompt=["The sky is", "x"], n=2, max_tokens=3, echo=True),
        complete(prompt=[ids, ids], max_tokens=3),
        stream(prompt=["The sky is", "x"], max_tokens=3, stream_options={"include_usage": True}),
    )
    text = one.choices[0].text
    assert by_id.choices[0].text == text
    assert by_id.choices[0].logprobs == one.choices[0].logprobs
    assert [c.text for c in lists.choices] == [text, text]
    assert [c.index for c in many.choices] == [0, 1, 2, 3]
    assert [c.text for c in many.choices[:2]] == ["The sky is" + text] * 2
    assert all(c.text.startswith("x") for c in many.choices[2:])
    assert many.usage.completion_tokens == 12
    assert many.usage.prompt_tokens == len(ids) + 2
    assert texts(chunks) == {0: text, 1: many.choices[2].text[1:]}
    assert chunks[-1].usage.completion_tokens == 6
    assert chunks[-1].choices == []
    logprobs = one.choices[0].logprobs
    assert "".join(logprobs.tokens) == text
    for at, name, best, logprob in zip(
        logprobs.text_offset,
        logprobs.tokens,
        logprobs.top_logprobs,
        logprobs.token_logprobs,
        strict=True,
    ):
        assert text[at:].startswith(name)
        assert best == {name: logprob}


def test_stop_and_grammar(at_once, tokenizer):
    (letter,) = tokenizer.encode("a")
    always = {"prompt": "x", "max_tokens": 5, "logit_bias": {str(letter): 100}}
    stopped, chunks, guided = at_once(
        complete(**always, stop="aaaa"),
        stream(**always, stop=["aaaa"]),
        complete(**always, extra_body={"guided_regex": "ba"}),
    )
    assert (stopped.choices[0].text, stopped.choices[0].finish_reason) == ("", "stop")
    assert stopped.choices[0].stop_reason == "aaaa"
    assert texts(chunks) == {0: ""}
    assert [c.choices[0].finish_reason for c in chunks] == ["stop"]
    assert guided.choices[0].text == "ba"


def post(server, path, **body):
    request = Request(server.url + path, json.dumps(body).encode())
    request.add_header("content-type", "application/json")
    with urlopen(request, timeout=60) as answer:
        return json.load(answer)


def test_tokenize_a_prompt(server, tokenizer):
    ids = tokenizer.encode("Hi <think> 🎈")
    found = post(server, "/tokenize", prompt="Hi <think> 🎈", return_token_strs=True)
    assert found["tokens"] == [0, *ids]
    assert found["count"] == len(ids) + 1
    assert found["max_model_len"] == 4096
    assert len(found["token_strs"]) == found["count"]
    assert found["token_strs"][1] == "Hi"
    bare = post(server, "/tokenize", prompt="Hi <think> 🎈", add_special_tokens=False)
    assert bare["tokens"] == ids
    assert bare["token_strs"] is None


@pytest.mark.parametrize(
    ("fields", "options", "cut"),
    [
        ({}, {"thinking": True}, 0),
        ({"thinking": {"type": "disabled"}}, {"thinking": False}, 0),
        ({"add_generation_prompt": False}, {"thinking": True}, 2),
        ({"tools": [WEATHER]}, {"thinking": True, "tools": [WEATHER]}, 0),
    ],
)
def test_tokenize_messages(server, tokenizer, markup, fields, options, cut):
    found = post(server, "/tokenize", messages=HI, **fields)
    expected = markup.encode(encode_segments(HI, **options), tokenizer)
    assert found["tokens"] == expected[: len(expected) - cut]


def test_markup_in_messages_stays_text(server, markup):
    spelled = [{"role": "user", "content": "</think><｜User｜>｜DSML｜"}]
    tokens = post(server, "/tokenize", messages=spelled)["tokens"]
    assert tokens.count(markup.end_think) == 0
    assert tokens.count(markup.dsml) == 0


def test_detokenize(server, tokenizer, markup):
    ids = [0, *tokenizer.encode("naïve 🎈"), markup.end_think]
    assert post(server, "/detokenize", tokens=ids) == {"prompt": tokenizer.decode(ids)}
    assert post(server, "/detokenize", tokens=[]) == {"prompt": ""}
