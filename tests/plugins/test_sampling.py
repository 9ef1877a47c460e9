"""The op `sample` against a plain walk through one row at a time.

Logits are multiples of 1/4, so that ties are many; shares keep away from the borders between
tokens, where the last bit of a sum would decide.
"""

from __future__ import annotations

import math
import random

import pytest
import torch

from tests.plugins.op_call import call
from tests.plugins.sampling_case import Row, any_row, inputs

VOCAB = 67
INF = math.inf


def changed(logits, row):
    """What the rules make of a row of logits, as fp32 values."""
    out = [x if row.allowed is None or i in row.allowed else -INF for i, x in enumerate(logits)]
    one = lambda x: float(torch.tensor(x, dtype=torch.float32))  # noqa: E731
    for i, value in row.bias.items():
        out[i] = one(out[i] + one(value))
    for i in row.seen:
        penalty = one(row.repetition)
        out[i] = one(out[i] / penalty if out[i] > 0 else out[i] * penalty)
    for i, value in row.penalties.items():
        out[i] = one(out[i] + one(value))
    return out


def kept(logits, row):
    """(token, weight) pairs that the filters leave, in the order of the draw."""
    best = max(logits)
    pairs = [(i, math.exp((x - best) / row.temperature)) for i, x in enumerate(logits)]
    if not (row.top_k or row.top_p < 1 or row.min_p):
        return pairs
    pairs.sort(key=lambda pair: (-logits[pair[0]], pair[0]))
    pairs = pairs[: row.top_k or None]
    total, before, nucleus = sum(w for _, w in pairs), 0.0, []
    for pair in pairs:
        if row.top_p == 1 or before < row.top_p * total:
            nucleus.append(pair)
        before += pair[1]
    return [(i, w) for i, w in nucleus if w >= row.min_p]


def drawn(pairs, share):
    """The token, and how far the share is from a border, of the total."""
    total, running = sum(w for _, w in pairs), 0.0
    for i, weight in pairs:
        if weight > 0 and running + weight > share * total:
            room = min(share * total - running, running + weight - share * total)
            return i, room / total
        running += weight
    raise AssertionError("the share is below 1")


@pytest.mark.parametrize("seed", range(12))
def test_tokens_are_those_of_a_plain_walk(seed):
    rng = random.Random(seed)
    rows = [any_row(VOCAB, 100 * seed + i) for i in range(40)]
    logits = torch.tensor([[rng.randrange(-12, 13) / 4 for _ in range(VOCAB)] for _ in rows])
    found = call("sample", **inputs(logits, rows))
    num_drawn = 0
    for i, row in enumerate(rows):
        values = changed(logits[i].tolist(), row)
        token = values.index(max(values))
        if row.temperature > 0:
            token, room = drawn(kept(values, row), row.share)
            if room < 1e-6:
                continue
            num_drawn += 1
        assert found["token"][i] == token, row
        assert found["status"][i] == 0
        raw = logits[i].log_softmax(-1)
        assert found["logprob"][i] == pytest.approx(float(raw[token]), abs=1e-5)
        best = sorted(range(VOCAB), key=lambda j: (-float(logits[i, j]), j))[: row.num_top]
        ids, logprobs = found["top_ids"][i].tolist(), found["top_logprobs"][i].tolist()
        assert ids[: row.num_top] == best
        assert logprobs[: row.num_top] == pytest.approx(raw[best].tolist(), abs=1e-5)
        assert set(ids[row.num_top :]) <= {-1}
        assert set(logprobs[row.num_top :]) <= {0.0}
    assert num_drawn > 20


def test_bad_rows_say_what_they_are_and_leave_the_others():
    logits = torch.zeros(7, VOCAB)
    logits[1, 5] = math.nan
    logits[2, VOCAB - 1] = INF
    logits[3] = -INF
    logits[4, 7] = 3e38  # finite, but not after the penalty
    rows = [Row(share=0.5, num_top=2) for _ in range(7)]
    rows[1].allowed = {1, 2}
    rows[4].seen, rows[4].repetition = [7], 0.5
    rows[5].allowed = {1}
    rows[5].bias = {1: -INF}
    rows[6].allowed = {64}
    found = call("sample", **inputs(logits, rows))
    assert found["status"].tolist() == [0, 1, 1, 1, 1, 2, 0]
    assert found["token"].tolist() == [33, -1, -1, -1, -1, -1, 64]
    assert found["top_ids"].tolist() == [[0, 1], *[[-1, -1]] * 5, [0, 1]]
    assert not found["logprob"][1:6].any()
    assert not found["top_logprobs"][1:6].any()


def test_no_rows():
    found = call("sample", **inputs(torch.empty(0, VOCAB), []))
    assert [*found["token"].shape, *found["top_ids"].shape] == [0, 0, 0]


def test_equal_tokens_are_cut_by_id():
    logits = torch.zeros(3, VOCAB)
    rows = [
        Row(top_k=8, share=0.99),
        Row(top_p=0.5, share=0.999),
        Row(top_k=8, top_p=0.5, share=0.99),
    ]
    assert call("sample", **inputs(logits, rows))["token"].tolist() == [7, 33, 3]
