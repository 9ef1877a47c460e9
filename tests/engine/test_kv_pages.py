"""The paged cache under a real engine: what hits, forks and recycled pages give.

Exact precision unless said otherwise; logits have a scale of about 3.
"""

import pytest
import torch

from dsv4_trt.kv_layout import CacheClass
from tests.engine.paged_sequences import PagedSequences
from tests.workshop import logits, random_ids

LIMIT = 1e-4
HITS = (256, 512, 768)
SUFFIXES = range(1, 10)
LENGTH = HITS[-1] + SUFFIXES[-1]
LENS = (1100, 1100, 1100)


@pytest.fixture(scope="module")
def engine(workshop, tiny_a):
    return workshop.engine(tiny_a, lens=LENS)


@pytest.fixture(scope="module")
def ids():
    return random_ids(LENGTH, seed=21)


@pytest.fixture(scope="module")
def cold(engine, ids):
    """Logits of all positions, computed at once from nothing."""
    return logits(engine, ids)["prefill"]


def close(found, expected, limit=LIMIT):
    torch.testing.assert_close(found, expected, atol=limit, rtol=0)


# hits


def donor(some, ids):
    """Leave all tails behind, then let others recycle every page that came free."""
    first = some.open()
    some.feed([(first, ids[:LENGTH])])
    some.close(first)
    some.poison()
    noise = [some.open(), some.open()]
    some.feed([(noise[0], random_ids(600, seed=31)), (noise[1], random_ids(300, seed=32))])
    some.feed([(seq, random_ids(90, seed=33)) for seq in noise])
    for seq in noise:
        some.close(seq)
    some.poison()


def test_warm_equals_cold(engine, ids, cold):
    """Hits of 256, 512 and 768 tokens with suffixes of 1 to 9, all three in one step."""
    some = PagedSequences(engine, retention="every")
    donor(some, ids)
    for suffix in SUFFIXES:
        warm = [some.open() for _ in HITS]
        for seq, hit in zip(warm, HITS, strict=True):
            assert some.adopt(seq, ids[: hit + suffix], at_most=hit) == hit
        found = some.feed([(s, ids[h : h + suffix]) for s, h in zip(warm, HITS, strict=True)])
        close(found, torch.cat([cold[hit : hit + suffix] for hit in HITS]))
        for seq in warm:
            some.close(seq)
        some.poison()


def test_hits_decode_beside_a_cold_prompt(engine, ids, cold):
    """Token by token, while another prompt comes in chunks."""
    some = PagedSequences(engine, retention="every")
    donor(some, ids)
    warm, fresh = [some.open() for _ in HITS], some.open()
    for seq, hit in zip(warm, HITS, strict=True):
        assert some.adopt(seq, ids[: hit + 5], at_most=hit) == hit
    for step in range(5):
        feeds = [(s, ids[h + step : h + step + 1]) for s, h in zip(warm, HITS, strict=True)]
        begin, end = 31 * step, 31 * (step + 1)
        found = some.feed([*feeds, (fresh, ids[begin:end])])
        close(found, torch.cat([*(cold[h + step : h + step + 1] for h in HITS), cold[begin:end]]))
        some.poison()


@pytest.mark.parametrize(("kv", "cases"), [("fp8", [(256, 9), (512, 4)]), ("bf16", [(256, 1)])])
def test_warm_is_cold_bit_by_bit_where_chunks_are_the_same(workshop, tiny_a, ids, kv, cases):
    """Serving precision: a hit reads the numbers that the same chunks give to anybody."""
    build = ("--kv_cache_dtype", kv)
    engine = workshop.engine(tiny_a, precision="serving", build=build, lens=LENS)
    for hit, suffix in cases:
        some = PagedSequences(engine)
        first = some.open()
        some.feed([(first, ids[:hit])])
        some.close(first)
        some.poison()
        undisturbed, warm = some.open(), some.open()
        some.feed([(undisturbed, ids[:hit])])
        expected = some.feed([(undisturbed, ids[hit : hit + suffix])])
        assert some.adopt(warm, ids[: hit + suffix]) == hit
        shared = some.kv.tables[CacheClass.CSA][:, warm.row, 0]
        assert (shared != some.kv.tables[CacheClass.CSA][:, undisturbed.row, 0]).all()
        close(some.feed([(warm, ids[hit : hit + suffix])]), expected, limit=0)


# forks


@pytest.mark.parametrize("length", [5, 200, 256])
def test_forks_go_on_as_sequences_of_their_own(engine, length):
    """Siblings part in the middle of a page, together in one step; then a boundary passes."""
    prompt = random_ids(length, seed=41)
    more = {name: random_ids(70, seed=seed) for name, seed in (("one", 42), ("two", 43))}
    expected = {name: logits(engine, prompt + rest)["prefill"] for name, rest in more.items()}
    some = PagedSequences(engine, retention="every")
    one = some.open()
    close(some.feed([(one, prompt)]), expected["one"][:length])
    two = some.fork(one)
    some.poison()
    for begin, end in ((0, 1), (1, 2), (2, 3), (3, 67), (67, 70)):
        found = some.feed([(one, more["one"][begin:end]), (two, more["two"][begin:end])])
        rows = slice(length + begin, length + end)
        close(found, torch.cat([expected["one"][rows], expected["two"][rows]]))
        some.poison()


# recycled pages


def test_what_free_pages_hold_changes_nothing(engine):
    """The same steps with and without all free pages filled with NaN bytes in between: bit by bit."""

    def run(poisons):
        some, found = PagedSequences(engine, retention="newest"), []

        def feed(*feeds):
            found.append(some.feed(list(feeds)))
            if poisons:
                some.poison()

        if poisons:
            some.poison()
        one, two = some.open(), some.open()
        feed((one, random_ids(300, seed=51)), (two, random_ids(5, seed=52)))
        for step in range(6):
            feed((one, [10 + step]), (two, random_ids(60, seed=60 + step)))
        some.close(one)
        if poisons:
            some.poison()
        late = some.open()
        feed((two, [3]), (late, random_ids(140, seed=53)))
        feed((two, [4]), (late, [5]))
        feed((late, random_ids(270, seed=54)))
        return torch.cat(found)

    close(run(True), run(False), limit=0)
