"""Names, values and shapes of input tensors."""

import numpy as np
import pytest

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.triton.failures import UnsupportedInput
from dsv4_trt.runtime.triton.fields import Fields
from dsv4_trt.runtime.triton.tensors import FIELD_OF, FIELDS, INPUT_TYPES, REFUSED
from tests.runtime.triton.backends import as_tensor


def fields(parameters=(), **tensors):
    arrays = {name: as_tensor(name, value) for name, value in tensors.items()}
    return Fields(arrays, dict(parameters))


def test_no_name_means_two_things():
    names = [name for field in FIELDS.values() for name in field.names]
    assert len(set(names)) == len(names) == len(FIELD_OF)
    assert not set(names) & set(REFUSED)
    assert len(INPUT_TYPES) == len(names) + len(REFUSED)


@pytest.mark.parametrize("name", ["max_tokens", "request_output_len", "sampling_param_max_tokens"])
def test_names_of_every_era_say_the_same(name):
    assert fields(**{name: 7}).for_each("max_tokens", 3) == [7, 7, 7]


def test_values_are_what_the_client_wrote():
    found = fields(
        temperature=[0.7, 1e-7], seed=2**64 - 1, stream=True, text_input=["ü", ""], top_k=[-1]
    )
    assert found.values("temperature") == [0.7, 1e-7]
    assert found.values("seed") == [2**64 - 1]
    assert found.for_all("streaming") is True
    assert found.values("text") == ["ü", ""]
    assert found.for_all("top_k") == -1
    assert type(found.for_all("top_k")) is int


def test_two_names_may_agree_but_not_differ():
    assert fields(stream=True, streaming=True).for_all("streaming")
    with pytest.raises(RequestError, match="stream and streaming are two names of one input"):
        fields(stream=True, streaming=False)


def test_a_value_for_each_prompt_or_one_for_all():
    found = fields(max_tokens=[[3], [4]])
    assert found.for_each("max_tokens", 2) == [3, 4]
    with pytest.raises(RequestError, match="max_tokens has 2 values for 3 prompts") as caught:
        found.for_each("max_tokens", 3)
    assert caught.value.parameter == "max_tokens"
    with pytest.raises(RequestError, match=r"expected one value for the whole request"):
        fields(stream=[True, False]).for_all("streaming")


@pytest.mark.parametrize(
    ("words", "lists"),
    [
        (["a", "b"], [["a", "b"], ["a", "b"]]),
        ([["a", "b"]], [["a", "b"], ["a", "b"]]),
        ([["a"], ["b"]], [["a"], ["b"]]),
    ],
)
def test_lists_for_each_prompt_or_one_for_all(words, lists):
    assert fields(stop_words=words).lists("stop_words", 2) == lists


def test_rows_that_fit_no_prompts_are_refused():
    with pytest.raises(RequestError, match="stop_words has 2 rows for 3 prompts"):
        fields(stop_words=[["a"], ["b"]]).lists("stop_words", 3)


def test_what_is_unknown_is_named():
    with pytest.raises(RequestError, match="'temprature' is no input"):
        fields({"temprature": 1}, text_input="x")
    with pytest.raises(RequestError, match="input 'foo' is unknown"):
        fields(foo="x")
    fields({"id": "5", "timeout": 7, "triton_enable_empty_final_response": True})


def test_text_has_to_be_utf_8():
    with pytest.raises(RequestError, match="text_input is no UTF-8 at byte 1"):
        Fields({"text_input": np.array([b"a\xff"], dtype=object)}, {}).values("text")


@pytest.mark.parametrize("name", REFUSED)
def test_what_can_not_be_served_is_refused_unless_it_asks_for_nothing(name):
    wrong = {"TYPE_STRING": "x", "TYPE_BOOL": True}.get(REFUSED[name].data_type, 7)
    with pytest.raises(UnsupportedInput, match=f"^{name} is .*: ") as caught:
        fields(**{name: wrong})
    assert caught.value.parameter == name
    for value in REFUSED[name].neutral:
        fields(**{name: [value, value]})
