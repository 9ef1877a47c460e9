"""Errors as OpenAI's client raises them, and the models."""

import json
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import openai
import pytest

from tests.runtime.server.openai.bodies import CLOCK, HI, WEATHER

IMAGE = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
PART = [{"role": "user", "content": [{"type": "\ud800"}]}]
WRONG = {"type": "function", "function": {"name": "\ud800"}}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "x"}
NO_SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "no"}}}


def refused(kind, job):
    """Parameter, code, type and message of the error that `job()` raises."""
    with pytest.raises(kind) as caught:
        job()
    body = caught.value.body
    assert set(body) == {"message", "type", "param", "code"}
    return body["param"], body["code"], body["type"], body["message"]


def chat(client, **fields):
    return lambda: client.chat.completions.create(**({"model": "tiny", "messages": HI} | fields))


@pytest.mark.parametrize(
    ("fields", "parameter"),
    [
        ({"temperature": -1}, "temperature"),
        ({"messages": IMAGE}, "messages[0].content[0].type"),
        ({"messages": [*HI, {"role": "assistant", "content": "x"}]}, "messages[1].role"),
        ({"messages": [*HI, RESULT]}, "messages[1]"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"logit_bias": {"999999": 1}}, "logit_bias"),
        ({"extra_body": {"min_tokens": 9}, "max_tokens": 8}, "min_tokens"),
        ({"extra_body": {"guided_regex": "("}}, "guided_regex"),
        ({"extra_body": {"guided_grammar": "root :="}}, "guided_grammar"),
        ({"response_format": NO_SCHEMA}, "response_format.json_schema.schema"),
        ({"tools": [WEATHER], "tool_choice": CLOCK}, "tool_choice.function.name"),
        (
            {"tools": [WEATHER], "tool_choice": "required", "extra_body": {"guided_regex": "a"}},
            "tool_choice",
        ),
    ],
)
def test_illegal_requests_name_their_parameter(client, fields, parameter):
    found = refused(openai.BadRequestError, chat(client, **fields))
    assert found[:3] == (parameter, None, "invalid_request_error")
    streamed = refused(openai.BadRequestError, chat(client, **fields, stream=True))
    assert streamed == found


def test_a_context_too_long_says_the_numbers(client):
    parameter, code, _, message = refused(openai.BadRequestError, chat(client, max_tokens=5000))
    assert (parameter, code) == ("messages", "context_length_exceeded")
    assert all(number in message for number in ("5 tokens", "5000", "4096", "4091"))
    long = [{"role": "user", "content": "word " * 5000}]
    parameter, code, _, message = refused(openai.BadRequestError, chat(client, messages=long))
    assert (parameter, code) == ("messages", "context_length_exceeded")
    assert "4096" in message


def test_models(client):
    (model,) = client.models.list().data
    assert (model.id, model.object, model.max_model_len) == ("tiny", "model", 4096)
    assert client.models.retrieve("tiny") == model


@pytest.mark.parametrize("name", ["other", "org/other"])
def test_an_unknown_model_is_not_found(client, name):
    jobs = (
        lambda: client.models.retrieve(name),
        chat(client, model=name),
        lambda: client.completions.create(model=name, prompt="x"),
    )
    for job in jobs:
        found = refused(openai.NotFoundError, job)
        assert found[:3] == ("model", "model_not_found", "invalid_request_error")
        assert f"'{name}'" in found[3]


@pytest.mark.parametrize(
    ("fields", "parameter"),
    [
        ({"prompt": [1, "a"]}, "prompt[1]"),
        ({"prompt": [999999]}, "prompt"),
        ({"prompt": ["x", "y"], "max_tokens": 5000}, "prompt"),
        ({"prompt": "x", "suffix": "y"}, "suffix"),
        ({"prompt": ["x"] * 1024, "n": 128}, "prompt"),
        ({"prompt": "x", "echo": True, "logprobs": 1}, "logprobs"),
        (
            {"prompt": "x", "extra_body": {"structured_outputs": {"regex": "("}}},
            "structured_outputs.regex",
        ),
    ],
)
def test_illegal_completions(client, fields, parameter):
    job = lambda: client.completions.create(model="tiny", **fields)  # noqa: E731
    assert refused(openai.BadRequestError, job)[0] == parameter


@pytest.mark.parametrize(
    ("path", "body", "parameter"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": 5}, "prompt"),
        ("/tokenize", {"prompt": "x", "messages": HI}, "prompt"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/tokenize", {"prompt": "\ud800"}, "prompt"),
        ("/tokenize", {"prompt": "x", "model": "\ud800"}, "model"),
        ("/tokenize", {"messages": PART}, "messages[0].content[0].type"),
        (
            "/tokenize",
            {"messages": HI, "tools": [WEATHER], "tool_choice": WRONG},
            "tool_choice.function.name",
        ),
        ("/tokenize", [], None),
        ("/detokenize", {"tokens": [1, 999999]}, "tokens[1]"),
        ("/detokenize", {"tokens": ["a"]}, "tokens[0]"),
        ("/detokenize", {"tokens": [1], "model": "other"}, "model"),
    ],
)
def test_illegal_tokens_and_texts(server, path, body, parameter):
    request = Request(server.url + path, json.dumps(body).encode())
    request.add_header("content-type", "application/json")
    with pytest.raises(HTTPError) as caught:
        urlopen(request, timeout=60)
    with caught.value as answer:
        assert answer.status == (404 if parameter == "model" else 400)
        assert json.load(answer)["error"]["param"] == parameter
