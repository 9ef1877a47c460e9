"""What is a prompt, what is a list of prompts, and what is neither."""

from dataclasses import replace

import pytest

from dsv4_trt.errors import RequestError
from dsv4_trt.presets import TINY
from dsv4_trt.runtime.llm_inputs import is_batch
from dsv4_trt.runtime.text.prompt import Prompt, read_prompt
from dsv4_trt.runtime.text.tokenizer import Tokenizer
from tests.runtime.llm.llms import BOS, write_tokenizer

SPEC = replace(TINY, bos_token_id=0)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return Tokenizer.load(write_tokenizer(tmp_path_factory.mktemp("prompt") / "tokenizer"))


@pytest.mark.parametrize("given", [[0, 5], (0, 5), {"prompt_token_ids": [0, 5]}])
def test_token_ids_stay_as_they_are(given):
    assert read_prompt(given, SPEC, None) == Prompt(text=None, token_ids=[0, 5])


def test_a_text_begins_with_one_begin_of_sentence_token(small):
    plain = small.encode("ab")
    for text in ("ab", BOS + "ab"):
        for given in (text, {"prompt": text}):
            assert read_prompt(given, SPEC, small) == Prompt(text=text, token_ids=[0, *plain])


def test_lists_of_prompts():
    assert all(map(is_batch, ([], [[0]], ["a"], ("a", [0]), [{"prompt": "a"}], [[]])))
    assert not any(map(is_batch, ("a", [0], (0, 1), {"prompt": "a"}, "")))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("text", "no tokenizer"),
        ({}, "either 'prompt'"),
        ({"prompt": "a", "prompt_token_ids": [0]}, "either 'prompt'"),
        ({"text": "a"}, r"keys \['text'\]"),
        ({"prompt": [0]}, "expected a text"),
        ({"prompt_token_ids": "a"}, "list of whole numbers"),
        ({"prompt": {"prompt": "a"}}, "expected a text"),
        ({"prompt_token_ids": {"prompt_token_ids": [0]}}, "of type dict"),
        (5, "of type int"),
        (None, "of type NoneType"),
        (b"text", "of type bytes"),
        ([0, 1.5], r"token id 1\.5"),
        ([0, True], "token id True"),
        ([0, "1"], "token id '1'"),
    ],
)
def test_what_is_no_prompt(given, message):
    with pytest.raises(RequestError, match=message):
        read_prompt(given, SPEC, None)
