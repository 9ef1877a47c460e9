"""Every module against what DeepSeek's own code computed from the same inputs, exact and quantized.

Exact limits are the noise between float32 and float64 runs of that code. In the quantized mode a last-bit
difference can become a whole quantization step, so limits there are means over positions.
"""

import json
from functools import cache

import pytest
import torch

from dsv4_trt.kv_layout import CacheClass, solve
from dsv4_trt.plugins.reference import pages
from dsv4_trt.plugins.reference.indexer import index_scores, query_values
from dsv4_trt.plugins.reference.rope import rotate_tail
from dsv4_trt.precision import Precision
from tests.golden_data import golden_file, golden_tensors
from tests.plugins.checkpoint_weights import CheckpointWeights
from tests.plugins.modules import AttentionModule, moe
from tests.plugins.op_call import call, call_all
from tests.plugins.paged import PagedSequences
from tests.plugins.small_model import entry_format

RATIOS = {"tiny-a": (0, 4, 128, 4), "tiny-b": (128, 128, 4), "tiny-base": (0, 4, 128)}
PRECISIONS = {"exact": Precision.exact(), "sim": Precision.official()}
ALL = [
    (m, mode, layer) for m, r in RATIOS.items() for mode in PRECISIONS for layer in range(len(r))
]
# the exact file of tiny-base keeps the inputs of some positions only
WHOLE = [case for case in ALL if case[:2] != ("tiny-base", "exact")]
INDEXED = [(m, mode, layer) for m, mode, layer in WHOLE if RATIOS[m][layer] == 4]
SIM_LIMITS = {  # mean relative L2
    "attn_q": 1e-3,
    "window_kv": 1e-4,
    "attn_o": 2e-3,
    "attn_out": 0.01,
    "compressed": 2e-4,
    "index_keys": 2e-3,
    "shared_out": 1e-4,
    "moe_out": 0.002,
}


@cache
def golden(model, mode):
    return golden_tensors(model, f"{mode}_intermediates_len129.safetensors")


@cache
def weights_of(model):
    return CheckpointWeights(golden_file(model, "checkpoint"))


@cache
def token_ids(model):
    prompts = json.loads(golden_file(model, "manifest.json").read_text())["prompts"]
    ids = next(p["ids"] for p in prompts if p["name"] == "len129")
    return torch.tensor(ids, dtype=torch.int32)


class Layer:
    """The stored tensors of one layer, and comparison at the limits of their mode."""

    def __init__(self, model, mode, layer):
        self.tensors, self.prefix, self.exact = (
            golden(model, mode),
            f"layers.{layer}.",
            mode == "exact",
        )

    def __getitem__(self, name):
        return self.tensors[self.prefix + name]

    def rows(self, name, positions="positions"):
        """A tensor at the positions that every file keeps."""
        stored = self[name]
        kept = self.tensors[positions]
        return stored if len(stored) == len(kept) else stored[kept]

    def check(self, name, found, stored=None):
        stored = self[name] if stored is None else stored
        for positions in ("positions", "positions_qo"):
            if len(stored) < len(found) and len(stored) == len(self.tensors[positions]):
                found = found[self.tensors[positions]]
        difference = (found.double() - stored.double()).flatten(1).norm(dim=1)
        error = difference / stored.double().flatten(1).norm(dim=1)
        if self.exact:
            assert error.mean() < 2e-6, name
            assert error.max() < 4e-6, name
        else:
            assert error.mean() < SIM_LIMITS.get(name, 1e-5), name


def attention_of(model, mode, layer, chunks):
    """Run one layer's attention over the stored input; returns module, last step and output."""
    weights, precision = weights_of(model), PRECISIONS[mode]
    paged = PagedSequences(solve(weights.spec, precision.kv, precision.indexer), 1, 129)
    module = AttentionModule(weights, precision, paged, layer)
    outputs, x = [], Layer(model, mode, layer)["attn_normed"]
    for count, part in zip(chunks, torch.split(x, chunks), strict=True):
        step = paged.step([count])
        outputs.append(module(part, step))
        paged.commit(step)
    return module, step, torch.cat(outputs)


def stored_entries(module, step, cls, count):
    kv = module.paged.layout[cls]
    table_row = step.tables[cls][module.row(cls), step.table_rows[0]]
    place = pages.entry_places(table_row, torch.arange(count), kv.entries_per_page)
    return pages.read(module.paged.pool(cls), place, entry_format(kv), kv.entries_per_page)


@pytest.mark.parametrize(("model", "mode", "layer"), WHOLE)
def test_attention(model, mode, layer):
    module, step, out = attention_of(model, mode, layer, [129])
    stored, seen = Layer(model, mode, layer), module.seen
    stored.check("attn_q", seen["q"])
    stored.check("window_kv", seen["kv"])
    stored.check("attn_o", rotate_tail(seen["out"], step.positions, module.inv_freq))
    stored.check("attn_out", out)
    if RATIOS[model][layer]:
        entries = stored_entries(module, step, module.entries, len(stored["compressed"]))
        stored.check("compressed", entries)


@pytest.mark.parametrize(("model", "mode", "layer"), [c for c in WHOLE if c[1] == "exact"])
@pytest.mark.parametrize("chunks", [(50, 1, 77, 1), (3, 126), (1,) * 9 + (120,)])
def test_attention_in_chunks(model, mode, layer, chunks):
    _, _, out = attention_of(model, mode, layer, chunks)
    Layer(model, mode, layer).check("attn_out", out)


@pytest.mark.parametrize(("model", "mode", "layer"), INDEXED)
def test_indexer(model, mode, layer):
    stored = Layer(model, mode, layer)
    module, step, _ = attention_of(model, mode, layer, [129])
    keys = stored_entries(module, step, CacheClass.INDEXER, len(stored["index_keys"]))
    stored.check("index_keys", keys)
    dtype = torch.float32 if stored.exact else torch.bfloat16
    queries = query_values(*module.seen["index_q"])
    scores = index_scores(queries, module.seen["index_weights"], keys, dtype)
    expected = stored["index_scores"].float()
    visible = expected > float("-inf")
    difference = (scores - expected)[visible].abs()
    if stored.exact:
        assert difference.max() < 5e-5  # the smallest margin of a pick is 2.3e-4
    else:
        assert difference.norm() / expected[visible].norm() < 2e-3
    found, wanted = module.seen["topk"].tolist(), stored["index_topk"].tolist()
    same = [set(a) - {-1} == set(b) - {-1} for a, b in zip(found, wanted, strict=True)]
    assert sum(same) >= (129 if stored.exact else 127)


@pytest.mark.parametrize(("model", "mode", "layer"), WHOLE)
def test_moe(model, mode, layer):
    stored = Layer(model, mode, layer)
    out = moe(weights_of(model), PRECISIONS[mode], layer, stored["ffn_normed"], token_ids(model))
    order, wanted = out["expert_ids"].sort(1), stored["router_ids"].sort(1)
    assert torch.equal(order.values, wanted.values)
    found = out["weights"].gather(1, order.indices)
    expected = stored["router_weights"].gather(1, wanted.indices)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=2e-6)
    stored.check("shared_out", out["shared"])
    stored.check("moe_out", out["out"])


@pytest.mark.parametrize(("model", "mode", "layer"), ALL)
def test_hyper_connections(model, mode, layer):
    weights, stored = weights_of(model), Layer(model, mode, layer)
    spec = weights.spec
    streams = {"attn": stored.rows("stream_in"), "ffn": stored.rows("attn_hc_post")}
    for site, entered in streams.items():
        names = {n: weights[f"layers.{layer}.hc_{site}_{n}"] for n in ("fn", "base", "scale")}
        out = call_all(
            "mhc_pre",
            streams=entered,
            **names,
            norm_weight=weights[f"layers.{layer}.{site}_norm.weight"],
            eps=spec.rms_norm_eps,
            hc_eps=spec.hc_eps,
            iters=spec.hc_sinkhorn_iters,
        )
        for name, value in {"normed": "x", "hc_post_w": "post", "hc_comb": "comb"}.items():
            stored.check(f"{site}_{name}", out[value], stored.rows(f"{site}_{name}"))
    mixed = call(
        "mhc_post",
        y=stored.rows("attn_out"),
        streams=streams["attn"],
        post=stored.rows("attn_hc_post_w"),
        comb=stored.rows("attn_hc_comb"),
    )
    stored.check("attn_hc_post", mixed, streams["ffn"])


@pytest.mark.parametrize("mode", PRECISIONS)
@pytest.mark.parametrize("model", RATIOS)
def test_embedding_fills_the_streams(model, mode):
    weights, stored = weights_of(model), Layer(model, mode, 0)
    ids = token_ids(model)[golden(model, mode)["positions"]]
    embedded = call(
        "embed",
        token_ids=ids,
        weight=weights["embed.weight"],
        row_offset=torch.zeros(1, dtype=torch.int32),
        out_dtype=str(PRECISIONS[mode].dtype),
    )
    streams = call("expand_streams", x=embedded, hc_mult=weights.spec.hc_mult)
    assert torch.equal(streams, stored.rows("stream_in"))


@pytest.mark.parametrize("model", RATIOS)
def test_head_gives_the_exact_logits(model):
    weights, tensors = weights_of(model), golden(model, "exact")
    streams, positions = tensors["final_stream"], tensors["positions"]
    rows = positions if len(streams) == 129 else torch.arange(len(positions))
    x = call(
        "mhc_head",
        streams=streams,
        rows=rows.int(),
        fn=weights["hc_head_fn"],
        base=weights["hc_head_base"],
        scale=weights["hc_head_scale"],
        norm_weight=weights["norm.weight"],
        eps=weights.spec.rms_norm_eps,
        hc_eps=weights.spec.hc_eps,
    )
    head = {"weight": weights["head.weight"], "weight_format": "bf16", "act": "none"}
    logits = call("linear", x=x, **head, out_dtype="F32")
    expected = golden_tensors(model, "exact.safetensors")["len129.logits"][positions]
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)
