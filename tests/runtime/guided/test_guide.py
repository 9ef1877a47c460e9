"""What may come next, at each place of an output; and when nothing may."""

import re

import numpy as np
import pytest

from dsv4_trt.errors import EngineFault, RequestError
from dsv4_trt.runtime.guided import guide as guides
from dsv4_trt.runtime.guided.vocabulary import GrammarVocabulary
from dsv4_trt.runtime.sampling.guided_decoding import GuidedDecodingParams
from tests.runtime.guided.walks import (
    BOS,
    DSML,
    END_THINK,
    EOS,
    MARKERS,
    SIZE,
    USER,
    allowed_ids,
    check_json,
    loads,
    params,
    walk,
)

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 5},
        "age": {"type": "integer", "minimum": 1, "maximum": 99},
        "kind": {"enum": ["a", 1, None]},
        "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
        "next": {"$ref": "#"},
    },
    "required": ["name", "kind"],
}


def begin(compiler, *, start_after=None, others=None, **kind):
    guided = GuidedDecodingParams(start_after=start_after, **kind)
    return compiler.compile(guided).begin(params(guided, **(others or {})))


def text_id(small, text):
    (token_id,) = small.encode(text)
    return token_id


def advance(guide, small, text):
    for token_id in small.encode(text):
        assert token_id in allowed_ids(guide.bitmask), text
        guide.advance(token_id)


@pytest.mark.parametrize("seed", range(8))
def test_json_of_a_schema(compiler, small, seed):
    guided = GuidedDecodingParams(json=SCHEMA)
    hurry = [text_id(small, char) for char in '"}]']
    ids = walk(compiler.compile(guided), guided, seed, hurry=hurry)
    assert ids.pop() == EOS
    value = loads(small.decode(ids))
    while value is not None:
        rest = value.pop("next", None)
        check_json(value, SCHEMA)
        value = rest


@pytest.mark.parametrize("seed", range(4))
def test_any_json_object(compiler, small, seed):
    guided = GuidedDecodingParams(json_object=True)
    hurry = [text_id(small, char) for char in '"}]']
    ids = walk(compiler.compile(guided), guided, seed, hurry=hurry)
    assert isinstance(loads(small.decode(ids[:-1])), dict)


@pytest.mark.parametrize("pattern", [r"[0-9]{3}-[a-z]+", r"(yes|no)!?", r"日本|é+"])
def test_regex(compiler, small, pattern):
    guided = GuidedDecodingParams(regex=pattern)
    for seed in range(3):
        ids = walk(compiler.compile(guided), guided, seed)
        assert re.fullmatch(pattern, small.decode(ids[:-1]))


def test_grammar(compiler, small):
    guided = GuidedDecodingParams(grammar='root ::= "(" root ")" | [0-9]')
    for seed in range(5):
        text = small.decode(walk(compiler.compile(guided), guided, seed)[:-1])
        assert re.fullmatch(r"\(*\d\)*", text)
        assert text.count("(") == text.count(")")


def test_markers_are_no_text(compiler, small):
    """Neither in strings, nor where a grammar spells one; and special tokens never come."""
    guide = begin(compiler, json={"type": "string"})
    advance(guide, small, '"a')
    allowed = set(allowed_ids(guide.bitmask))
    assert not allowed & set(range(len(MARKERS)))
    assert len(allowed) > 300
    guide = begin(compiler, regex="｜DSML｜.*")
    assert DSML not in allowed_ids(guide.bitmask)
    free = begin(
        compiler, structural_tag={"type": "structural_tag", "format": {"type": "any_text"}}
    )
    assert set(allowed_ids(free.bitmask)) & set(range(len(MARKERS))) == {EOS}


def test_markers_where_a_grammar_names_them(compiler, small):
    tag = {
        "type": "sequence",
        "elements": [
            {"type": "const_string", "value": "<"},
            {"type": "token", "token": DSML},
            {"type": "grammar", "grammar": f"root ::= [a-z]* Token({USER})"},
        ],
    }
    guide = begin(compiler, structural_tag={"type": "structural_tag", "format": tag})
    advance(guide, small, "<")
    assert allowed_ids(guide.bitmask) == [DSML]
    guide.advance(DSML)
    allowed = allowed_ids(guide.bitmask)
    assert USER in allowed
    assert DSML not in allowed
    guide.advance(USER)
    assert allowed_ids(guide.bitmask) == [EOS]


def test_the_real_vocabulary(tokenizer):
    vocabulary = GrammarVocabulary.of(tokenizer, 129280, 1)
    assert len(vocabulary.tokens) == 129280
    marker_ids = set(vocabulary.marker_ids)
    assert {tokenizer.encode(m)[0] for m in ("</think>", "｜DSML｜", "<｜User｜>")} <= marker_ids
    assert not marker_ids & tokenizer.special_ids
    for token_id, token in enumerate(vocabulary.tokens):
        if token_id in tokenizer.special_ids:
            assert token == b""
        elif token_id in marker_ids:
            assert token == b"\xff" + tokenizer.token_bytes(token_id)
        else:
            assert token == tokenizer.token_bytes(token_id)
            assert token


def test_reasoning_is_free_but_does_not_end_the_request(compiler, small):
    guide = begin(compiler, regex="a", start_after=END_THINK)
    everything = set(range(SIZE))
    for token_id in (text_id(small, "x"), DSML, BOS, text_id(small, "a")):
        assert set(allowed_ids(guide.bitmask)) == everything - {EOS}
        guide.advance(token_id)
        assert not guide.is_over
    guide.advance(END_THINK)
    assert allowed_ids(guide.bitmask) == [text_id(small, "a")]
    guide.advance(text_id(small, "a"))
    assert allowed_ids(guide.bitmask) == [EOS]


def test_what_ends_a_complete_output(compiler, small):
    """The end-of-text token and the request's own, as soon as and as long as the grammar may end."""
    stop = text_id(small, "s")
    guide = begin(compiler, regex="ab?", others={"stop_token_ids": [stop]})
    assert allowed_ids(guide.bitmask) == [text_id(small, "a")]
    guide.advance(text_id(small, "a"))
    assert set(allowed_ids(guide.bitmask)) == {EOS, stop, text_id(small, "b")}
    guide.advance(text_id(small, "b"))
    assert set(allowed_ids(guide.bitmask)) == {EOS, stop}
    assert not guide.is_over


@pytest.mark.parametrize(
    ("others", "ends"),
    [({"ignore_eos": True}, set()), ({"ignore_eos": True, "stop_token_ids": [9]}, {9})],
)
def test_without_an_end_of_text(compiler, small, others, ends):
    guide = begin(compiler, regex="ab?", others=others)
    guide.advance(text_id(small, "a"))
    assert set(allowed_ids(guide.bitmask)) == {text_id(small, "b")} | ends
    assert not guide.is_over
    guide.advance(text_id(small, "b"))
    assert guide.is_over == (not ends)


def test_min_tokens_can_not_go_on_behind_a_complete_output(compiler, small):
    for least, over in ((1, False), (2, True), (9, True)):
        guide = begin(compiler, regex="a", others={"min_tokens": least})
        guide.advance(text_id(small, "a"))
        assert guide.is_over == over


def test_a_token_that_is_not_allowed_is_a_fault(compiler, small):
    guide = begin(compiler, regex="ab")
    with pytest.raises(EngineFault, match="which the grammar of this sequence does not allow"):
        guide.advance(text_id(small, "b"))


def test_a_grammar_that_is_slow_to_follow_is_ended(compiler, small, monkeypatch):
    monkeypatch.setattr(guides, "BURST_SECONDS", 0.0)
    monkeypatch.setattr(guides, "SECONDS_PER_TOKEN", 0.0)
    guide = begin(compiler, regex="a+")
    with pytest.raises(RequestError, match="holds up all other requests") as caught:
        guide.advance(text_id(small, "a"))
    assert caught.value.parameter == "guided_decoding"


def test_json_has_no_control_characters(compiler, small):
    for schema in ({"type": "string"}, {"type": "string", "maxLength": 9}):
        guide = begin(compiler, json=schema)
        advance(guide, small, '"a')
        allowed = small.decode([i for i in allowed_ids(guide.bitmask) if i >= len(MARKERS)])
        assert not [char for char in allowed if ord(char) < 0x20]


def test_the_bitmask_is_what_a_sampler_takes(compiler):
    guide = begin(compiler, regex="a")
    assert guide.bitmask.dtype == np.int32
    assert guide.bitmask.shape == (SIZE // 32,)
