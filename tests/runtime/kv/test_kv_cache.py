"""Pages of running sequences: nothing leaks, nothing is shared unasked, windows stay windows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4_trt.errors import CapacityError
from dsv4_trt.kv_layout import LOGICAL_BLOCK, Bucket, CacheClass, solve
from dsv4_trt.kv_plan import plan_for_sequences
from dsv4_trt.presets import FLASH, cut_layers
from dsv4_trt.runtime.kv.cache import KvCache, TableSize
from dsv4_trt.runtime.kv.pool import PagePool
from dsv4_trt.runtime.kv.prefix_cache import PrefixCache
from dsv4_trt.runtime.kv.retention import Retention
from tests.runtime.kv.kv_model import KvModel

SPEC = cut_layers(FLASH, 4)
FORMATS = [("fp8", "fp8"), ("fp8", "fp4"), ("bf16", "bf16"), ("fp32", "fp32")]
SIZES = st.sampled_from([1, 1, 1, 3, 8, 64, 127, 128, 129, 256, 700])


def model(layout, lengths, *, max_seqs=3, max_seq_len=3000, **options):
    num_pages = plan_for_sequences(layout, lengths).num_pages
    return KvModel(layout, num_pages, max_seqs=max_seqs, max_seq_len=max_seq_len, **options)


def held_by_row(cache, row):
    """Pages by bucket that one row of the tables names, between steps."""
    found = dict.fromkeys(Bucket, 0)
    for kv in cache.classes:
        found[kv.bucket] += np.unique(row_pages(cache, kv, row)).size
    return found


def row_pages(cache, kv, row):
    pages = cache.tables[kv.cache_class][:, row]
    return pages[pages >= 0]


@settings(max_examples=25, deadline=None)
@given(
    formats=st.sampled_from(FORMATS),
    steps=st.lists(
        st.tuples(st.dictionaries(st.integers(0, 2), SIZES, min_size=1), st.booleans()),
        min_size=1,
        max_size=12,
    ),
)
def test_random_steps_hold_exactly_what_the_layout_says(formats, steps):
    layout = solve(SPEC, *formats)
    kv = model(layout, [3000] * 3)
    sequences = [kv.open() for _ in range(3)]
    for sizes, commit in steps:
        feeds = []
        for i, size in sizes.items():
            if len(sequences[i].tokens) + size > 3000:
                kv.close(sequences[i])
                sequences[i] = kv.open()
            feeds.append((sequences[i], [7] * size))
        kv.step(feeds, commit=commit, marks=False)
        kv.check()
        for seq in sequences:
            expected = layout.pages_per_sequence(len(seq.tokens))
            assert held_by_row(kv.cache, seq.row) == expected
    for seq in sequences:
        kv.close(seq)
    assert all(pool.num_free == pool.num_pages for pool in kv.pools.values())


@pytest.mark.parametrize(("kv_format", "indexer"), FORMATS)
@pytest.mark.parametrize("marks", [False, True])
def test_every_token_of_a_window_is_where_the_tables_say(kv_format, indexer, marks):
    """Follow each written row through later steps: the ring before the step still names its page."""
    kv = model(solve(SPEC, kv_format, indexer), [2000], retention="every")
    seq = kv.open()
    where = {}  # (class, position) -> (page of each layer, entry)
    for size in (5, 1, 1, 130, 1, 64, 3, 300, 1, 1, 256, 7):
        start = len(seq.tokens)
        grown = WatchedStep(kv, seq, size, marks)
        for layout, slots in grown.each():
            check_older(layout, grown.table(layout), start, where)
            ring = 0 if layout.window is None else layout.window_pages
            for offset in np.flatnonzero(slots >= 0).tolist():
                column, entry = divmod(int(slots[offset]), layout.entries_per_page)
                page = grown.table(layout)[:, ring + column]
                assert (page >= 0).all()
                where[layout.cache_class, start + offset] = (page.copy(), entry)
            written = (start + np.flatnonzero(slots >= 0)).tolist()
            assert written == expected_writes(layout, start, start + size, marks)
        grown.commit()


def check_older(layout, table, start, where):
    """Tokens of the window before the step lie where they were written, and so do all entries."""
    if layout.window is None:
        for position in range(layout.ratio - 1, start, layout.ratio):
            page, entry = where[layout.cache_class, position]
            column, at = divmod(position // layout.ratio, layout.entries_per_page)
            assert entry == at
            np.testing.assert_array_equal(page, table[:, column])
        return
    for position in range(layout.first_token(start), start):
        page, entry = where[layout.cache_class, position]
        assert entry == position % layout.tokens_per_page
        logical = position // layout.tokens_per_page
        np.testing.assert_array_equal(page, table[:, logical % layout.window_pages])


def expected_writes(layout, start, end, marks):
    """Positions that have a slot: completed entries, the window, and those of passed boundaries."""
    if layout.window is None:
        return [p for p in range(start, end) if (p + 1) % layout.ratio == 0]
    kept = set(range(max(start, layout.first_token(end)), end))
    first = start // LOGICAL_BLOCK * LOGICAL_BLOCK + LOGICAL_BLOCK
    for boundary in range(first, end + 1, LOGICAL_BLOCK) if marks else ():
        kept |= set(range(max(start, layout.first_token(boundary)), boundary))
    return sorted(kept)


class WatchedStep:
    """A step of one sequence with its slots, seen from outside."""

    def __init__(self, kv, seq, size, marks):
        self.kv, self.seq = kv, seq
        start = len(seq.tokens)
        seq.grow([7] * size)
        self.marks = kv.marks([seq], [start]) if marks else []
        rows, ends = np.array([seq.row], np.int32), np.array([start + size], np.int32)
        self.step = kv.cache.prepare(rows, ends, self.marks)
        self.slots = np.full((len(kv.cache.classes), size), 7, np.int32)
        positions = np.arange(start, start + size, dtype=np.int32)
        kv.cache.fill_slots(self.step, np.array([size], np.int32), positions, self.slots)

    def each(self):
        return zip(self.kv.cache.classes, self.slots, strict=True)

    def table(self, layout):
        return self.kv.cache.tables[layout.cache_class][:, self.seq.row]

    def commit(self):
        self.kv.cache.commit(self.step)
        for mark in self.marks:
            self.kv.prefix.forget(mark.tail)


def test_steady_decode_needs_a_constant_number_of_window_pages():
    """Counted between steps in the tables of a sequence that decodes."""
    layout = solve(SPEC, "fp8", "fp8")
    kv = model(layout, [1000])
    seq = kv.open()
    kv.step([(seq, [1] * 400)])
    most = {c: 0 for c, one in layout.classes.items() if one.window}
    for _ in range(2 * LOGICAL_BLOCK):
        kv.step([(seq, [1])], marks=False)
        for cache_class in most:
            one = layout[cache_class]
            pages = row_pages(kv.cache, one, seq.row)
            each = np.unique(pages).size // len(one.layers)
            most[cache_class] = max(most[cache_class], each)
    assert most == {"swa": 3, "csa_state": 2, "indexer_state": 2, "hca_state": 16}


def test_a_step_that_does_not_fit_takes_nothing():
    layout = solve(SPEC, "fp8", "fp8")
    kv = KvModel(layout, layout.pages_per_sequence(256), max_seqs=3, max_seq_len=3000)
    first, second = kv.open(), kv.open()
    kv.step([(first, [1] * 256)], marks=False)
    with pytest.raises(CapacityError, match=r"needs \d+ pages of the (large|middle|small) pool"):
        kv.step([(second, [1] * 1000)])
    with pytest.raises(CapacityError, match=r"needs \d+ pages of the (large|middle|small) pool"):
        kv.step([(first, [1]), (second, [1] * 1000)])
    kv.check()


@settings(max_examples=25, deadline=None)
@given(
    formats=st.sampled_from(FORMATS),
    retention=st.sampled_from(["newest", "every", 2]),
    sizes=st.lists(st.one_of(SIZES, st.integers(1, 900)), max_size=12),
    cached=st.integers(0, 2),
)
def test_the_longest_sequence_fits_into_pools_of_its_peak(formats, retention, sizes, cached):
    """Whatever its steps are, and whatever the prefix cache holds."""
    layout, most, chunk = solve(SPEC, *formats), 2000, 900
    tails = Retention.parse(retention).tails_per_step(chunk)
    pages = layout.peak_pages_per_sequence(most, tails)
    kv = KvModel(layout, pages, max_seqs=1, max_seq_len=most, retention=retention)
    for token in range(cached):
        earlier = kv.open()
        kv.step([(earlier, [2 + token] * 600)])
        kv.close(earlier)
    seq = kv.open()
    for size in [*sizes, chunk, chunk, chunk]:
        size = min(size, most - len(seq.tokens))
        if size:
            kv.step([(seq, [1] * size)])
    kv.check()
    assert len(seq.tokens) == most


def test_trunk_and_mtp_share_the_pools():
    layout = solve(SPEC, "fp8", "fp8", mtp=True)
    pools = {b: PagePool(b, n) for b, n in plan_for_sequences(layout, [600]).num_pages.items()}
    prefix = PrefixCache(pools, {c: one.bucket for c, one in layout.classes.items()})
    size = TableSize(max_seqs=2, max_seq_len=600)
    mtp = [one for c, one in layout.classes.items() if c is CacheClass.MTP_SWA]
    caches = [
        KvCache(list(layout.trunk.classes.values()), pools, prefix, size),
        KvCache(mtp, pools, prefix, size),
    ]
    rows = [np.array([cache.open()], np.int32) for cache in caches]
    for end in (200, 201, 600):
        for cache, row in zip(caches, rows, strict=True):
            cache.commit(cache.prepare(row, np.array([end], np.int32)))
        large = np.concatenate(
            [
                row_pages(cache, one, int(row[0]))
                for cache, row in zip(caches, rows, strict=True)
                for one in cache.classes
                if one.bucket is Bucket.LARGE
            ]
        )
        assert {b: pool.num_held for b, pool in pools.items()} == layout.pages_per_sequence(end)
        assert np.unique(large).size == pools[Bucket.LARGE].num_held
    for cache, row in zip(caches, rows, strict=True):
        cache.close(int(row[0]))
    assert all(pool.num_free == pool.num_pages for pool in pools.values())


@pytest.mark.parametrize("at", [1, 60, 192, 193, 200, 255, 256, 300, 511])
@pytest.mark.parametrize(("kv_format", "indexer"), FORMATS)
def test_forks_that_part_inside_a_window_leave_a_tail_each(at, kv_format, indexer):
    """Complete pages of the window are shared and so lie in both tails."""
    kv = model(solve(SPEC, kv_format, indexer), [1000] * 3)
    one = kv.open()
    kv.step([(one, [1] * at)])
    two = kv.fork(one)
    kv.step([(one, [1] * 400), (two, [2] * 400)])
    kv.check()
    assert kv.prefix.num_tails == 2
    kv.close(one)
    kv.prefix.forget(one.tail)
    kv.check()
    late = kv.open()
    hit = (at + 400) // LOGICAL_BLOCK * LOGICAL_BLOCK
    assert kv.adopt(late, [*two.tokens, 3]) == hit
    kv.step([(late, [1] * 300)])
    kv.check()


def test_a_fork_without_a_row_changes_nothing():
    kv = model(solve(SPEC, "fp8", "fp8"), [600] * 3, max_seqs=2)
    one, _ = kv.open(), kv.open()
    kv.step([(one, [1] * 300)])
    with pytest.raises(CapacityError, match="all 2 sequences of the block tables are in use"):
        kv.fork(one)
    kv.check()


def test_a_fork_without_pages_changes_nothing():
    layout = solve(SPEC, "fp8", "fp8")
    kv = KvModel(layout, layout.pages_per_sequence(300), max_seqs=2, max_seq_len=600)
    one = kv.open()
    kv.step([(one, [1] * 300)], marks=False)
    with pytest.raises(CapacityError, match="pages of the large pool"):
        kv.fork(one)
    kv.check()
    assert kv.cache.num_free_rows == 1


@pytest.mark.parametrize("tokens", [256, 512, 768])
def test_a_hit_leaves_at_least_one_token_to_compute(tokens):
    kv = model(solve(SPEC, "fp8", "fp8"), [1100] * 3, retention="every")
    kv.step([(kv.open(), [1] * 1024)])
    for length, saved in ((tokens, tokens - 256), (tokens + 1, tokens)):
        late = kv.open()
        assert kv.adopt(late, [1] * length) == saved
        kv.check()
        kv.close(late)


def test_another_salt_or_another_token_is_no_hit():
    kv = model(solve(SPEC, "fp8", "fp8"), [1100] * 3, retention="every")
    kv.step([(kv.open("a"), [1] * 1024)])
    for salt, prompt, saved in (
        ("", [1] * 1024, 0),
        ("b", [1] * 1024, 0),
        ("a", [2] + [1] * 1023, 0),
        ("a", [1] * 600 + [2] * 424, 512),
        ("a", [1] * 1024, 768),
    ):
        late = kv.open(salt)
        assert kv.adopt(late, prompt) == saved
        kv.close(late)


def test_what_was_used_last_is_forgotten_last():
    """Closing or hitting a prompt makes its tail young; room is made from the oldest."""
    layout = solve(SPEC, "fp8", "fp8")
    kv = model(layout, [512] * 4)
    tails = []
    for token in (1, 2, 3):
        seq = kv.open()
        kv.step([(seq, [token] * 257)])
        tails.append(seq.tail)
        kv.close(seq)
    late = kv.open()
    assert kv.adopt(late, [1] * 300) == 256
    kv.close(late)
    free = kv.pools[Bucket.SMALL].num_free
    kv.prefix.make_room({Bucket.SMALL: free + 1})
    assert [tail.block.tail is tail for tail in tails] == [True, False, True]
    kv.check()
