"""The V4 tokenizer, its markers, and what a missing or broken file does."""

from __future__ import annotations

import hashlib
import json
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4_trt.errors import BundleMismatch, CheckpointError, RequestError
from dsv4_trt.runtime.text.tokenizer import Tokenizer
from tests.golden_data import golden_file

BOS, EOS, USER, ASSISTANT, THINK, END_THINK = 0, 1, 128803, 128804, 128821, 128822
PROMPT = "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜></think>"


def test_known_ids(tokenizer):
    assert tokenizer.vocab_size == 129280
    assert tokenizer.encode("Hello, world!") == [19923, 14, 2058, 3]
    assert tokenizer.encode("1234567890") == [6895, 18009, 25744, 18]
    assert tokenizer.encode("") == []
    assert tokenizer.encode(PROMPT) == [BOS, USER, 23166, ASSISTANT, END_THINK]


def test_only_tokens_marked_special_are_hidden(tokenizer):
    ids = tokenizer.encode(PROMPT)
    assert tokenizer.decode(ids) == PROMPT
    assert (
        tokenizer.decode([*ids, EOS], skip_special=True) == PROMPT[len("<｜begin▁of▁sentence｜>") :]
    )
    assert tokenizer.special_ids >= {BOS, EOS}
    assert not tokenizer.special_ids & {USER, ASSISTANT, THINK, END_THINK}


@given(st.lists(st.integers(0, 129279), max_size=30), st.booleans())
@settings(max_examples=300, deadline=None)
def test_decode_is_the_librarys_decode(tokenizer, ids, skip):
    expected = tokenizer._library.decode(ids, skip_special_tokens=skip)
    assert tokenizer.decode(ids, skip_special=skip) == expected


@given(st.text(max_size=60))
@settings(max_examples=300, deadline=None)
def test_text_survives_the_round_trip(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_lone_surrogate_is_refused(tokenizer):
    with pytest.raises(RequestError, match="character 2"):
        tokenizer.encode("ab\ud800")


def test_plain_text_lets_other_threads_run(tokenizer):
    """A long prompt takes seconds, in which a server has other clients."""
    ticks, is_done = [], threading.Event()

    def tick():
        while not is_done.wait(0.001):
            ticks.append(time.perf_counter())

    tokenizer.encode_plain([""])
    thread = threading.Thread(target=tick)
    thread.start()
    start = time.perf_counter()
    tokenizer.encode_plain(["The quick brown fox. " * 20_000])
    end = time.perf_counter()
    is_done.set()
    thread.join()
    assert sum(start < at < end for at in ticks) >= 10


@pytest.mark.parametrize("token_id", [-1, 129280, 2**40])
def test_an_unknown_id_is_refused_not_dropped(tokenizer, token_id):
    with pytest.raises(RequestError, match=f"{token_id} is not in the tokenizer"):
        tokenizer.decode([5, token_id])


def test_a_model_with_more_ids_than_the_tokenizer_is_refused(tokenizer):
    tokenizer.check_covers(129280)
    with pytest.raises(BundleMismatch, match=r"129281 token ids .* no token 129280"):
        tokenizer.check_covers(129281)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is missing"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[1]", b"{}", b'{"decoder": null}'])
def test_a_broken_file_is_named(tmp_path, content):
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json .*release"):
        Tokenizer.load(tmp_path)


def test_a_truncated_file_is_named(tmp_path, tokenizer_dir):
    whole = (tokenizer_dir / "tokenizer.json").read_bytes()
    (tmp_path / "tokenizer.json").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match="can not be read"):
        Tokenizer.load(tmp_path)


def test_a_tokenizer_without_a_model_is_named(tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps({"decoder": {"type": "ByteLevel"}}))
    with pytest.raises(CheckpointError, match="tokenizers library"):
        Tokenizer.load(tmp_path)


def test_golden_cases(tokenizer, tokenizer_dir):
    cases = json.loads(golden_file("tokenizer", "tokenizer.json").read_text("utf-8"))
    digest = hashlib.sha256((tokenizer_dir / "tokenizer.json").read_bytes()).hexdigest()
    assert digest == cases["meta"]["sha256"], "these cases belong to another tokenizer"
    for marker in cases["markers"]:
        if marker["id"] is not None:
            assert tokenizer.encode(marker["token"]) == [marker["id"]]
            assert (marker["id"] in tokenizer.special_ids) == marker["special"]
    for case in cases["strings"]:
        assert tokenizer.encode(case["text"]) == case["ids"]
        assert tokenizer.decode(case["ids"]) == case["decoded"]
        assert tokenizer.decode(case["ids"], skip_special=True) == case["decoded_skip_special"]
