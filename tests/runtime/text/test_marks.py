"""Where a text has markup that was sampled, not spelled: across stop strings and split characters."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4_trt.runtime.sampling.sampling_params import SamplingParams
from dsv4_trt.runtime.text.text_stream import TextStream

EOS, END_THINK, DSML, EMOJI = 1, 128822, 128825, 80300  # the last is the first half of a character


def stream(tokenizer, ids, **params):
    """Text and marks of a sequence."""
    text = TextStream(tokenizer, SamplingParams(max_tokens=99, **params), EOS)
    shown, marks = "", []
    for token_id in ids:
        shown += text.push(token_id)
        marks += [] if text.mark is None else [text.mark]
        if text.matched is not None:
            return shown, marks
    return shown + text.finish(), marks


def test_a_marker_token_is_marked_and_its_spelling_is_not(tokenizer):
    (spelled,) = tokenizer.encode_plain(["</think>"])
    assert stream(tokenizer, [19923, END_THINK, *spelled]) == ("Hello</think></think>", [5])


def test_tokens_marked_special_have_no_text_and_no_mark(tokenizer):
    assert stream(tokenizer, [EOS, 19923, EOS, DSML], ignore_eos=True) == ("Hello｜DSML｜", [5])


def test_the_token_that_ends_a_sequence_has_no_mark(tokenizer):
    assert stream(tokenizer, [19923, END_THINK], stop_token_ids=(END_THINK,)) == ("Hello", [])


def test_half_a_character_before_a_marker_counts_as_shown(tokenizer):
    assert stream(tokenizer, [EMOJI, DSML]) == ("\ufffd｜DSML｜", [1])


def test_a_mark_may_come_before_its_text(tokenizer):
    text = TextStream(tokenizer, SamplingParams(max_tokens=9, stop=("</think>!",)), EOS)
    assert (text.push(19923), text.mark) == ("Hello", None)
    assert (text.push(END_THINK), text.mark) == ("", 5)
    assert (text.push(19923), text.mark) == ("</think>Hello", None)


def test_a_stop_string_may_cut_marked_text_off(tokenizer):
    shown, marks = stream(tokenizer, [19923, END_THINK, 19923], stop=("think>H",))
    assert (shown, marks) == ("Hello</", [5])


@given(
    st.lists(
        st.one_of(st.integers(0, 129279), st.sampled_from([END_THINK, DSML, EMOJI])), max_size=30
    ),
    st.sampled_from([(), ("</think>", "DSML"), ("e", "｜"), ("think>a",)]),
)
@settings(max_examples=100, deadline=None)
def test_marked_text_is_the_tokens_text(tokenizer, ids, stop):
    shown, marks = stream(tokenizer, ids, stop=stop, ignore_eos=True)
    markup = [tokenizer.decode([i]) for i in ids if i in tokenizer.markup_ids]
    assert marks == sorted(marks)
    assert len(marks) <= len(markup) if stop else len(marks) == len(markup)
    for mark, text in zip(marks, markup, strict=False):
        assert text.startswith(shown[mark : mark + len(text)])
