"""Every field of `SamplingParams` is checked by name, and nothing is cast or clipped."""

from __future__ import annotations

import math

import pytest

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.sampling.sampling_params import SamplingParams

VOCAB = 100


def test_defaults_are_legal_and_neutral():
    params = SamplingParams()
    params.check(VOCAB)
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (1.0, 1.0, 0, 0.0)


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 0},
        {"temperature": 0.0, "top_p": 1, "top_k": VOCAB + 5},
        {"top_p": 1e-9, "min_p": 1.0},
        {"presence_penalty": -2.0, "frequency_penalty": 2},
        {"logit_bias": {0: -100, 99: 100.0}},
        {"seed": 0},
        {"seed": 2**64 - 1},
        {"stop": ("\n",), "stop_token_ids": (0, 99), "min_tokens": 32, "logprobs": 0},
        {"logprobs": VOCAB},
        {"n": 1},
        {"n": 128},
        {"stop": "x", "stop_token_ids": [5]},
        {"stop": ["x", "yy"]},
    ],
)
def test_legal_values_pass(fields):
    SamplingParams(**fields).check(VOCAB)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 0),
        ("n", 129),
        ("n", 2.0),
        ("n", True),
        ("max_tokens", 0),
        ("max_tokens", 1.0),
        ("max_tokens", True),
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", "1"),
        ("temperature", True),
        ("top_p", 0.0),
        ("top_p", 1.01),
        ("top_k", -1),
        ("top_k", 2.5),
        ("min_p", -0.01),
        ("min_p", 1.5),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", math.inf),
        ("presence_penalty", 2.5),
        ("frequency_penalty", math.nan),
        ("logit_bias", {VOCAB: 1.0}),
        ("logit_bias", {-1: 1.0}),
        ("logit_bias", {"5": 1.0}),
        ("logit_bias", {5: 101.0}),
        ("logit_bias", {5: -math.inf}),
        ("seed", -1),
        ("seed", 2**64),
        ("seed", 1.5),
        ("stop", ("",)),
        ("stop", (b"x",)),
        ("stop", ""),
        ("stop", ["x", ""]),
        ("stop", b"x"),
        ("stop", None),
        ("stop", {"x"}),
        ("stop_token_ids", (VOCAB,)),
        ("stop_token_ids", [VOCAB]),
        ("stop_token_ids", [1.0]),
        ("stop_token_ids", {1}),
        ("stop_token_ids", "1"),
        ("stop_token_ids", 1),
        ("min_tokens", -1),
        ("min_tokens", 33),
        ("ignore_eos", 1),
        ("logprobs", -1),
        ("logprobs", VOCAB + 1),
        ("logprobs", True),
    ],
)
def test_an_illegal_value_is_named(name, value):
    with pytest.raises(RequestError, match=name) as error:
        SamplingParams(**{name: value}).check(VOCAB)
    assert "expected" in str(error.value)


def test_end_token_ids():
    assert SamplingParams(stop_token_ids=(7, 1, 7)).end_token_ids(1) == (1, 7)
    assert SamplingParams(stop_token_ids=(7,), ignore_eos=True).end_token_ids(1) == (7,)


def test_stops_are_kept_as_tuples_that_nobody_else_holds():
    given = [7, 8]
    params = SamplingParams(stop="END", stop_token_ids=given)
    given.append(9)
    assert (params.stop, params.stop_token_ids) == (("END",), (7, 8))
    assert SamplingParams(stop=["a", "b"]) == SamplingParams(stop=("a", "b"))


def test_one_stop_string_is_not_taken_for_its_letters():
    with pytest.raises(RequestError, match="a string or a list or tuple of strings"):
        SamplingParams(stop=5).check(VOCAB)


def test_best_of_is_no_field():
    with pytest.raises(TypeError, match="best_of"):
        SamplingParams(best_of=2)


def test_what_a_caller_does_to_its_mapping_later_changes_nothing():
    bias = {3: 1.0}
    params = SamplingParams(logit_bias=bias)
    bias[10**6] = 1.0
    params.check(100)
    assert params.logit_bias == {3: 1.0}


@pytest.mark.parametrize("bias", [None, [], [1]])
def test_a_bias_that_is_no_mapping(bias):
    with pytest.raises(RequestError, match=r"logit_bias is .*; expected a mapping"):
        SamplingParams(logit_bias=bias).check(100)
