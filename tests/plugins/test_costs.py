"""Floors of ops: bytes and arithmetic counted by hand for small and for published shapes."""

import pytest

from dsv4_trt.dtypes import DType
from dsv4_trt.plugins.costs import H200, Cost, Span, call_cost

BF16, F8, I8, F32, I32 = DType.BF16, DType.F8_E4M3, DType.I8, DType.F32, DType.I32


def test_a_decode_linear_is_its_weight():
    """Flash's wo_b at one token: 33.6 MB and 8.1 us."""
    inputs = {"x": (BF16, (1, 8192)), "weight": (F8, (4096, 8192)), "scale": (I8, (32, 64))}
    cost = call_cost("linear", inputs, {"out": (BF16, (1, 4096))}, {"act": "act8_128"}, [])
    assert cost == Cost(4096 * 8192 + 32 * 64 + 2 * (8192 + 4096), 2 * 4096 * 8192, True)
    assert cost.floor_us(H200) == pytest.approx(8.09, abs=0.01)


def test_a_prefill_linear_is_its_arithmetic():
    inputs = {"x": (BF16, (8192, 8192)), "weight": (F8, (4096, 8192)), "scale": (I8, (32, 64))}
    cost = call_cost("linear", inputs, {"out": (BF16, (8192, 4096))}, {"act": "act8_128"}, [])
    assert cost.floor_us(H200) == pytest.approx(357, abs=1)


def test_experts_read_only_what_is_picked():
    inputs = {
        "x": (BF16, (1, 4096)),
        "expert_ids": (I32, (1, 6)),
        "weights": (F32, (1, 6)),
        "expert_map": (I32, (256,)),
        "w13": (I8, (256, 4096, 2048)),
        "w13_scale": (I8, (256, 4096, 128)),
        "w2": (I8, (256, 4096, 1024)),
        "w2_scale": (I8, (256, 4096, 64)),
    }
    attrs = {"width": 2048, "act": "act8_128"}
    cost = call_cost("experts", inputs, {"out": (F32, (1, 4096))}, attrs, [])
    one = 3 * 4096 * 2048 * (1 / 2 + 1 / 32)
    assert cost.nbytes == pytest.approx(6 * one, rel=0.01)
    assert cost.flops == 6 * 6 * 4096 * 2048


@pytest.mark.parametrize(
    ("ratio", "picks", "spans", "keys", "read"),
    [
        (0, None, [Span(1000, 1)], 128, 127),
        (4, 512, [Span(8192, 1)], 128 + 512, 127 + 512),
        (4, 512, [Span(400, 1)], 128 + 100, 127 + 100),
        (128, None, [Span(8192, 1), Span(256, 1)], 128 + 64 + 128 + 2, 127 + 64 + 127 + 2),
        (128, None, [Span(256, 2)], 2 * 128 + 1 + 2, 127 + 2),
        (0, None, [Span(3, 3)], 1 + 2 + 3, 0),
    ],
)
def test_attention_counts_keys(ratio, picks, spans, keys, read):
    rows = sum(span.fed for span in spans)
    q = (BF16, (rows, 64, 512))
    inputs = {"q": q, "kv": (BF16, (rows, 512)), "pool": (I8, (9, 37440))}
    if picks:
        inputs["topk"] = (I32, (rows, picks))
    attrs = {"ratio": ratio, "window": 128, "format": "fp8"}
    cost = call_cost("sparse_attention", inputs, {"out": q}, attrs, spans)
    assert cost.flops == 4 * 64 * 512 * keys
    dense = rows * (2 * 64 * 512 * 2 + 512 * 2 + 4 * (picks or 0))
    assert cost.nbytes == dense + read * 584


def test_the_indexer_scores_only_what_it_must_choose_from():
    inputs = {"q": (I8, (1, 64, 64)), "q_scale": (I8, (1, 64, 4)), "weights": (F32, (1, 64))}
    attrs = {"ratio": 4, "topk": 512, "head_dim": 128, "format": "fp4"}
    out = {"topk": (I32, (1, 512))}
    few = call_cost("index_topk", inputs, out, attrs, [Span(2048, 1)])
    many = call_cost("index_topk", inputs, out, attrs, [Span(4096, 1)])
    assert few.flops == 0
    assert many.flops == 2 * 64 * 128 * 1024
    assert many.nbytes - few.nbytes == 1024 * 68


def test_gathers_read_the_rows_they_take():
    inputs = {"token_ids": (I32, (3,)), "weight": (BF16, (129280, 256)), "row_offset": (I32, (1,))}
    cost = call_cost("embed", inputs, {"out": (BF16, (3, 256))}, {}, [])
    assert cost.nbytes == 3 * 4 + 4 + 2 * 3 * 256 * 2
