"""The real tritonserver with real clients: one engine as two models, with a batch dimension and without."""

import json
import threading
from contextlib import contextmanager
from urllib.error import HTTPError

import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from dsv4_trt.runtime.chat.encoding import encode_segments
from dsv4_trt.runtime.chat.markup import Markup
from tests.runtime.llm.llms import BUILD, greedy, open_llm
from tests.runtime.triton.triton_clients import Stream, events, eventually, generate, post
from tests.runtime.triton.triton_server import TritonServer, is_set_up
from tests.workshop import run_cli

pytestmark = pytest.mark.skipif(
    not is_set_up(), reason="no tritonserver; run: bash scripts/triton_server.sh --set-up"
)

GREEDY = {"temperature": 0.0, "ignore_eos": True}
LONG = {"max_tokens": 900, **GREEDY}
PROMPTS = [f"{word} {n}" for n in range(4) for word in ("The sky", "a", "Sea and sea", "!")]


@pytest.fixture(scope="module")
def engine_options(workshop, tiny_a, marked_tokenizer_dir):
    return (
        *("--engine_dir", workshop.bundle_dir(tiny_a, build=BUILD), "--precision", "exact"),
        *("--tokenizer_dir", marked_tokenizer_dir, "--device", "cpu"),
        *("--max_batch_size", 16, "--max_queue_size", 20, "--kv_cache_max_tokens", 20_000),
    )


@pytest.fixture(scope="module")
def server(engine_options, tmp_path_factory):
    root = tmp_path_factory.mktemp("triton")
    export = ("triton", "export", "--output_dir", root / "repository")
    run_cli(*export, *engine_options)
    batched = ("--model_name", "ensemble", "--triton_max_batch_size", 8)
    run_cli(*export, *engine_options, *batched)
    server = TritonServer(root / "repository", root / "log")
    yield server
    seconds, code = server.stop()
    assert code == 0
    assert seconds < 30


@pytest.fixture(scope="module")
def llm(workshop, tiny_a, marked_tokenizer_dir):
    """The same engine without Triton."""
    with open_llm(workshop, tiny_a, tokenizer=marked_tokenizer_dir, max_batch_size=16) as llm:
        yield llm


@pytest.fixture(scope="module")
def expected(llm):
    """What each prompt is answered with, greedily."""
    found = llm.generate(PROMPTS, greedy(12))
    return {prompt: one.outputs[0] for prompt, one in zip(PROMPTS, found, strict=True)}


@contextmanager
def one_more_cancelled(server):
    """Within this block a request is cancelled, long before its end."""

    def count(name, **labels):
        return server.metric(name, model="tensorrt_llm", **labels)

    ended = count("dsv4_requests_finished", reason="length")
    eventually(lambda: generate(server, text_input="x", max_tokens=1, ignore_eos=True))
    eventually(lambda: count("dsv4_requests_finished", reason="length") > ended)  # it is shown now
    cancelled = count("dsv4_requests_finished", reason="cancelled")
    tokens = count("dsv4_output_tokens")
    yield
    eventually(lambda: count("dsv4_requests_finished", reason="cancelled") == cancelled + 1)
    assert count("dsv4_output_tokens") - tokens < 300


def test_health_and_metadata(server):
    http = tritonclient.http.InferenceServerClient(server.http)
    grpc = tritonclient.grpc.InferenceServerClient(server.grpc)
    for client in (http, grpc):
        assert client.is_server_live()
        assert client.is_server_ready()
        for model in ("tensorrt_llm", "ensemble"):
            assert client.is_model_ready(model)
    config = http.get_model_config("ensemble")
    assert config["model_transaction_policy"] == {"decoupled": True}
    assert config["max_batch_size"] == 8
    http.close()
    grpc.close()


@pytest.mark.parametrize("model", ["tensorrt_llm", "ensemble"])
@pytest.mark.parametrize("names", [("max_tokens",), ("sampling_param_max_tokens",)])
def test_generate(server, expected, model, names):
    output = expected["The sky 0"]
    found = generate(server, model, text_input="The sky 0", **dict.fromkeys(names, 12), **GREEDY)
    assert found["text_output"] == output.text
    assert (found["finish_reason"], found["stop_reason"]) == ("length", "")
    assert (found["model_name"], found["batch_index"]) == (model, 0)


def test_generate_with_a_list(server, expected):
    prompts = PROMPTS[:3]
    for model in ("tensorrt_llm", "ensemble"):
        found = generate(server, model, text_input=prompts, max_tokens=12, **GREEDY)
        assert found["text_output"] == [expected[prompt].text for prompt in prompts]
        assert found["batch_index"] == [0, 1, 2]


def test_generate_stream(server, expected):
    asked = {"return_log_probs": True, "return_num_output_tokens": True}
    body = {"text_input": "a 1", "max_tokens": 12, "stream": True, **GREEDY, **asked}
    with post(server, "tensorrt_llm/generate_stream", **body) as answer:
        found = list(events(answer))
    output = expected["a 1"]
    assert "".join(event["text_output"] for event in found) == output.text
    assert [event["num_output_tokens"] for event in found] == list(range(1, 13))
    logprobs = [token.logprob for token in output.tokens]
    assert [event["output_log_probs"] for event in found] == pytest.approx(logprobs, abs=1e-5)
    assert [event.get("finish_reason") for event in found] == [None] * 11 + ["length"]


def test_16_streams_at_once_over_grpc(server, expected):
    with Stream(server) as stream:
        for prompt in PROMPTS:
            stream.ask(
                prompt,
                text_input=prompt,
                max_tokens=12,
                streaming=True,
                return_output_ids=True,
                **GREEDY,
            )
        found = stream.rest(16)
    assert set(found) == set(PROMPTS)
    for prompt, answers in found.items():
        ids = [token for answer in answers for token in answer["output_ids"][0]]
        assert ids == expected[prompt].token_ids
        text = b"".join(answer["text_output"][0] for answer in answers).decode()
        assert text == expected[prompt].text


def test_16_streams_at_once_over_http(server, expected):
    found = {}

    def run(prompt):
        body = {"text_input": prompt, "max_tokens": 12, "stream": True, **GREEDY}
        with post(server, "ensemble/generate_stream", **body) as answer:
            found[prompt] = [event["text_output"] for event in events(answer)]

    threads = [threading.Thread(target=run, args=(prompt,)) for prompt in PROMPTS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert {prompt: "".join(texts) for prompt, texts in found.items()} == {
        prompt: output.text for prompt, output in expected.items()
    }
    assert {len(texts) for texts in found.values()} == {12}


@pytest.mark.parametrize(("model", "batched"), [("tensorrt_llm", False), ("ensemble", True)])
@pytest.mark.parametrize("streaming", [False, True])
def test_a_batch_of_texts_over_grpc(server, expected, model, batched, streaming):
    def shape(values):
        return [[value] for value in values] if batched else values

    asked = {"max_tokens": [12, 12], "stream": [streaming, streaming], "temperature": [0.0, 0.0]}
    asked = {name: shape(values) for name, values in asked.items()}
    asked["ignore_eos"] = shape([True, True])
    with Stream(server) as stream:
        stream.ask("r", model, text_input=shape(PROMPTS[:2]), **asked)
        answers = stream.rest(1)["r"]
    assert len(answers) == (24 if streaming else 1)
    texts = [b"", b""]
    for answer in answers:
        found, indices = answer["text_output"], answer["batch_index"]
        if batched:
            assert {len(row) for row in found} == {1}
            found, indices = [row[0] for row in found], [row[0] for row in indices]
        for at, text in zip(indices, found, strict=True):
            texts[at] += text
    assert [text.decode() for text in texts] == [expected[prompt].text for prompt in PROMPTS[:2]]


def test_stop_words_and_several_sequences(server, expected):
    text = expected["The sky 0"].text
    word = text[5:7]
    found = generate(
        server, text_input="The sky 0", max_tokens=12, stop_words=["never", word], **GREEDY
    )
    assert found["text_output"] == text[: text.index(word)]
    assert (found["finish_reason"], found["stop_reason"]) == ("stop", word)
    found = generate(server, text_input="x", max_tokens=2, num_return_sequences=3, seed=1)
    assert found["sequence_index"] == [0, 1, 2]


def test_a_client_that_disconnects_cancels(server):
    with (
        one_more_cancelled(server),
        post(server, "tensorrt_llm/generate_stream", text_input="x", stream=True, **LONG) as answer,
    ):
        assert next(events(answer))["text_output"] is not None


def test_a_grpc_stream_that_is_cancelled(server):
    with one_more_cancelled(server), Stream(server) as stream:
        stream.ask("c", text_input="x", streaming=True, **LONG)
        assert stream.next()[0] == "c"


def test_stop_with_the_same_request_id(server):
    with one_more_cancelled(server), Stream(server) as stream:
        stream.ask("s", text_input="x", stream=True, **LONG)
        stream.next()
        stream.ask("s", text_input="", stop=True)
        answers = stream.rest(2)["s"]
    reasons = [answer["finish_reason"] for answer in answers if "finish_reason" in answer]
    assert reasons == [[b"cancelled"]] * 2
    with (
        one_more_cancelled(server),
        post(
            server, "tensorrt_llm/generate_stream", text_input="x", id="h", stream=True, **LONG
        ) as a,
    ):
        stream = events(a)
        next(stream)
        assert generate(server, id="h", stop=True)["finish_reason"] == "cancelled"
        assert list(stream)[-1]["finish_reason"] == "cancelled"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"text_input": "x", "max_tokens": 5000}, "max_seq_len 1024"),
        ({"text_input": "x", "temprature": 1}, "'temprature' is no input of this model"),
        ({"text_input": "x", "beam_width": 4}, "there is no beam search"),
        ({"text_input": "x", "top_p": 7.0}, "top_p is 7.0"),
        ({"text_input": []}, "text_input is empty"),
        ({"max_tokens": 3}, "no prompt was given"),
        ({"stop": True, "id": "gone"}, "no request with the id 'gone' runs"),
    ],
)
def test_errors(server, body, message):
    for path in ("generate", "generate_stream"):
        with pytest.raises(HTTPError) as caught, post(server, f"tensorrt_llm/{path}", **body):
            pass
        with caught.value as error:
            assert error.code == 400
            assert message in error.read().decode()


def test_a_full_queue(server, expected):
    """All prompts of the request are refused, and there is room again at once or a step later."""
    with Stream(server) as stream:
        stream.ask("full", text_input=["x"] * 40, **LONG)
        with pytest.raises(InferenceServerException, match="wait"):
            stream.next()
    asked = {"text_input": "a 1", "max_tokens": 12, **GREEDY}

    def is_served():
        try:
            return generate(server, **asked)["text_output"] == expected["a 1"].text
        except HTTPError as error:
            error.close()
            return False

    eventually(is_served)


def test_an_error_in_a_grpc_stream_leaves_the_others(server, expected):
    with Stream(server) as stream:
        stream.ask("bad", text_input="x", beam_width=4)
        stream.ask("good", text_input="a 1", max_tokens=12, **GREEDY)
        errors, answers = [], []
        while len(errors) + len(answers) < 2:
            try:
                answers.append(stream.next()[1])
            except InferenceServerException as error:
                errors.append(str(error))
    assert [a["text_output"][0].decode() for a in answers] == [expected["a 1"].text]
    assert "there is no beam search" in errors[0]


def test_conversations(server, llm):
    messages = [{"role": "user", "content": "Is </think> a marker?"}]
    markup = Markup.resolve(llm.tokenizer)
    prompt = markup.encode(encode_segments(messages, None, True), llm.tokenizer)
    output = llm.generate(prompt, greedy(6)).outputs[0]
    asked = {"max_tokens": 6, "return_num_input_tokens": True, "return_output_ids": True, **GREEDY}
    found = generate(server, messages=json.dumps(messages), thinking=True, **asked)
    assert found["num_input_tokens"] == len(prompt)
    assert found["output_ids"] == output.token_ids
    assert found["text_output"] == output.text


def test_metrics(server):
    generate(server, text_input="x", max_tokens=3, **GREEDY)
    assert server.metric("nv_inference_request_success", model="tensorrt_llm") > 0
    eventually(lambda: server.metric("dsv4_requests_finished", reason="length") > 0)
    assert server.metric("dsv4_kv_pages", model="ensemble", state="free") > 0


def test_the_end_with_a_request_under_way(engine_options, tmp_path):
    run_cli("triton", "export", "--output_dir", tmp_path / "repository", *engine_options)
    server = TritonServer(tmp_path / "repository", tmp_path / "log", "--exit-timeout-secs=3")
    body = {"text_input": "x", "stream": True, **LONG}
    with post(server, "tensorrt_llm/generate_stream", **body) as answer:
        next(events(answer))
        seconds, _ = server.stop()
    assert seconds < 20


def test_an_engine_that_can_not_be_opened_is_told(tmp_path, engine_options):
    run_cli("triton", "export", "--output_dir", tmp_path, *engine_options)
    config = tmp_path / "tensorrt_llm" / "config.pbtxt"
    text = config.read_text().replace('"engine_dir"', '"engine_folder"')
    config.write_text(text)
    with pytest.raises(AssertionError, match="has the parameter 'engine_folder'; expected"):
        TritonServer(tmp_path, tmp_path / "log")
