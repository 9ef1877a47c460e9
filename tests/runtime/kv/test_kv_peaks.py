"""How many pages one sequence holds while a step runs: prompts against steady decode."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4_trt.kv_layout import LOGICAL_BLOCK, Bucket, CacheClass, solve
from dsv4_trt.presets import FLASH, cut_layers
from dsv4_trt.runtime.kv.marks import Mark
from dsv4_trt.runtime.kv.retention import Retention
from tests.runtime.kv.kv_model import KvModel

SPEC = cut_layers(FLASH, 4)
CHUNK = 8192
MAX_SEQ_LEN = 3 * CHUNK + 600
FORMATS = [("fp8", "fp8"), ("fp8", "fp4"), ("bf16", "bf16"), ("fp32", "fp32")]
WINDOWS = (
    CacheClass.SWA,
    CacheClass.CSA_STATE,
    CacheClass.INDEXER_STATE,
    CacheClass.HCA_STATE,
)
MORE = 2  # pages per class and layer that a chunk may need above decode


class Held:
    """A sequence without contents, and the most pages of a layer that it held in any step."""

    def __init__(self, layout):
        pages = layout.peak_pages_per_sequence(MAX_SEQ_LEN, 3)
        self.layout = layout
        self.model = KvModel(layout, pages, max_seqs=1, max_seq_len=MAX_SEQ_LEN)
        self.row = np.array([self.model.cache.open()], np.int32)
        self.end = 0
        self.tail = None
        self.peak = {c: 0 for c, kv in layout.classes.items() if kv.window is not None}

    def step(self, end):
        """One step to `end` tokens; the newest boundary leaves a tail, as the policy says."""
        cache, marks = self.model.cache, []
        found = Retention.parse("newest").boundaries(self.end, end)
        for nth, boundary in enumerate(found):
            hashes = [b"%d" % i for i in range(boundary // LOGICAL_BLOCK)]
            marks.append(Mark(0, boundary, nth, hashes))
        step = cache.prepare(self.row, np.array([end], np.int32), marks)
        for cache_class in self.peak:
            kv, pages = self.layout[cache_class], cache.tables[cache_class][:, self.row[0]]
            for layer in range(len(kv.layers)):
                held = np.unique(pages[layer][pages[layer] >= 0]).size
                self.peak[cache_class] = max(self.peak[cache_class], held)
        self.check_counts(cache)
        cache.commit(step)
        for mark in marks:
            if self.tail is not None:
                self.model.prefix.forget(self.tail)
            self.tail = mark.tail
        self.end = end

    def check_counts(self, cache):
        """The tables name all that is held."""
        named = dict.fromkeys(Bucket, 0)
        for kv in cache.classes:
            pages = cache.tables[kv.cache_class]
            named[kv.bucket] += np.unique(pages[pages >= 0]).size
        assert named == {b: pool.num_held for b, pool in self.model.pools.items()}


def decode_peaks(layout):
    held = Held(layout)
    held.step(1024)
    held.peak = dict.fromkeys(held.peak, 0)
    for end in range(1025, 1025 + 3 * LOGICAL_BLOCK):
        held.step(end)
    return held.peak


def prompt_peaks(layout, length, chunk):
    """A prompt in chunks that end where the scheduler ends them."""
    held = Held(layout)
    held.step(min(length, chunk))
    while held.end < length:
        end = min(length, held.end + chunk)
        boundary = end // LOGICAL_BLOCK * LOGICAL_BLOCK
        held.step(boundary if boundary > held.end else end)
    return held.peak


@pytest.mark.parametrize(("kv_format", "indexer"), FORMATS)
def test_decode_holds_few_window_pages(kv_format, indexer):
    """One page more than a window fills: with fp8 caches 3, 3, 3 and 17."""
    layout = solve(SPEC, kv_format, indexer)
    limits = {c: -(-layout[c].window // layout[c].tokens_per_page) + 1 for c in WINDOWS}
    if (kv_format, indexer) == ("fp8", "fp8"):
        assert list(limits.values()) == [3, 3, 3, 17]
    most = decode_peaks(layout)
    assert set(most) == set(WINDOWS)
    assert all(most[c] <= limits[c] for c in WINDOWS), most
    assert most[CacheClass.SWA] == 3


@pytest.mark.parametrize(("kv_format", "indexer"), FORMATS)
def test_a_prefill_chunk_needs_two_pages_more_than_decode(kv_format, indexer):
    layout = solve(SPEC, kv_format, indexer)
    decode = decode_peaks(layout)

    @settings(max_examples=25, deadline=None)
    @given(
        length=st.one_of(
            st.sampled_from([CHUNK, CHUNK - 1, 8100, 8000, 2 * CHUNK, MAX_SEQ_LEN]),
            st.integers(1, MAX_SEQ_LEN),
        ),
        chunk=st.one_of(st.just(CHUNK), st.integers(LOGICAL_BLOCK, CHUNK)),
    )
    def check(length, chunk):
        for cache_class, most in prompt_peaks(layout, length, chunk).items():
            assert most <= decode[cache_class] + MORE, f"{cache_class}, {length} by {chunk}"

    check()
