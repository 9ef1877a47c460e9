"""Stop strings across any token borders, stop ids, and text that is held back and released."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4_trt.runtime.sampling.sampling_params import SamplingParams
from dsv4_trt.runtime.text.stop_checker import StopChecker
from dsv4_trt.runtime.text.text_stream import TextStream

EOS = 1


def run(pieces, *, ids=None, **kwargs):
    """Pieces shown one by one until a stop, then what `finish` gives."""
    checker = StopChecker(**kwargs)
    shown = []
    for i, piece in enumerate(pieces):
        if checker.ends(ids[i] if ids else 1000):
            return shown, checker.finish(), checker.matched
        shown.append(checker.show(piece))
        if checker.matched is not None:
            break
    return shown, checker.finish(), checker.matched


def test_text_before_the_stop_is_shown_and_nothing_after():
    assert run(["ab", "cSTOPd", "e"], stop=["STOP"]) == (["ab", "c"], "", "STOP")


def test_a_stop_across_pieces_is_held_back():
    assert run(["aS", "T", "O", "Px"], stop=["STOP"]) == (["a", "", "", ""], "", "STOP")


def test_a_partial_match_is_released_when_it_fails():
    assert run(["aST", "!", "S"], stop=["STOP"]) == (["a", "ST!", ""], "S", None)


def test_a_partial_match_that_restarts_inside_itself():
    assert run(["aab", "aa", "bac"], stop=["aabac"]) == (["", "aab", ""], "", "aabac")


def test_the_stop_that_is_complete_first_wins_whatever_the_pieces():
    for pieces in (["abcd"], ["a", "b", "c", "d"], ["ab", "cd"]):
        shown, rest, matched = run(pieces, stop=["abcd", "bc"])
        assert ("".join(shown), rest, matched) == ("a", "", "bc")


def test_the_longer_of_two_that_end_together_wins():
    shown, _, matched = run(["xab"], stop=["b", "ab"])
    assert ("".join(shown), matched) == ("x", "ab")


def test_a_stop_id_shows_no_text_of_its_own_and_releases_what_was_held():
    shown, rest, matched = run(["aS", "never"], ids=[5, 7], stop=["STOP"], stop_ids=[7])
    assert (shown, rest, matched) == (["a"], "S", 7)


def test_min_tokens_keeps_stops_from_beginning():
    shown, rest, matched = run(
        ["S", "S", "xS"], ids=[7, 7, 8], stop=["S"], stop_ids=[7], min_tokens=2
    )
    assert (shown, rest, matched) == (["S", "S", "x"], "", "S")


@given(
    st.text("ab", max_size=14),
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
    st.data(),
)
def test_pieces_never_change_the_result(text, stops, data):
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)))))
    pieces = [text[i:j] for i, j in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    shown, rest, matched = run(pieces, stop=stops)
    ends = [i for i in range(len(text) + 1) if any(text[:i].endswith(s) for s in stops)]
    if ends:
        longest = max((s for s in stops if text[: ends[0]].endswith(s)), key=len)
        assert ("".join(shown), rest, matched) == (text[: ends[0] - len(longest)], "", longest)
    else:
        assert ("".join(shown) + rest, matched) == (text, None)


def stream(tokenizer, ids, **params):
    text = TextStream(tokenizer, SamplingParams(max_tokens=99, **params), EOS)
    shown = []
    for token_id in ids:
        shown.append(text.push(token_id))
        if text.matched is not None:
            return shown, text.matched
    return [*shown, text.finish()], text.matched


def test_end_of_sentence_ends_the_text(tokenizer):
    assert stream(tokenizer, [19923, EOS, 19923]) == (["Hello", ""], EOS)
    assert stream(tokenizer, [19923, EOS, 19923], ignore_eos=True)[1] is None


def test_a_stop_inside_split_characters(tokenizer):
    ids = tokenizer.encode("ok 🙂🙂 more")
    shown, matched = stream(tokenizer, ids, stop=("🙂 ",))
    assert ("".join(shown), matched) == ("ok 🙂", "🙂 ")


@pytest.mark.parametrize("how", ["stop id", "token limit"])
def test_half_a_character_at_the_end_is_a_replacement(tokenizer, how):
    ids = tokenizer.encode("🙂")[:1]
    shown, _ = stream(tokenizer, [*ids, EOS] if how == "stop id" else ids)
    assert "".join(shown) == "\ufffd"
