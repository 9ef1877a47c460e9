"""The prompts of the published encoder: strings and token ids, exactly."""

from __future__ import annotations

import json

import pytest

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.chat.encoding import encode_messages, encode_segments
from tests.golden_data import golden_file

MODES = {"chat": False, "thinking": True}
SPELLS_A_MARKER = "g49"  # its ids are not ours on purpose


def cases(*names):
    found = []
    for name in names:
        found += json.loads(golden_file("chat", name).read_text("utf-8"))
    return [pytest.param(case, id=f"{case['id']} {case['tag']}") for case in found]


def options(case):
    given = dict(case["options"])
    mode = given.pop("thinking_mode")
    return given | {"thinking": MODES.get(mode, mode)}


@pytest.mark.parametrize("case", cases("encode.json", "encode_published.json"))
def test_prompt(case, tokenizer, markup):
    if "error" in case:
        with pytest.raises(RequestError) as raised:
            encode_messages(case["messages"], **options(case))
        assert raised.value.parameter
        return
    assert encode_messages(case["messages"], **options(case)) == case["prompt"]
    segments = encode_segments(case["messages"], **options(case))
    assert "".join(segment.text for segment in segments) == case["prompt"]
    ids = markup.encode(segments, tokenizer)
    assert tokenizer.decode(ids) == case["prompt"]
    if case["id"] != SPELLS_A_MARKER:
        expected = json.loads(golden_file("chat", "prompt_ids.json").read_text("utf-8"))
        assert ids == expected[case["id"]]


def test_every_prompt_with_ids_is_a_case():
    ids = json.loads(golden_file("chat", "prompt_ids.json").read_text("utf-8"))
    found = [case.values[0] for case in cases("encode.json", "encode_published.json")]
    assert set(ids) == {case["id"] for case in found if "prompt" in case}
    assert len(found) >= 61
