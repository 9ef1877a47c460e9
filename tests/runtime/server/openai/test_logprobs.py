"""Log-probabilities in both formats."""

import math

import pytest

from dsv4_trt.runtime.sampling.row_state import SampledToken
from dsv4_trt.runtime.server.openai.chat_logprobs import ChatLogprobs, ChatLogprobWriter
from dsv4_trt.runtime.server.openai.text_logprobs import TextLogprobs, TextLogprobWriter
from tests.runtime.server.openai.bodies import accepts
from tests.runtime.server.openai.runs import tiny_tokenizer, tokens


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return tiny_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def test_chat_format(tokenizer):
    euro = tokenizer.encode("€")  # a token for each of its three bytes
    (letter,) = tokenizer.encode("a")
    chosen = SampledToken(euro[0], -1.5, ((letter, -0.5), (euro[0], -1.5)))
    found = ChatLogprobWriter(tokenizer).write([chosen, SampledToken(1, -math.inf)], 0)
    assert accepts(ChatLogprobs, found)
    byte = {"token": "\\xe2", "logprob": -1.5, "bytes": [0xE2]}
    assert found == {
        "refusal": None,
        "content": [
            byte | {"top_logprobs": [{"token": "a", "logprob": -0.5, "bytes": [97]}, byte]},
            {
                "token": "<|end|>",
                "logprob": -9999.0,
                "bytes": [*b"<|end|>"],
                "top_logprobs": [],
            },
        ],
    }


def test_text_format(tokenizer):
    ids = [*tokenizer.encode("a€"), *tokenizer.encode("b"), 1]
    (other,) = tokenizer.encode("z")
    news = [SampledToken(i, -1.0, ((other, -0.5),)) for i in ids]
    writer = TextLogprobWriter(tokenizer)
    found = writer.write(news[:2], has_top=True), writer.write(news[2:], has_top=True)
    assert all(accepts(TextLogprobs, each) for each in found)
    names = ["a", "bytes:\\xe2", "bytes:\\x82", "bytes:\\xac", "b", "<|end|>"]
    assert found[0]["tokens"] + found[1]["tokens"] == names
    assert found[0]["text_offset"] + found[1]["text_offset"] == [0, 1, 1, 1, 2, 3]
    assert found[0]["top_logprobs"][0] == {"z": -0.5, "a": -1.0}
    assert found[0]["token_logprobs"] == [-1.0, -1.0]


def test_without_best_tokens(tokenizer):
    found = TextLogprobWriter(tokenizer).write(tokens(5, 6), has_top=False)
    assert accepts(TextLogprobs, found)
    assert found["top_logprobs"] is None
