"""An LLM tells where its text has markup that it sampled."""

import pytest
import tokenizers

from tests.runtime.llm.llms import greedy, open_llm, write_tokenizer
from tests.workshop import random_ids

PROMPT = random_ids(20, seed=3)
MARKER, MARKER_ID = "</think>", 511


@pytest.fixture(scope="module")
def llm(workshop, tiny_a, tmp_path_factory):
    directory = write_tokenizer(tmp_path_factory.mktemp("marks") / "tokenizer", size=MARKER_ID)
    library = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    library.add_tokens([MARKER])
    library.save(str(directory / "tokenizer.json"))
    with open_llm(workshop, tiny_a, tokenizer=directory) as llm:
        yield llm


def test_marks_are_where_the_marker_was_sampled(llm):
    often = greedy(5, logit_bias={MARKER_ID: 100})
    output = llm.generate(PROMPT, often).outputs[0]
    assert output.token_ids == [MARKER_ID] * 5
    assert output.text == MARKER * 5
    assert output.marks == [0, 8, 16, 24, 32]
    assert llm.generate(PROMPT, greedy(5, logit_bias={MARKER_ID: -100})).outputs[0].marks == []


def test_a_stream_gives_the_marks_of_each_round(llm):
    """A stop string that may begin in a marker holds its text back, but not its mark."""
    params = greedy(3, logit_bias={MARKER_ID: 100}, stop=(">!",))
    handle = llm.generate_async(PROMPT, params, streaming=True)
    rounds = [(step.outputs[0].marks_diff, step.outputs[0].text_diff) for step in handle]
    assert rounds == [([0], "</think"), ([8], "></think"), ([16], "></think>")]
    assert handle.outputs[0].marks == [0, 8, 16]
