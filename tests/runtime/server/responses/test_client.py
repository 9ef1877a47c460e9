"""The official client, unmodified, against a server whose engine is scripted."""

import json

import openai
import pytest
from pydantic import BaseModel

from dsv4_trt.errors import EngineFault, QueueFull
from tests.runtime.server.scripted import EOS, MAX_SEQ_LEN, call, calls

TOOL = {
    "type": "function",
    "name": "add",
    "description": "Adds two numbers.",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "number"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
    "strict": False,
}
NO_THINK = {"effort": "none"}


@pytest.fixture(scope="module")
def client(shared_engine):
    url = f"{shared_engine.url}/v1"
    with openai.OpenAI(base_url=url, api_key="key", max_retries=0) as made:
        yield made


@pytest.fixture
def ask(engine, client):
    """`responses.create` with what every request has."""

    def create(given="hi", **fields):
        return client.responses.create(**{"model": "tiny", "input": given} | fields)

    return create


def kinds(response):
    return [item.type for item in response.output]


def assert_continued(engine, number):
    """The prompt after request `number` begins with its prompt and what was said to it, token by token."""
    before = [*engine.requests[number].prompt_ids, *engine.said[number]]
    assert list(engine.requests[number + 1].prompt_ids[: len(before)]) == before


def test_an_answer_in_one_piece(engine, ask):
    engine.say("why</think>Hello." + EOS)
    response = ask(instructions="Be nice.", metadata={"k": "v"})
    assert kinds(response) == ["reasoning", "message"]
    assert response.output[0].content[0].text == "why"
    assert response.output_text == "Hello."
    assert response.status == "completed"
    assert response.metadata == {"k": "v"}
    prompt, said = len(engine.requests[0].prompt_ids), len(engine.said[0])
    usage = response.usage
    assert (usage.input_tokens, usage.output_tokens) == (prompt, said)
    assert usage.total_tokens == prompt + said
    assert usage.input_tokens_details.cached_tokens == 2
    assert usage.output_tokens_details.reasoning_tokens == 2  # </think> is one of them
    text = engine.tokenizer.decode(engine.requests[0].prompt_ids)
    assert text == "<｜begin▁of▁sentence｜>Be nice.<｜User｜>hi<｜Assistant｜><think>"


def test_a_stream_accumulates_to_the_same_response(engine, client, ask):
    script = "why</think>I add." + calls(call(a=1, b=2), call(a=3, b=4)) + EOS
    engine.say(script, script)
    whole = ask(tools=[TOOL])
    with client.responses.stream(model="tiny", input="hi", tools=[TOOL]) as stream:
        events = list(stream)
        streamed = stream.get_final_response()
    drop = {"id", "call_id", "parsed_arguments"}
    assert [item.model_dump(exclude=drop) for item in whole.output[2:]] == [
        item.model_dump(exclude=drop) for item in streamed.output[2:]
    ]
    assert streamed.output_text == whole.output_text == "I add."
    assert streamed.output[0].content == whole.output[0].content
    assert streamed.usage == whole.usage
    deltas = [e.delta for e in events if e.type == "response.reasoning_text.delta"]
    assert "".join(deltas) == "why"
    numbers = [e.sequence_number for e in events]
    assert numbers == sorted(set(numbers))


SCRIPTS = [
    "First I add.\nThen more.</think>I add 1 and 2." + calls(call(a="1.0", b=2)) + EOS,
    "Now both.</think>" + calls(call(a="1e2", b=10), call(a=-1, b=0)) + EOS,
    "Done.</think>It is 13." + EOS,
]


def results(response):
    return [
        {
            "type": "function_call_output",
            "call_id": item.call_id,
            "output": str(sum(json.loads(item.arguments).values())),
        }
        for item in response.output
        if item.type == "function_call"
    ]


@pytest.mark.parametrize(
    "how",
    ["items", "sealed", "summary", "previous", "references", "streamed"],
)
def test_a_tool_loop_continues_the_very_tokens_that_were_said(engine, client, ask, how):
    """The ways of agents to send reasoning back: as it is, sealed, as a summary, or by what is stored."""
    engine.say(*SCRIPTS)
    options = {"tools": [TOOL], "instructions": "Be exact."}
    if how not in ("previous", "references"):
        options["store"] = False
    if how == "sealed":
        options["include"] = ["reasoning.encrypted_content"]
    if how == "summary":
        options["reasoning"] = {"effort": "high", "summary": "auto"}
    given = [{"role": "user", "content": "add things"}]
    while True:
        if how == "streamed":
            with client.responses.stream(model="tiny", input=given, **options) as stream:
                response = stream.get_final_response()
        else:
            response = ask(given, **options)
        new = results(response)
        if not new:
            break
        if how == "previous":
            options["previous_response_id"] = response.id
            given = new
        else:
            given = [*given, *echoed(response, how), *new]
    assert response.output_text == "It is 13."
    assert len(engine.requests) == 3
    assert_continued(engine, 0)
    assert_continued(engine, 1)


def echoed(response, how):
    items = [item.model_dump(exclude_none=True, exclude={"parsed"}) for item in response.output]
    for item in items:
        if how == "sealed" and item["type"] == "reasoning":
            del item["content"]  # as clients do that keep only what they know
        if how == "summary" and item["type"] == "reasoning":
            assert "content" not in item
        item.pop("parsed_arguments", None)
        for part in item.get("content", ()):
            part.pop("parsed", None)
    return (
        [{"type": "item_reference", "id": i["id"]} for i in items] if how == "references" else items
    )


def test_stored_responses_are_retrieved_and_deleted(engine, client, ask):
    engine.say("a" + EOS, "b" + EOS)
    response = ask(reasoning=NO_THINK)
    assert client.responses.retrieve(response.id) == response
    client.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.delete(response.id)
    with pytest.raises(openai.BadRequestError) as caught:
        ask(previous_response_id=response.id)
    assert caught.value.param == "previous_response_id"
    unstored = ask(reasoning=NO_THINK, store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(unstored.id)


@pytest.mark.parametrize("is_streamed", [False, True])
def test_an_answer_that_is_cut_is_incomplete(engine, client, ask, is_streamed):
    engine.say("one two three four")
    fields = {"model": "tiny", "input": "hi", "reasoning": NO_THINK, "max_output_tokens": 2}
    if is_streamed:
        events = list(client.responses.create(**fields, stream=True))
        assert events[-1].type == "response.incomplete"
        response = events[-1].response
    else:
        response = ask(**fields)
    assert response.status == "incomplete"
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.output[0].status == "incomplete"
    assert response.output_text == "one two"


class City(BaseModel):
    name: str
    population: int


def test_structured_output_is_parsed(engine, client):
    script = 'why</think>{"name": "Lima", "population": 10}' + EOS
    engine.say(script, script)
    fields = {"model": "tiny", "input": "a city", "text_format": City}
    assert client.responses.parse(**fields).output_parsed == City(name="Lima", population=10)
    with client.responses.stream(**fields) as stream:
        assert stream.get_final_response().output_parsed == City(name="Lima", population=10)
    guided = engine.requests[0].params.guided_decoding
    assert set(guided.json["properties"]) == {"name", "population"}
    assert guided.start_after == engine.markup.end_think


class Add(BaseModel):
    """Adds two numbers."""

    a: int
    b: int


def test_arguments_are_parsed(engine, client):
    engine.say("</think>" + calls(call("Add", a=1, b=2)) + EOS)
    tool = openai.pydantic_function_tool(Add)["function"]
    response = client.responses.parse(
        model="tiny",
        input="add",
        tools=[{"type": "function", **tool}],
        tool_choice={"type": "function", "name": "Add"},
    )
    assert response.output[0].parsed_arguments == {"a": 1, "b": 2}
    assert engine.requests[0].params.guided_decoding.structural_tag is not None


def test_a_prompts_tokens_are_counted_as_they_are_used(engine, client, ask):
    engine.say("a" + EOS)
    fields = {"model": "tiny", "input": "count me", "tools": [TOOL], "instructions": "I"}
    counted = client.responses.input_tokens.count(**fields)
    ask(**fields)
    assert counted.input_tokens == len(engine.requests[0].prompt_ids)


@pytest.mark.parametrize(
    ("error", "kind", "name"),
    [
        (lambda: QueueFull("full"), openai.RateLimitError, "rate_limit_error"),
        (lambda: EngineFault("NaN in row 7"), openai.InternalServerError, "internal_error"),
    ],
)
def test_errors_before_an_answer(engine, ask, error, kind, name):
    engine.say(error())
    with pytest.raises(kind) as caught:
        ask()
    assert caught.value.type == name
    assert "NaN" not in caught.value.message


def test_an_error_in_the_middle_is_a_failed_response(engine, client, ask):
    def fault():
        error = EngineFault("NaN in row 7")
        error.late = True
        return error

    engine.say(fault(), fault())
    with pytest.raises(openai.InternalServerError):
        ask(reasoning=NO_THINK)
    fields = {"model": "tiny", "input": "hi", "reasoning": NO_THINK}
    *_, last = client.responses.create(**fields, stream=True)
    assert last.type == "response.failed"
    assert last.response.error.code == "server_error"
    assert "NaN" not in last.response.error.message


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": "word " * 5000}, "input"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input[0].content[0]",
        ),
        ({"temperature": 9}, "temperature"),
        ({"background": True}, "background"),
        ({"max_output_tokens": MAX_SEQ_LEN}, "input"),
    ],
)
def test_what_is_refused_names_the_field(ask, fields, param):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(**fields)
    assert caught.value.param == param


def test_what_the_encoder_refuses_has_the_clients_path(ask):
    made = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "1", "output": "r"}
    late = [{"role": "user", "content": "a"}, made, output, {"role": "assistant", "content": "b"}]
    with pytest.raises(openai.BadRequestError) as caught:
        ask([*late, output], instructions="I")
    assert caught.value.param == "input[4]"


def test_a_model_that_is_not_served(client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.responses.create(model="gpt-5", input="hi")
    assert caught.value.code == "model_not_found"
