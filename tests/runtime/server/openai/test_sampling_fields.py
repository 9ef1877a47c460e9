"""Sampling fields: names, ranges, and what is left out."""

import pytest

from dsv4_trt.runtime.sampling.sampling_params import SamplingParams
from tests.runtime.server.openai.bodies import chat, refusal, turn

GIVEN = {
    "n": 2,
    "temperature": 0,
    "top_p": 0.5,
    "top_k": 4,
    "min_p": 0.1,
    "repetition_penalty": 1.1,
    "presence_penalty": -2,
    "frequency_penalty": 2,
    "seed": 7,
    "stop": ["a", "b"],
    "stop_token_ids": [3],
    "min_tokens": 1,
    "ignore_eos": True,
}


def test_given_fields_reach_the_sampler_under_their_names():
    found = turn(**GIVEN, logit_bias={"5": -100, "007": 1.5}).sampling
    assert found == GIVEN | {"logit_bias": {5: -100, 7: 1.5}}
    SamplingParams(**found, max_tokens=8).check(512)


def test_nothing_given_leaves_the_defaults():
    assert turn().sampling == {}
    assert turn(**dict.fromkeys(GIVEN)).sampling == {}
    assert turn().max_tokens is None


def test_a_client_that_forces_no_temperature_gets_the_release_s():
    params = SamplingParams(**turn().sampling)
    assert (params.temperature, params.top_p) == (1.0, 1.0)


@pytest.mark.parametrize(("given", "meant"), [(-1, 0), (0, 0), (3, 3)])
def test_top_k_of_minus_one_is_off(given, meant):
    assert turn(top_k=given).sampling == {"top_k": meant}


@pytest.mark.parametrize(
    ("given", "meant"), [(-1, 2**64 - 1), (-(2**63), 2**63), (2**64 - 1, 2**64 - 1)]
)
def test_negative_seeds_are_seeds(given, meant):
    assert turn(seed=given).sampling == {"seed": meant}


def test_limits_of_the_output_have_two_names():
    assert turn(max_tokens=5).max_tokens == 5
    assert turn(max_completion_tokens=5).max_tokens == 5
    assert turn(max_completion_tokens=5, max_tokens=5).max_tokens == 5
    parameter, message = refusal(turn, max_completion_tokens=5, max_tokens=6)
    assert parameter == "max_tokens"
    assert "5" in message
    assert "6" in message


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 0),
        ("n", 129),
        ("n", True),
        ("n", 1.5),
        ("temperature", -0.1),
        ("temperature", "1"),
        ("temperature", float("nan")),
        ("top_p", 0),
        ("top_p", 1.1),
        ("top_k", -2),
        ("min_p", 2),
        ("repetition_penalty", 0),
        ("presence_penalty", 2.5),
        ("frequency_penalty", -2.5),
        ("seed", 2**64),
        ("seed", -(2**63) - 1),
        ("stop", 5),
        ("stop", ""),
        ("stop", ["a"] * 17),
        ("stop_token_ids", "a"),
        ("max_tokens", 0),
        ("max_completion_tokens", 0),
        ("min_tokens", -1),
        ("ignore_eos", "true"),
        ("priority", 2),
        ("cache_salt", 5),
        ("top_logprobs", 21),
        ("logprobs", 1),
    ],
)
def test_illegal_values_name_their_field(field, value):
    parameter, message = refusal(chat, **{field: value})
    assert parameter == field
    assert message.startswith(field)


@pytest.mark.parametrize(
    ("bias", "parameter"),
    [
        ({"x": 1}, "logit_bias.x"),
        ({"5": 101}, "logit_bias"),
        ({"5": "1"}, "logit_bias"),
        ([], "logit_bias"),
    ],
)
def test_an_illegal_bias_names_its_field(bias, parameter):
    assert refusal(chat, logit_bias=bias)[0].startswith(parameter)


def test_an_item_of_a_list_is_named():
    assert refusal(chat, stop=["a", ""])[0] == "stop[1]"
    assert refusal(chat, stop_token_ids=[1, -1])[0] == "stop_token_ids[1]"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("use_beam_search", True),
        ("best_of", 2),
        ("best_of", True),
        ("length_penalty", 0.5),
        ("bad_words", ["x"]),
        ("prompt_logprobs", 1),
        ("include_stop_str_in_output", True),
        ("skip_special_tokens", False),
        ("functions", [{"name": "f"}]),
        ("function_call", "auto"),
        ("audio", {"voice": "x"}),
        ("modalities", ["text", "audio"]),
        ("web_search_options", {}),
        ("echo", True),
    ],
)
def test_what_would_change_the_answer_and_is_not_there_is_refused(field, value):
    parameter, message = refusal(chat, **{field: value})
    assert parameter == field
    assert message.startswith(f"{field} is not supported; ")


@pytest.mark.parametrize(
    "fields",
    [
        {"best_of": 1},
        {"best_of": None},
        {"length_penalty": 1.0},
        {"use_beam_search": False},
        {"modalities": ["text"]},
        {"echo": False},
        {"skip_special_tokens": True},
    ],
)
def test_a_refused_field_may_ask_for_nothing(fields):
    chat(**fields).turn()


def test_what_does_not_touch_the_answer_is_ignored():
    ignored = {
        "user": "u",
        "metadata": {"a": "b"},
        "service_tier": "auto",
        "store": True,
        "verbosity": "low",
        "safety_identifier": "x",
        "some_field_of_next_year": [1],
    }
    assert turn(**ignored) == turn()


def test_log_probabilities():
    assert "logprobs" not in turn(logprobs=False).sampling
    assert turn(logprobs=True).sampling == {"logprobs": 0}
    assert turn(logprobs=True, top_logprobs=5).sampling == {"logprobs": 5}
    assert "logprobs" not in turn(top_logprobs=0).sampling
    assert refusal(turn, top_logprobs=5)[0] == "top_logprobs"


def test_priority_and_salt():
    assert (turn().priority, turn().cache_salt) == (0.5, "")
    assert turn(priority=0, cache_salt="a").priority == 0
    assert turn(priority=0, cache_salt="a").cache_salt == "a"


def test_stream_options_need_a_stream():
    turn(stream=True, stream_options={"include_usage": True})
    assert refusal(turn, stream_options={"include_usage": True})[0] == "stream_options"
    assert refusal(turn, stream=False, stream_options={})[0] == "stream_options"
    assert refusal(chat, stream=True, stream_options={"include_usage": 1})[0] == (
        "stream_options.include_usage"
    )
