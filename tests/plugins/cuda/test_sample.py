"""Sampling on the GPU: tokens, states and top tokens are those of the reference.

Weights are rounded to 2^-45 of the best one before they are summed, and `exp` may differ from the CPU in
the last bit, so a share within that of a border between two tokens may fall on either side. Wide rows are
compared with the reference on the GPU, whose `exp` is the same; narrow ones have few borders.
"""

import math

import pytest
import torch

from dsv4_trt.plugins.cuda_ops import bind
from tests.plugins.cuda.cuda_call import assert_same_bytes, kernels, on_device, run_both, run_kernel
from tests.plugins.sampling_case import Row, any_row, inputs

pytestmark = pytest.mark.gpu
INF = math.inf


def random_logits(rows, vocab, seed=0):
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * 3


def check(logits, rows, reference_device="cpu"):
    found, expected = run_both("sample", reference_device=reference_device, **inputs(logits, rows))
    assert found["status"].tolist() == expected["status"].tolist()
    different = (found["token"] != expected["token"]).nonzero().flatten().tolist()
    assert not different, [(i, rows[i].share, found["token"][i]) for i in different[:3]]
    assert found["top_ids"].tolist() == expected["top_ids"].tolist()
    for name in ("logprob", "top_logprobs"):  # sums of 2^17 fp32 exponentials in another order
        torch.testing.assert_close(found[name], expected[name], rtol=1e-6, atol=2e-5)
    return found


@pytest.mark.parametrize("vocab", [1, 5, 67, 128, 4096, 5001])
def test_narrow_rows(vocab):
    rows = [any_row(vocab, i) for i in range(100)]
    check(random_logits(len(rows), vocab), rows)


@pytest.mark.parametrize("vocab", [129280, 200001])
def test_wide_rows(vocab):
    rows = [any_row(vocab, i) for i in range(48)]
    check(random_logits(len(rows), vocab), rows, "cuda")


@pytest.mark.parametrize("vocab", [67, 1024])
def test_ties(vocab):
    """Values from a few, zeros of both signs among them."""
    values = torch.tensor([-2.5, -1.0, -0.0, 0.0, 0.5, 2.0])
    rows = [any_row(vocab, 1000 + i) for i in range(200)]
    pick = torch.randint(6, (len(rows), vocab), generator=torch.Generator().manual_seed(1))
    check(values[pick], rows)


def test_all_tokens_equal():
    vocab = 129280
    rows = [
        Row(temperature=0, num_top=20),
        Row(top_k=7, share=0.999),
        Row(share=0.5),
        Row(top_p=0.25, share=1 - 2.0**-53),
        Row(min_p=1.0, share=0.75),
    ]
    found = check(torch.zeros(5, vocab), rows, "cuda")
    assert found["token"].tolist() == [0, 6, vocab // 2, vocab // 4 - 1, vocab * 3 // 4]


def test_extreme_temperatures_and_shares():
    rows = [
        Row(temperature=t, top_k=k, share=s)
        for t in (1e-45, 2.0**-126, 100.0)
        for k in (0, 40)
        for s in (0.0, 1 - 2.0**-53)
    ]
    check(random_logits(len(rows), 1000), rows)


def test_every_token_can_be_reported():
    rows = [Row(temperature=0, num_top=n) for n in (0, 1, 1000, 37)]
    logits = random_logits(4, 1000).round()
    logits[2, 10:30] = -INF
    check(logits, rows)


def test_bad_rows_leave_the_others_alone():
    vocab = 5000
    logits = random_logits(7, vocab)
    logits[1, 5] = math.nan
    logits[2, vocab - 1] = INF
    logits[3] = -INF
    logits[4, 7] = 3e38
    rows = [any_row(vocab, i) for i in range(7)]
    rows[4] = Row(seen=[7], repetition=0.5, num_top=3)
    rows[5] = Row(allowed={1, 4999}, bias={1: -INF, 4999: -INF})
    found = check(logits, rows)
    assert found["status"].tolist() == [0, 1, 1, 1, 1, 2, 0]


def test_a_row_does_not_depend_on_its_batch():
    vocab = 129280
    rows, logits = [any_row(vocab, 50 + i) for i in range(20)], random_logits(20, vocab, 2)
    together = run_kernel("sample", **inputs(logits, rows))
    for i in range(20):
        alone = run_kernel("sample", **inputs(logits[i : i + 1], rows[i : i + 1]))
        for name, value in alone.items():
            same = together[name][i, : rows[i].num_top] if "top" in name else together[name][i]
            assert value[0].tolist() == same.tolist(), (name, i)


def test_hostile_ids_change_nothing():
    vocab = 1000
    logits = random_logits(2, vocab)
    plain = run_kernel("sample", **inputs(logits, [Row(share=0.3), Row(temperature=0)]))
    wild = {-1: 9.0, vocab: 9.0, 2**31 - 1: 9.0, -(2**31): 9.0}
    rows = [Row(share=0.3, bias=wild, seen=[*wild], repetition=2.0, penalties=wild)]
    arguments = inputs(logits, [*rows, Row(temperature=0)])
    arguments["limits"][1, 1] = 2**31 - 1
    found = run_kernel("sample", **arguments)
    assert found["token"].tolist() == plain["token"].tolist()
    assert found["status"].tolist() == [0, 0]


def test_no_rows():
    found = run_kernel("sample", **inputs(torch.empty(0, 67), []))
    assert found["token"].shape == (0,)


def test_a_captured_call_follows_its_inputs():
    vocab = 129280
    rows = [any_row(vocab, 70 + i) for i in range(8)]
    first, second = random_logits(8, vocab, 3), random_logits(8, vocab, 4)
    arguments = on_device(inputs(first, rows))
    call = bind(_library(), "sample", poison=True, **arguments)
    call.launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call.launch()
    for logits in (second, first):
        arguments["logits"].copy_(logits)
        graph.replay()
        torch.cuda.synchronize()
        expected = run_kernel("sample", **inputs(logits, rows))
        for name, value in call.outputs.items():
            assert_same_bytes(value.cpu(), expected[name].cpu())


def _library():
    return kernels()["sample"].args[0]
