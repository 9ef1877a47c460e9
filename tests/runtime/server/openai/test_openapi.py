"""The schema that the routes serve: what it declares is what they do."""

import pytest
from fastapi import FastAPI

from dsv4_trt.runtime.server.openai.chat_request import ChatRequest
from dsv4_trt.runtime.server.openai.completions_request import CompletionRequest
from dsv4_trt.runtime.server.openai.routes import routes

BODIES = {"ChatRequest": ChatRequest, "CompletionRequest": CompletionRequest}


@pytest.fixture(scope="module")
def schema():
    app = FastAPI()
    app.include_router(routes(None))  # nothing is served before a request
    return app.openapi()


def test_routes(schema):
    assert {(path, *methods) for path, methods in schema["paths"].items()} == {
        ("/v1/models", "get"),
        ("/v1/models/{model}", "get"),
        ("/v1/chat/completions", "post"),
        ("/v1/completions", "post"),
        ("/tokenize", "post"),
        ("/detokenize", "post"),
    }


def test_every_route_declares_its_answer_and_its_errors(schema):
    for path, methods in schema["paths"].items():
        for operation in methods.values():
            answers = operation["responses"]
            assert set(answers) == {"200", "4XX", "5XX"}, path
            refs = {a["content"]["application/json"]["schema"]["$ref"] for a in answers.values()}
            assert len(refs) == 2, path
            assert "#/components/schemas/ErrorAnswer" in refs
            streams = "text/event-stream" in answers["200"]["content"]
            assert streams == path.endswith("/completions")


@pytest.mark.parametrize("name", BODIES)
def test_refused_fields_have_no_legal_value_but_those_that_ask_for_nothing(schema, name):
    properties = schema["components"]["schemas"][name]["properties"]
    refused = BODIES[name].unsupported
    assert refused
    for field, entry in refused.items():
        assert properties[field]["enum"] == [None, *entry.neutral]


def test_limits_are_those_of_the_sampler(schema):
    properties = schema["components"]["schemas"]["ChatRequest"]["properties"]
    number = properties["temperature"]["anyOf"][0]
    assert (number["minimum"], number["maximum"]) == (0, 100)
    assert properties["n"]["anyOf"][0]["maximum"] == 128
