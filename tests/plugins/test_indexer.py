"""Indexer queries, scores and the choice of entries, against plain loops."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dsv4_trt.plugins.reference import codecs, pages
from dsv4_trt.plugins.reference.hadamard import hadamard
from dsv4_trt.plugins.reference.indexer import index_scores, query_values
from dsv4_trt.plugins.reference.ranking import best
from dsv4_trt.plugins.reference.rope import rotate_tail
from tests.plugins.op_call import call, call_all
from tests.plugins.paged import PagedSequences
from tests.plugins.small_model import INDEXER, INV_FREQ, entry_format, layout, ragged

HEADS, TOPK = 8, 16
ACTIVATIONS = {"fp4": torch.bfloat16, "fp8": torch.bfloat16, "bf16": torch.bfloat16}


def queries(format, tokens, seed=0):
    generator = torch.Generator().manual_seed(seed)
    dtype = ACTIVATIONS.get(format, torch.float32)
    q = torch.randn(tokens, HEADS * 128, generator=generator).to(dtype)
    return q, torch.randn(tokens, HEADS, generator=generator).to(dtype)


def quantized(format, q, weights, positions):
    return call_all(
        "indexer_q",
        q=q,
        weights=weights,
        inv_freq=INV_FREQ,
        positions=positions,
        num_heads=HEADS,
        head_dim=128,
        row=64 if format == "fp4" else 128,
        format=format,
        scale=0.01,
    )


@pytest.mark.parametrize("format", ["fp4", "fp8", "bf16", "fp32"])
def test_queries_are_rotated_transformed_and_quantized(format):
    q, weights = queries(format, 5)
    positions = torch.tensor([0, 3, 127, 128, 4000], dtype=torch.int32)
    out = quantized(format, q, weights, positions)
    exact = hadamard(rotate_tail(q.view(5, HEADS, 128), positions, INV_FREQ)).float()
    seen = query_values(out["q"], out.get("q_scale"))
    scaled = (weights * 0.01).float()
    if format == "fp8":  # its scale is in the weights
        scale = codecs.e8m0_decode(codecs.act8(exact, 128)[1])
        assert torch.equal(out["weights"], scaled * scale.squeeze(-1))
        seen = seen * scale
    else:
        assert torch.equal(out["weights"], scaled)
    limit = {"fp4": 0.15, "fp8": 0.04}.get(format, 0.0)
    assert (seen - exact).norm() <= limit * exact.norm()
    assert format in ("bf16", "fp32") or not torch.equal(seen, exact)


def test_scores_are_rounded_where_the_official_code_rounds():
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(3, HEADS, 128, generator=generator).bfloat16().float()
    keys = torch.randn(7, 128, generator=generator).bfloat16().float()
    weights = torch.randn(3, HEADS, generator=generator).bfloat16().float()
    dots = torch.einsum("thd,md->thm", q.double(), keys.double())
    exact = (dots.relu() * weights.double().unsqueeze(-1)).sum(1)
    torch.testing.assert_close(
        index_scores(q, weights, keys, torch.float32).double(), exact, atol=1e-3, rtol=1e-5
    )
    step = dots.bfloat16().relu().float() * weights.unsqueeze(-1)
    expected = step.bfloat16().float().sum(1).bfloat16().float()
    assert torch.equal(index_scores(q, weights, keys, torch.bfloat16), expected)


SPECIAL = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-45, -1e-45, 3e38]


@given(
    st.lists(st.one_of(st.sampled_from(SPECIAL), st.floats(width=32)), min_size=1, max_size=40),
    st.integers(1, 50),
    st.integers(0, 45),
)
def test_best_is_a_stable_sort_with_nan_last(values, k, candidates):
    limit = min(candidates, len(values))
    order = sorted(
        range(limit),
        key=lambda i: (math.isnan(values[i]), -values[i] if values[i] == values[i] else 0, i),
    )
    expected = (order[:k] + [-1] * k)[:k]
    found = best(torch.tensor([values]), k, torch.tensor([candidates]))
    assert found.tolist() == [expected]


def filled(format, lengths, keys):
    """Sequences in one step of all their tokens, their indexer pages holding `keys`."""
    paged = PagedSequences(layout("bf16", format), len(lengths), max(lengths))
    step = paged.step(list(lengths), padding=2)
    store(paged, step, keys)
    return paged, step


def store(paged, step, keys):
    """Write the first keys as the entries of every sequence."""
    kv = paged.layout[INDEXER]
    for seq, length in enumerate(step.ends):
        every = torch.arange(length // 4)
        place = pages.entry_places(
            step.tables[INDEXER][0, step.table_rows[seq]], every, kv.entries_per_page
        )
        pages.write(paged.pool(INDEXER), place, entry_format(kv), kv.entries_per_page, keys[every])


def pick(paged, step, format, queries, score_dtype="F32", topk=TOPK):
    return call(
        "index_topk",
        **queries,
        **ragged(step),
        decode_carrier=step.decode_carrier,
        block_table=step.tables[INDEXER],
        pool=paged.pool(INDEXER),
        topk=topk,
        ratio=4,
        head_dim=128,
        format=format,
        score_dtype=score_dtype,
        layer_row=0,
        entries_per_page=paged.layout[INDEXER].entries_per_page,
    )


@pytest.mark.parametrize("format", ["fp4", "fp8", "bf16", "fp32"])
@pytest.mark.parametrize("score_dtype", ["F32", "BF16"])
def test_topk_is_what_a_full_sort_picks(format, score_dtype):
    lengths = (300, 5, 70)
    keys = torch.randn(75, 128, generator=torch.Generator().manual_seed(3))
    paged, step = filled(format, lengths, keys)
    out = quantized(format, *queries(format, 377), step.positions)
    found = pick(paged, step, format, out, score_dtype)
    entry = entry_format(paged.layout[INDEXER])
    values = entry.decode(*entry.encode(keys))
    dtype = codecs.FLOATS[score_dtype]
    scores = index_scores(query_values(out["q"], out.get("q_scale")), out["weights"], values, dtype)
    for row, (position, seq) in enumerate(
        zip(step.positions.tolist(), step.seq_ids.tolist(), strict=True)
    ):
        visible = (position + 1) // 4 if seq >= 0 else 0
        order = scores[row, :visible].sort(descending=True, stable=True).indices.tolist()[:TOPK]
        assert found[row].tolist() == sorted(order) + [-1] * (TOPK - len(order))


def test_ties_go_to_the_lower_entry():
    paged, step = filled("fp32", (300,), torch.ones(75, 128))
    q, weights = torch.ones(302, HEADS, 128), torch.ones(302, HEADS)
    found = pick(paged, step, "fp32", {"q": q, "weights": weights})
    assert found[299].tolist() == list(range(TOPK))


def test_nan_keys_come_last():
    keys = torch.ones(75, 128)
    keys[:70] = torch.nan
    paged, step = filled("fp32", (300,), keys)
    found = pick(
        paged,
        step,
        "fp32",
        {"q": torch.ones(302, HEADS, 128), "weights": torch.ones(302, HEADS)},
        topk=7,
    )
    assert found[299].tolist() == [0, 1, 70, 71, 72, 73, 74]


def test_one_token_at_a_time_picks_the_same():
    keys = torch.randn(75, 128, generator=torch.Generator().manual_seed(4))
    paged, whole = filled("fp4", (300, 300), keys)
    out = quantized("fp4", *queries("fp4", 602), whole.positions)
    every = pick(paged, whole, "fp4", out, "BF16")
    paged, before = filled("fp4", (299, 295), keys)
    paged.commit(before)
    step = paged.step([1, 5])
    store(paged, step, keys)
    rows = [299, *range(595, 600)]
    some = pick(paged, step, "fp4", {name: t[rows] for name, t in out.items()}, "BF16")
    assert torch.equal(some, every[rows])
