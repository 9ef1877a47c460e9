"""The table of op speeds without a GPU: its cases are calls that the ops take, its eager math is theirs."""

import sys
from pathlib import Path

import pytest
import torch

from dsv4_trt.plugins.cuda_ops import DTYPES, TORCH_DTYPES
from dsv4_trt.plugins.ops import OPS
from dsv4_trt.plugins.reference import REFERENCES

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))
from op_speed_parts import cache_cases, residual_cases, rows, tables

CASES = tables.cases()
SMALLEST = {case.op: case for case in reversed(CASES)}  # the first case of each op
EAGER = {
    "inv_rope_quant": cache_cases._inverse,
    "qkv_rope_insert": cache_cases._insert,
    "indexer_q": cache_cases._indexer_q,
    **{op: (lambda n, op=op: residual_cases._site(op, n, 4096)) for op in residual_cases._SITES},
}


def copied(arguments):
    return {n: v.clone() if isinstance(v, torch.Tensor) else v for n, v in arguments.items()}


def share_of_different(found, expected):
    return (
        (found.contiguous().view(torch.int8) != expected.contiguous().view(torch.int8))
        .double()
        .mean()
    )


def test_every_op_has_cases():
    assert set(SMALLEST) == {name for name, op in OPS.items() if not op.collective}
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("op", sorted(SMALLEST))
def test_case_is_a_call_with_a_floor(op):
    case = SMALLEST[op]
    with torch.device("meta"):
        first = case.make()
        inputs = {n: v for n, v in first.items() if isinstance(v, torch.Tensor)}
        attrs = {n: first[n] for n in OPS[op].attrs}
        shapes = {n: (DTYPES[t.dtype], tuple(t.shape)) for n, t in inputs.items()}
        outputs = {
            name: torch.empty(shape, dtype=TORCH_DTYPES[dtype])
            for name, (dtype, shape) in OPS[op].infer(shapes, attrs).items()
        }
        again = case.sets(first, 2)[1]
    assert rows.case_cost(case, first, outputs).floor_us(rows.H200) > 0
    assert again.keys() == first.keys()
    assert all(again[name] is first[name] for name in case.shared & first.keys())


@pytest.mark.parametrize("prefill", [False, True])
def test_eager_compressor_is_the_op(prefill):
    case = cache_cases._compress(cache_cases.CacheClass.CSA, 64, prefill=prefill)
    first = case.make()
    eager = copied(first)
    REFERENCES["compress"](**first)
    before = eager["pool"].clone()
    case.eager(eager)()
    assert share_of_different(before, first["pool"]) > 1e-3
    for name in ("pool", "state_pool"):
        assert share_of_different(eager[name], first[name]) < 1e-4


@pytest.mark.parametrize("op", EAGER)
def test_eager_math_is_the_op(op):
    case = EAGER[op](8)
    first = case.make()
    eager = copied(first)
    expected = REFERENCES[op](**first)
    found = case.eager(eager)()
    if op == "qkv_rope_insert":
        pairs = [(found, expected["q"]), (eager["pool"], first["pool"])]
    elif op == "inv_rope_quant":
        pairs = [(found[0].view_as(expected["out"]), expected["out"])]
        pairs += [((found[1] + 127).to(torch.int8), expected["scale"])]
    elif op == "indexer_q":
        pairs = [(found[0].view(torch.int8), expected["q"]), (found[2], expected["weights"])]
        pairs += [(found[1].view(torch.int8), expected["q_scale"])]
    else:
        names = ("streams",) if op == "mhc_post" else ("x", "post", "comb")
        found = found if isinstance(found, tuple) else (found,)
        pairs = [(value, expected[name]) for name, value in zip(names, found, strict=True)]
    for value, reference in pairs:
        assert value.shape == reference.shape
        if value.dtype is torch.float32:
            torch.testing.assert_close(value, reference, rtol=2**-8, atol=1e-5)  # a step of bf16
        else:  # sums in another order turn some roundings over
            assert share_of_different(value, reference) < 0.02
