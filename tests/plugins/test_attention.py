"""Sparse attention against a loop over queries in double precision."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4_trt.plugins.reference import pages
from dsv4_trt.plugins.reference.attention import attend
from dsv4_trt.plugins.reference.attention_keys import KeyPart
from dsv4_trt.plugins.reference.rope import rotate_tail
from tests.plugins.op_call import call, call_all
from tests.plugins.paged import PagedSequences
from tests.plugins.small_model import (
    CSA,
    HCA,
    INV_FREQ,
    SWA,
    entry_format,
    layout,
    ragged,
    rows_of,
    splits,
)

HEADS, WINDOW, TOPK = 2, 128, 12
LAYER = {0: 0, 4: 1, 128: 2}
ENTRIES = {4: CSA, 128: HCA}


class Attention:
    """Inputs of one layer for some sequences: queries, keys, entries and picks of every token."""

    def __init__(self, ratio, lengths, seed=0):
        generator = torch.Generator().manual_seed(seed)
        self.ratio, self.lengths = ratio, lengths
        self.sinks = torch.randn(HEADS, generator=generator)
        self.q = [torch.randn(n, HEADS * 512, generator=generator) for n in lengths]
        self.kv = [torch.randn(n, 512, generator=generator) for n in lengths]
        counts = [n // ratio if ratio else 0 for n in lengths]
        self.entries = [torch.randn(n, 512, generator=generator) for n in counts]
        self.topk = None
        if ratio == 4:  # anything between one too low and past the end, repeated ids too
            highs = [max(n, 1) + 3 for n in counts]
            self.topk = [
                torch.randint(-2, high, (n, TOPK), generator=generator).float()
                for n, high in zip(lengths, highs, strict=True)
            ]

    def paged(self, seed=0):
        return PagedSequences(layout("fp32"), len(self.lengths), max(self.lengths), seed)

    def step(self, paged, counts, padding=0, inverse_rope=True):
        """One step: insert, entries of the step, attention. Returns the attention's rows."""
        starts, step = list(paged.lengths), paged.step(counts, padding)
        inserted = self.insert(paged, step, starts)
        more = {"layer_row": 0, "entries_per_page": 0}
        if self.ratio:
            cls = ENTRIES[self.ratio]
            kv = paged.layout[cls]
            self.store_entries(paged, step, kv)
            more = {
                "block_table": step.tables[cls],
                "pool": paged.pool(cls),
                "layer_row": 0,
                "entries_per_page": kv.entries_per_page,
            }
        if self.topk:
            more["topk"] = rows_of(self.topk, step, starts).nan_to_num(5).int()
        out = call(
            "sparse_attention",
            q=inserted["q"],
            kv=inserted["kv"],
            sinks=self.sinks,
            inv_freq=INV_FREQ,
            **ragged(step),
            decode_carrier=step.decode_carrier,
            swa_block_table=step.tables[SWA],
            swa_pool=inserted["pool"],
            ratio=self.ratio,
            sm_scale=512**-0.5,
            window=WINDOW,
            format="fp32",
            prob_dtype="F32",
            inverse_rope=inverse_rope,
            swa_layer_row=LAYER[self.ratio],
            swa_entries_per_page=paged.layout[SWA].entries_per_page,
            swa_window_pages=paged.layout[SWA].window_pages,
            **more,
        )
        paged.commit(step)
        return out

    def insert(self, paged, step, starts):
        return call_all(
            "qkv_rope_insert",
            q=rows_of(self.q, step, starts),
            kv=rows_of(self.kv, step, starts),
            inv_freq=INV_FREQ,
            positions=step.positions,
            seq_ids=step.seq_ids,
            table_rows=step.table_rows,
            slot_mapping=step.slots[SWA],
            block_table=step.tables[SWA],
            pool=paged.pool(SWA),
            num_heads=HEADS,
            D=512,
            eps=1e-6,
            format="fp32",
            layer_row=LAYER[self.ratio],
            entries_per_page=paged.layout[SWA].entries_per_page,
            window_pages=paged.layout[SWA].window_pages,
        )

    def store_entries(self, paged, step, kv):
        for seq, (start, end) in enumerate(zip(paged.lengths, step.ends, strict=True)):
            new = torch.arange(start // self.ratio, end // self.ratio)
            place = pages.entry_places(
                step.tables[kv.cache_class][0, step.table_rows[seq]], new, kv.entries_per_page
            )
            pages.write(
                paged.pool(kv.cache_class),
                place,
                entry_format(kv),
                kv.entries_per_page,
                self.entries[seq][new],
            )

    def oracle(self, seq, t):
        """The output of one token in double precision, by the definition."""
        at = torch.tensor([t])
        q = self.q[seq][t].double().view(1, HEADS, 512)
        q = rotate_tail(q / (q.square().mean(-1, keepdim=True) + 1e-6).sqrt(), at, INV_FREQ)[0]
        first = max(0, t - WINDOW + 1)
        window = torch.arange(first, t + 1)
        keys = [rotate_tail(self.kv[seq][window].double(), window, INV_FREQ)]
        visible = (t + 1) // self.ratio if self.ratio else 0
        picks = range(visible)
        if self.topk:
            picks = [i for i in self.topk[seq][t].int().tolist() if 0 <= i < visible]
        keys = torch.cat([*keys, self.entries[seq][list(picks)].double()])
        scores = q @ keys.T / math.sqrt(512)
        peak = scores.amax(1, keepdim=True)
        weights = (scores - peak).exp()
        total = weights.sum(1, keepdim=True) + (self.sinks.double()[:, None] - peak).exp()
        return rotate_tail((weights @ keys / total)[None], at, INV_FREQ, inverse=True)[0]


def run_in_chunks(attention, cuts, seed=0):
    """Every token's output, per sequence."""
    paged = attention.paged(seed)
    found = [[] for _ in attention.lengths]
    for index in range(max(len(c) for c in cuts)):
        counts = [c[index] if index < len(c) else 0 for c in cuts]
        out = attention.step(paged, counts, padding=index % 2)
        for seq, rows in enumerate(torch.split(out[: sum(counts)], counts)):
            found[seq].append(rows)
        assert not out[sum(counts) :].any()
    return [torch.cat(rows) for rows in found]


@pytest.mark.parametrize("ratio", [0, 4, 128])
@pytest.mark.parametrize("size", [1, 50, 1000])
def test_any_chunk_size_equals_the_definition(ratio, size):
    lengths = (262, 3, 133) if size > 1 else (140, 3, 129)
    attention = Attention(ratio, lengths)
    found = run_in_chunks(attention, [splits(n, [size]) for n in lengths])
    for seq, rows in enumerate(found):
        for t in {0, 1, 2, 3, 4, 126, 127, 128, 129, 130, 255, 256, lengths[seq] - 1}:
            if t < lengths[seq]:
                expected = attention.oracle(seq, t)
                torch.testing.assert_close(rows[t].double(), expected, atol=2e-6, rtol=2e-5)


@pytest.mark.parametrize("ratio", [0, 4, 128])
@settings(deadline=None, max_examples=10)
@given(sizes=st.lists(st.integers(1, 140), min_size=3, max_size=5), length=st.integers(1, 280))
def test_any_split_equals_one_step(ratio, sizes, length):
    lengths = (length, max(1, length - 9), 5)
    attention = Attention(ratio, lengths, seed=length)
    whole = run_in_chunks(attention, [[n] for n in lengths])
    cuts = [splits(n, sizes[i:] + sizes[:i]) for i, n in enumerate(lengths)]
    many = run_in_chunks(attention, cuts, seed=1)
    for one, other in zip(whole, many, strict=True):  # fp32 sums over keys in another order
        torch.testing.assert_close(one, other, atol=4e-6, rtol=1e-5)


def test_outputs_stay_rotated_for_the_op_that_quantizes():
    attention = Attention(4, (140,))
    rotated = attention.step(attention.paged(), [140], inverse_rope=False)
    (expected,) = run_in_chunks(attention, [[140]])
    at = torch.arange(140)
    assert not torch.equal(rotated, expected)
    assert torch.equal(rotate_tail(rotated, at, INV_FREQ, inverse=True), expected)


def test_a_token_changes_nothing_before_it():
    attention = Attention(128, (200,))
    (before,) = run_in_chunks(attention, [[200]])
    attention.kv[0][150:] += 1
    (after,) = run_in_chunks(attention, [[200]])
    assert torch.equal(before[:150], after[:150])
    assert not torch.equal(before[150], after[150])


@pytest.mark.parametrize("ids", [[-1] * TOPK, [10**9] * TOPK, [-(2**31)] * TOPK, [70] * TOPK])
def test_picks_out_of_range_are_none(ids):
    attention = Attention(4, (280,))
    attention.topk[0][:] = torch.tensor(ids).float()
    (found,) = run_in_chunks(attention, [[280]])
    attention.topk[0][:] = -1
    (expected,) = run_in_chunks(attention, [[280]])
    assert torch.equal(found, expected)


def test_a_repeated_pick_counts_each_time():
    attention = Attention(4, (60,))
    attention.topk[0][:] = torch.tensor([3, 3, 3, -1, 0, 2, 0, -1, 99, 1, 1, 1]).float()
    (found,) = run_in_chunks(attention, [[60]])
    torch.testing.assert_close(found[59].double(), attention.oracle(0, 59), atol=2e-6, rtol=2e-5)


def parts(n, m):
    generator = torch.Generator().manual_seed(5)
    shared = torch.randn(m, 8, generator=generator)
    own = torch.randn(n, 3, 8, generator=generator)
    seen = torch.rand(n, m, generator=generator) < 0.5
    seen[:, 0] = True
    return [KeyPart(shared, seen), KeyPart(own, torch.ones(n, 3, dtype=torch.bool))]


@pytest.mark.parametrize("sink", [math.inf, -math.inf, 1e30, -1e30, 0.0])
def test_extreme_sinks(sink):
    q, keys = torch.randn(4, HEADS, 8), parts(4, 6)
    out = attend(q, keys, torch.full((HEADS,), sink), 1.0, torch.float32)
    if sink > 1:
        assert not out.any()
        return
    for row in range(4):
        own = torch.cat((keys[0].keys[keys[0].seen[row]], keys[1].keys[row]))
        scores = torch.cat((q[row] @ own.T, torch.full((HEADS, 1), sink)), 1)
        torch.testing.assert_close(out[row], scores.softmax(1)[:, :-1] @ own)


@pytest.mark.parametrize("sink", [0.0, -math.inf, math.inf])
def test_a_row_without_keys_gives_zeros(sink):
    keys = [KeyPart(part.keys, torch.zeros_like(part.seen)) for part in parts(4, 6)]
    out = attend(torch.randn(4, HEADS, 8), keys, torch.full((HEADS,), sink), 1.0, torch.bfloat16)
    assert not out.any()  # NaN would count as any


def test_a_bad_number_is_not_hidden():
    q, keys = torch.randn(4, HEADS, 8), parts(4, 6)
    q[2, 1, 0] = math.nan
    out = attend(q, keys, torch.zeros(HEADS), 1.0, torch.float32)
    assert out.isnan().all(-1).nonzero().tolist() == [[2, 1]]


def test_probabilities_are_rounded_for_the_values_only():
    q, keys = torch.randn(4, HEADS, 8), parts(4, 6)[:1]
    sinks = torch.randn(HEADS)
    out = attend(q, keys, sinks, 0.5, torch.bfloat16)
    scores = (0.5 * q @ keys[0].keys.T).masked_fill(~keys[0].seen.unsqueeze(1), -math.inf)
    peak = scores.amax(-1, keepdim=True)
    weights = (scores - peak).exp()
    total = weights.sum(-1, keepdim=True) + (sinks[:, None] - peak).exp()
    expected = weights.bfloat16().float() @ keys[0].keys / total
    torch.testing.assert_close(out, expected, atol=1e-6, rtol=1e-6)
    assert not torch.allclose(out, weights @ keys[0].keys / total, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("ratio", [0, 4, 128])
def test_bf16_step_has_the_dtypes_of_the_table(ratio):
    attention = Attention(ratio, (130,))
    attention.q = [q.bfloat16() for q in attention.q]
    attention.kv = [kv.bfloat16() for kv in attention.kv]
    (rows,) = run_in_chunks(attention, [[100, 30]])
    assert rows.dtype is torch.bfloat16
    expected = attention.oracle(0, 129)
    assert (rows[129].double() - expected).norm() < 0.02 * expected.norm()


def test_attention_writes_nothing():
    attention = Attention(128, (300,))
    paged = attention.paged()
    attention.step(paged, [290])
    freed = {bucket: pool.clone() for bucket, pool in paged.pools.items()}
    attention.insert = lambda paged, step, starts: {
        "q": torch.randn(10, HEADS, 512),
        "kv": torch.randn(10, 512),
        "pool": paged.pool(SWA),
    }
    attention.store_entries = paged.commit = lambda *_: None
    attention.step(paged, [10])
    assert all(torch.equal(pool, freed[bucket]) for bucket, pool in paged.pools.items())
