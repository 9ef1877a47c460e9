"""Requests through the service on the golden model, with a stand-in for Triton."""

from time import sleep

import pytest

from dsv4_trt.errors import EngineFault
from dsv4_trt.runtime.sampling.sampling_params import SamplingParams
from tests.runtime.llm.llms import greedy
from tests.runtime.triton import backends

GREEDY = {"temperature": 0.0, "ignore_eos": True}


@pytest.fixture(scope="module")
def direct(llm):
    """What the engine says without Triton."""

    def run(prompt, max_tokens=6, **params):
        return llm.generate(prompt, greedy(max_tokens, **params))

    return run


def test_an_answer_in_one_piece(ask, direct):
    expected = direct("The sky").outputs[0]
    assert ask(text_input="The sky", max_tokens=6, **GREEDY).answers == [
        {
            **{"text_output": [expected.text], "batch_index": [0], "sequence_index": [0]},
            **{"finish_reason": ["length"], "stop_reason": [""]},
        }
    ]


def test_a_stream_has_a_response_for_each_token(ask, direct):
    expected = direct("The sky", logprobs=0)
    asked = {"return_log_probs": True, "return_output_ids": True, "return_num_output_tokens": True}
    answers = ask(text_input="The sky", max_tokens=6, stream=True, **GREEDY, **asked).answers
    (output,) = expected.outputs
    assert "".join(a["text_output"][0] for a in answers) == output.text
    assert [a["output_ids"] for a in answers] == [[[i]] for i in output.token_ids]
    assert [a["num_output_tokens"] for a in answers] == [[n] for n in range(1, 7)]
    assert [a["sequence_length"] for a in answers] == [[1]] * 6
    logprobs = [token.logprob for token in output.tokens]
    assert [a["output_log_probs"][0][0] for a in answers] == pytest.approx(logprobs)
    assert answers[-1]["cum_log_probs"] == pytest.approx([output.cumulative_logprob])
    assert [a.get("finish_reason") for a in answers] == [None] * 5 + [["length"]]


@pytest.mark.parametrize("batched", [False, True])
def test_several_prompts_in_one_piece(ask, direct, batched):
    prompts = ["The sky", "x", "The sea is"]
    lengths = [3, 6, 1]
    shaped = [[prompt] for prompt in prompts] if batched else prompts
    (answer,) = ask(
        batched=batched,
        text_input=shaped,
        max_tokens=[[n] for n in lengths] if batched else lengths,
        pad_id=99,
        return_output_ids=True,
        return_num_input_tokens=True,
        **GREEDY,
    ).answers
    expected = [direct(prompt, n) for prompt, n in zip(prompts, lengths, strict=True)]

    def shape(values):
        return [[value] for value in values] if batched else values

    padded = [r.outputs[0].token_ids + [99] * (6 - r.outputs[0].length) for r in expected]
    assert answer == {
        "text_output": shape([request.outputs[0].text for request in expected]),
        "batch_index": shape([0, 1, 2]),
        "sequence_index": shape([0, 0, 0]),
        "finish_reason": shape(["length"] * 3),
        "stop_reason": shape([""] * 3),
        "num_input_tokens": shape([len(request.prompt_token_ids) for request in expected]),
        "output_ids": shape(padded),
        "sequence_length": shape(lengths),
    }


@pytest.mark.parametrize("batched", [False, True])
def test_several_streams_of_several_sequences(ask, llm, batched):
    asked = {"max_tokens": 4, "seed": 3, "ignore_eos": True}
    prompts = ["The sky", "x"]
    answers = ask(
        batched=batched,
        text_input=[[p] for p in prompts] if batched else prompts,
        stream=True,
        num_return_sequences=2,
        **asked,
    ).answers
    found = {}
    for answer in answers:
        if batched:
            answer = {name: row for name, (row,) in answer.items()}
        key = answer["batch_index"][0], answer["sequence_index"][0]
        text, ends = found.get(key, ("", 0))
        found[key] = text + answer["text_output"][0], ends + len(answer.get("finish_reason", []))
    for at, prompt in enumerate(prompts):
        for output in llm.generate(prompt, SamplingParams(n=2, **asked)).outputs:
            assert found[at, output.index] == (output.text, 1)
    assert len(answers) == 16


def test_the_prompt_in_front_of_the_answer(ask, direct):
    text = "The sky" + direct("The sky").outputs[0].text
    asked = {"max_tokens": 6, "exclude_input_in_output": False, **GREEDY}
    assert ask(text_input="The sky", **asked).answers[0]["text_output"] == [text]
    ids = direct("The sky").prompt_token_ids
    assert ask(input_ids=ids, **asked).answers[0]["text_output"] == [text]
    streamed = ask(text_input="The sky", stream=True, **asked).answers
    assert "The sky" + "".join(a["text_output"][0] for a in streamed) == text


def test_a_stop_word_ends_and_is_told(ask, direct):
    text = direct("The sky", 8).outputs[0].text
    words = ["never", text[4:6]]
    (answer,) = ask(text_input="The sky", max_tokens=8, stop_words=words, **GREEDY).answers
    assert answer["text_output"] == [text[: text.index(text[4:6])]]
    assert (answer["finish_reason"], answer["stop_reason"]) == (["stop"], [text[4:6]])


def test_a_stop_token_is_told_as_its_id(ask, direct):
    token_ids = direct("The sky").outputs[0].token_ids
    (answer,) = ask(text_input="The sky", end_id=token_ids[2], max_tokens=6, **GREEDY).answers
    assert answer["stop_reason"] == [str(token_ids[2])]


def test_only_what_the_client_wants_is_sent(ask):
    (answer,) = ask(text_input="x", max_tokens=1, wanted=["text_output", "batch_index"]).answers
    assert set(answer) == {"text_output", "batch_index"}


@pytest.mark.parametrize("streaming", [False, True])
def test_a_client_that_leaves_cancels(ask, llm, streaming):
    before = llm.metrics["requests_finished"]["cancelled"]
    request = ask(text_input="x", max_tokens=900, stream=streaming, **GREEDY)
    request.sender.leaves = True
    assert request.answers[-1]["finish_reason"] == ["cancelled"]
    assert llm.metrics["requests_finished"]["cancelled"] == before + 1


def test_stop_ends_the_requests_of_an_id_and_no_others(ask, direct):
    running = [ask("a", text_input=["x", "y"], max_tokens=900, **GREEDY) for _ in range(2)]
    other = ask("b", text_input="x", max_tokens=6, **GREEDY)
    stop = ask("a", stop=True)
    assert stop.answers == [{"text_output": [""], "finish_reason": ["cancelled"]}]
    for request in running:
        assert request.answers[0]["finish_reason"] == ["cancelled"] * 2
    assert other.answers[0]["text_output"] == [direct("x").outputs[0].text]
    assert ask("a", text_input="x", stop=False, max_tokens=1).answers[0]["finish_reason"]


@pytest.mark.parametrize(
    ("request_id", "code", "message"),
    [
        ("", "INVALID_ARG", "stop needs the id of the request"),
        ("gone", "NOT_FOUND", "no request with the id 'gone' runs"),
    ],
)
def test_a_stop_that_can_not_be(ask, request_id, code, message):
    check_error(ask(request_id, stop=True), code, message)


@pytest.mark.parametrize(
    ("asked", "code", "message"),
    [
        ({"text_input": "x", "max_tokens": 5000}, "INVALID_ARG", "max_seq_len 1024"),
        ({"text_input": "x", "top_p": 0.0}, "INVALID_ARG", "top_p is 0.0"),
        ({"text_input": ["x", "y"], "n": 0}, "INVALID_ARG", "n is 0"),
        ({"text_input": "x", "beam_width": 2}, "UNSUPPORTED", "there is no beam search"),
        ({"input_ids": [3, 600]}, "INVALID_ARG", "token id 600"),
        ({"text_input": "x", "timeout": -1}, "INVALID_ARG", "timeout is -1"),
        ({"text_input": "x", "priority": 2.0}, "INVALID_ARG", "priority is 2.0"),
        ({"text_input": "x", "parameters": {"wrong": 1}}, "INVALID_ARG", "'wrong' is no input"),
    ],
)
def test_errors_are_typed(ask, asked, code, message):
    check_error(ask(**asked), code, message)


def test_a_full_queue_refuses_all_prompts_of_a_request(ask, llm):
    check_error(ask(text_input=["x"] * 40, max_tokens=900), "UNAVAILABLE", "wait")
    for _ in range(600):
        if llm.metrics["requests_accepted"] == sum(llm.metrics["requests_finished"].values()):
            return
        sleep(0.05)
    pytest.fail("prompts of a refused request go on")


def check_error(request, code, message):
    error = request.error
    assert error.code == getattr(backends.TritonError, code)
    assert message in error.message


def test_one_bad_prompt_refuses_all(ask, llm):
    before = llm.metrics["requests_finished"]["length"]
    check_error(ask(text_input=["x", "y"], max_tokens=[3, 5000]), "INVALID_ARG", "max_seq_len 1024")
    ask(text_input="x", max_tokens=1).wait()
    assert llm.metrics["requests_finished"]["length"] == before + 1


def test_a_time_limit_is_in_microseconds(ask):
    for limit in ({"timeout": 50_000}, {"parameters": {"timeout": 50_000}}):
        (answer,) = ask(text_input="x", max_tokens=900, **limit, **GREEDY).answers
        assert answer["finish_reason"] == ["timeout"]


def test_text_of_errors_that_are_not_ours_stays_in_the_log(ask, llm, monkeypatch):
    monkeypatch.setattr(llm, "generate_async", None)
    check_error(ask(text_input="x"), "INTERNAL", "the server's log has it")
    assert "TypeError: 'NoneType' object is not callable" in backends.LOGGED[-1]


@pytest.mark.parametrize("streaming", [False, True])
def test_an_error_of_one_prompt_ends_its_request(ask, llm, streaming, monkeypatch):
    executor = llm._thread.executor
    sampler = executor.sampler

    class Broken:
        def sample(self, logits, rows):
            tokens = sampler.sample(logits, rows)
            return [
                EngineFault("its logits are NaN") if len(row.output_ids) == 3 else token
                for row, token in zip(rows, tokens, strict=True)
            ]

    monkeypatch.setattr(executor, "sampler", Broken())
    request = ask(text_input=["x", "y"], max_tokens=[2, 900], stream=streaming, **GREEDY).wait()
    last = request.sender.responses[-1]
    assert last.error.code == backends.TritonError.INTERNAL
    assert last.error.message == "its logits are NaN"
