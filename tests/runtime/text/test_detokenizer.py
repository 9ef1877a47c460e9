"""Streaming never shows half a character, and all pieces together are what `decode` gives."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4_trt.runtime.text.detokenizer import IncrementalDetokenizer

EOS, END_THINK = 1, 128822
FAMILY = "👩‍💻👨‍👩‍👧‍👦"  # several code points joined, each split over tokens


def stream(tokenizer, ids, **kwargs):
    detokenizer = IncrementalDetokenizer(tokenizer, **kwargs)
    return [detokenizer.push(i) for i in ids], detokenizer.finish()


def test_a_split_character_waits_for_its_last_byte(tokenizer):
    ids = tokenizer.encode("🙂")
    assert len(ids) == 2
    assert stream(tokenizer, ids) == (["", "🙂"], "")


def test_no_piece_holds_a_replacement_character(tokenizer):
    pieces, rest = stream(tokenizer, tokenizer.encode(FAMILY))
    assert "".join(pieces) == FAMILY
    assert rest == ""
    assert not any("\ufffd" in piece for piece in pieces)


def test_an_unfinished_character_becomes_a_replacement_at_the_end(tokenizer):
    pieces, rest = stream(tokenizer, tokenizer.encode("🙂")[:1])
    assert (pieces, rest) == ([""], "\ufffd")


def test_a_real_replacement_character_passes(tokenizer):
    pieces, rest = stream(tokenizer, tokenizer.encode("a\ufffdb"))
    assert "".join(pieces) + rest == "a\ufffdb"


def test_special_tokens_are_hidden_and_markers_shown(tokenizer):
    assert stream(tokenizer, [19923, END_THINK, EOS])[0] == ["Hello", "</think>", ""]
    shown, _ = stream(tokenizer, [19923, EOS], skip_special=False)
    assert shown == ["Hello", "<｜end▁of▁sentence｜>"]


@given(st.lists(st.integers(0, 129279), max_size=40), st.booleans())
@settings(max_examples=300, deadline=None)
def test_pieces_join_to_the_decoded_whole(tokenizer, ids, skip):
    pieces, rest = stream(tokenizer, ids, skip_special=skip)
    assert "".join(pieces) + rest == tokenizer.decode(ids, skip_special=skip)


@given(st.text(min_size=1, max_size=40))
@settings(max_examples=200, deadline=None)
def test_valid_text_streams_without_loss_or_replacement(tokenizer, text):
    pieces, rest = stream(tokenizer, tokenizer.encode(text), skip_special=False)
    assert "".join(pieces) == text
    assert rest == ""
