"""The references on a GPU give what they give on the CPU: scenarios of the other tests, run on both."""

import pytest
import torch

from dsv4_trt.plugins.ops import OPS
from dsv4_trt.plugins.reference import REFERENCES
from tests.plugins import op_call
from tests.plugins import test_attention as attention
from tests.plugins import test_compress as compress
from tests.plugins import test_dense_ops as dense
from tests.plugins import test_indexer as indexer
from tests.plugins import test_known_answers as known_answers
from tests.plugins import test_moe as moe
from tests.plugins.small_model import CSA, FORMATS, HCA, INDEXER

pytestmark = pytest.mark.gpu
CUTS = [[130, 1, 129], [3], [5, 123, 8]]  # chunks of three sequences
LENGTHS = [sum(cuts) for cuts in CUTS]
MOST_DIFFERENT = 2e-3  # share of bytes or picks that last-bit differences may turn over


def on_both(op):
    """The CPU reference, which also runs on the GPU and compares all outputs."""

    def run(**arguments):
        tensors = {id(v): v for v in arguments.values() if isinstance(v, torch.Tensor)}
        there = {key: tensor.cuda() for key, tensor in tensors.items()}  # pools may be one slab
        moved = {name: there.get(id(value), value) for name, value in arguments.items()}
        found, expected = REFERENCES[op](**moved), REFERENCES[op](**arguments)
        for name, value in expected.items():
            assert found[name].is_cuda
            pair = found[name].cpu(), value
            if value.dtype is torch.int8 and arguments.get("format") == "fp32":
                pair = tuple(pool.view(torch.float32) for pool in pair)
            compare(*pair)
        for output, source in OPS[op].aliases.items():
            assert found[output] is moved[source]
        return expected

    return run


def compare(found, expected):
    if expected.dtype in (torch.int8, torch.int32, torch.float8_e4m3fn):
        different = found.view(torch.uint8) != expected.view(torch.uint8)
        assert different.double().mean() <= MOST_DIFFERENT
    else:
        error = (found.double() - expected.double()).nan_to_num(0).norm()
        limit = 1e-5 if expected.dtype is torch.float32 else 5e-3
        assert error <= limit * expected.double().nan_to_num(0).norm()
        assert torch.equal(found.isnan(), expected.isnan())


@pytest.fixture(autouse=True)
def _both_devices(monkeypatch):
    wrapped = {op: on_both(op) for op, entry in OPS.items() if not entry.collective}
    monkeypatch.setattr(op_call, "REFERENCES", wrapped)


@pytest.mark.parametrize("formats", FORMATS)
@pytest.mark.parametrize("cls", [CSA, HCA, INDEXER])
def test_compress(cls, formats):
    compress.run_in_chunks(compress.Compressor(cls, LENGTHS), formats, CUTS)


@pytest.mark.parametrize("ratio", [0, 4, 128])
def test_attention(ratio):
    attention.run_in_chunks(attention.Attention(ratio, LENGTHS), CUTS)


@pytest.mark.parametrize("format", ["fp4", "fp8", "bf16", "fp32"])
def test_indexer(format):
    score_dtype = "F32" if format == "fp32" else "BF16"
    indexer.test_topk_is_what_a_full_sort_picks(format, score_dtype)


@pytest.mark.parametrize("act", ["none", "act8_128"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dense(act, dtype):
    dense.test_fp8_linear("BF16", act, dtype, (7,))
    dense.test_grouped_linear_gives_each_group_its_heads(act, dtype, "BF16")
    dense.test_inv_rope_quant_is_a_rotation_back_and_a_rounding(dtype)
    known_answers.test_mhc_post_pre_is_post_then_pre()


@pytest.mark.parametrize("format", ["fp4", "fp8"])
@pytest.mark.parametrize(("dtype", "act"), [("F32", "none"), ("BF16", "act8_128")])
def test_moe(format, dtype, act):
    moe.test_experts(format, dtype, act, moe.MAPS[1])
    moe.test_shared_expert_is_clamped("BF16", dtype, act)
    moe.test_router_by_token_id()
