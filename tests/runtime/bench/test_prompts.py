"""Random prompts are exact to the token, and files of prompts are read or refused by line."""

import json
from itertools import pairwise

import numpy as np
import pytest

from dsv4_trt.errors import ConfigError
from dsv4_trt.runtime.bench.ask import Ask
from dsv4_trt.runtime.bench.dataset import pick, read_dataset
from dsv4_trt.runtime.bench.random_asks import Lengths
from dsv4_trt.runtime.bench.random_asks import random_asks as iterate_asks
from dsv4_trt.runtime.bench.vocabulary import (
    WORDS,
    Vocabulary,
    single_tokens,
    vocabulary_behind,
    vocabulary_of,
)
from dsv4_trt.runtime.text.tokenizer import Tokenizer
from tests.runtime.llm.llms import write_tokenizer

LENGTHS = Lengths(input_len=200, output_len=50, range_ratio=0.4, prefix_len=33)


def random_asks(*args, **kwargs):
    return list(iterate_asks(*args, **kwargs))


class Counted:
    """An encoder that counts its calls."""

    def __init__(self, encode):
        self.inner, self.calls = encode, 0

    def encode(self, text):
        self.calls += 1
        return self.inner(text)


@pytest.fixture(scope="module")
def byte_tokenizer(tmp_path_factory):
    return Tokenizer.load(write_tokenizer(tmp_path_factory.mktemp("bytes")))


@pytest.fixture(scope="module")
def v4_words(tokenizer):
    return vocabulary_of(tokenizer, 129280, seed=0)


def test_texts_of_the_real_tokenizer_are_exact(tokenizer, v4_words):
    asks = random_asks(40, LENGTHS, v4_words, 0, as_text=True)
    counts = [len(tokenizer.encode(ask.text)) - 33 for ask in asks]
    assert all(120 <= count <= 280 for count in counts)
    assert len(set(counts)) > 15
    prefix = tokenizer.encode(asks[0].text)[:33]
    assert all(tokenizer.encode(ask.text)[:33] == prefix for ask in asks)
    assert len({tuple(tokenizer.encode(ask.text)[33:40]) for ask in asks}) == 40
    assert len(v4_words.pieces) == 4096


@pytest.mark.parametrize("count", [1, 2, 5000])
def test_fixed_lengths(tokenizer, v4_words, count):
    lengths = Lengths(input_len=count, output_len=9)
    (ask,) = random_asks(1, lengths, v4_words, 3, as_text=True)
    assert (len(tokenizer.encode(ask.text)), ask.max_tokens) == (count, 9)


def test_token_ids_are_exact_and_none_is_special(tokenizer, v4_words):
    asks = random_asks(30, LENGTHS, v4_words, 0, as_text=False)
    assert all(153 <= len(ask.token_ids) <= 313 for ask in asks)
    assert all(ask.token_ids[:33] == asks[0].token_ids[:33] for ask in asks)
    used = {token for ask in asks for token in ask.token_ids}
    assert not used & tokenizer.special_ids
    assert max(used) > 100_000


def test_the_seed_decides(v4_words):
    first, again, other = (random_asks(5, LENGTHS, v4_words, s, as_text=True) for s in (1, 1, 2))
    assert first == again
    assert not {ask.text for ask in first} & {ask.text for ask in other}


def test_an_encoder_alone_is_enough_and_is_asked_little(tokenizer):
    """What a remote tokenizer offers: a few calls to learn words, then about one for each prompt."""
    encoder = Counted(tokenizer.encode)
    words = vocabulary_behind(encoder)
    assert len(words.pieces) > 0.9 * len(WORDS.split())
    assert all(
        tokenizer.encode(p) == [i] for p, i in zip(words.pieces, words.token_ids, strict=True)
    )
    assert encoder.calls < 40
    encoder.calls = 0
    asks = random_asks(20, LENGTHS, words, 0, as_text=True)
    assert encoder.calls <= 24
    assert all(153 <= len(tokenizer.encode(ask.text)) <= 313 for ask in asks)


def test_a_vocabulary_without_words_has_letters(byte_tokenizer):
    for words in (vocabulary_of(byte_tokenizer, 512, 0), vocabulary_behind(byte_tokenizer)):
        (ask,) = random_asks(1, Lengths(input_len=77), words, 0, as_text=True)
        assert len(byte_tokenizer.encode(ask.text)) == 77


def test_pieces_that_are_no_single_tokens_are_left_out():
    encoder = Counted(lambda text: [ord(c) for c in text])
    assert single_tokens(encoder, ["a", "xy", "b", "xyz", "c"]) == {"a": 97, "b": 98, "c": 99}


def test_an_encoder_that_never_fits_is_refused():
    """Two tokens for each letter never make an odd number."""
    words = Vocabulary([1], ["a"], Counted(lambda text: [1, 1] * len(text)))
    with pytest.raises(ConfigError, match="no random text of 7 tokens"):
        random_asks(1, Lengths(input_len=7), words, 0, as_text=True)
    with pytest.raises(ConfigError, match="neither a common word nor a letter"):
        vocabulary_behind(words.encoder)


def test_lengths_are_drawn_evenly_and_stay_in_range():
    lengths = Lengths(input_len=10, range_ratio=0.25)
    drawn = lengths.draw(np.random.default_rng(0), 10, 5000)
    counts = {n: drawn.count(n) for n in range(20) if n in drawn}
    assert list(counts) == [8, 9, 10, 11, 12]
    assert all(900 < count < 1100 for count in counts.values())
    assert set(Lengths(range_ratio=0.9).draw(np.random.default_rng(0), 1, 50)) == {1}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("input_len", 0),
        ("output_len", 0),
        ("prefix_len", -1),
        ("range_ratio", 1.0),
        ("range_ratio", -0.1),
    ],
)
def test_illegal_lengths(field, value):
    with pytest.raises(ConfigError, match=f"{field} is {value}"):
        random_asks(1, Lengths(**{field: value}), Vocabulary([1]), 0, as_text=False)


def write(path, *rows):
    path.write_text("\n\n".join(map(json.dumps, rows)))
    return path


def talk(*turns):
    return {"conversations": [{"from": who, "value": text} for who, text in turns]}


def test_a_file_of_every_form(tmp_path, byte_tokenizer):
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    path = write(
        tmp_path / "d.jsonl",
        {"prompt": "hello", "max_tokens": 3},
        {"prompt": [5, 6], "max_tokens": 4},
        {"messages": messages, "max_tokens": 5},
        talk(("system", "s"), ("human", "u"), ("gpt", "answer"), ("human", "more"), ("gpt", "x")),
        talk(("gpt", "nobody asked"), ("human", "u")),
        talk(("human", "no answer")),
    )
    asks = read_dataset(path, None, byte_tokenizer)
    assert asks == [
        Ask(text="hello", max_tokens=3),
        Ask(token_ids=[5, 6], max_tokens=4),
        Ask(messages=messages, max_tokens=5),
        Ask(messages=messages, max_tokens=6),
    ]
    assert [ask.max_tokens for ask in read_dataset(path, 9, None)] == [9] * 4


def test_a_json_list_is_read_too(tmp_path):
    path = tmp_path / "sharegpt.json"
    path.write_text(json.dumps([talk(("human", "u"), ("gpt", "a"))] * 3, indent=2))
    assert len(read_dataset(path, 1, None)) == 3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "d.jsonl:3 is no JSON"),
        ("7", "d.jsonl:3: '7'; expected an object with 'prompt'"),
        ("{}", "'prompt', 'messages' or 'conversations'"),
        ('{"prompt": "", "max_tokens": 1}', "d.jsonl:3: the keys are"),
        ('{"prompt": [1.5], "max_tokens": 1}', "d.jsonl:3: the keys are"),
        ('{"prompt": "x"}', "max_tokens is None.*--output_len"),
        ('{"prompt": "x", "max_tokens": true}', "max_tokens is True"),
        ('{"prompt": "x", "max_tokens": 0}', "max_tokens is 0"),
        ('{"messages": "x", "max_tokens": 1}', "expected a list of objects"),
        ('{"conversations": {}}', "expected a list of turns"),
        ('{"conversations": [{"from": "alien", "value": "x"}]}', "d.jsonl:3: a turn is"),
        ('{"conversations": [{"from": "human", "value": 3}]}', "d.jsonl:3: a turn is"),
        (json.dumps(talk(("human", "u"), ("gpt", "a"))), "--engine_dir, or --output_len"),
    ],
)
def test_lines_that_are_refused_by_number(tmp_path, line, message):
    path = tmp_path / "d.jsonl"
    path.write_text(f'{{"prompt": "x", "max_tokens": 1}}\n\n{line}\n')
    with pytest.raises(ConfigError, match=message):
        read_dataset(path, None, None)


def test_files_that_are_refused(tmp_path):
    path = tmp_path / "d.jsonl"
    with pytest.raises(ConfigError, match="can not be read: No such file"):
        read_dataset(path, None, None)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is no UTF-8 text"):
        read_dataset(path, None, None)
    path.write_text("\n")
    with pytest.raises(ConfigError, match="has no prompts"):
        read_dataset(path, None, None)


def test_prompts_are_picked_evenly_in_an_order_of_the_seed():
    asks = [Ask(text=str(i), max_tokens=1) for i in range(7)]
    picked = pick(asks, 17, 0)
    counts = [picked.count(ask) for ask in asks]
    assert sorted(counts) == [2] * 4 + [3] * 3
    assert all(sorted(a.text for a in picked[s : s + 7]) == list("0123456") for s in (0, 7))
    assert picked == pick(asks, 17, 0) != pick(asks, 17, 1)
    assert all(len(pick(asks, n, 0)) == n for n in (1, 6, 7, 8))
    assert any(int(a.text) > int(b.text) for a, b in pairwise(picked[:7]))
