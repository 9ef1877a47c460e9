"""Attention of one layer: window keys, compressed entries, indexer picks, sparse attention, output.

The branches (window insert, main compression, indexer) touch different pools and meet only in
`sparse_attention`, so an engine may run them side by side.
"""

from __future__ import annotations

from dsv4_trt.builder.model.layer import Layer
from dsv4_trt.builder.model.linear import bf16_linear, fp8_linear, reduced_linear
from dsv4_trt.builder.network import Network
from dsv4_trt.dtypes import DType
from dsv4_trt.kv_layout import CacheClass
from dsv4_trt.model_spec import LayerKind
from dsv4_trt.rank_tensors import overlap


def attention(net: Network, layer: Layer, x: str) -> str:
    """`x [num_tokens, hidden]`, normalised, to the attention output of the same shape."""
    spec, at = net.spec, f"{layer.prefix}.attn"
    stacked = fp8_linear(net, x, f"{at}.wqkv_a")
    norms = net.op(
        "qkv_norm",
        f"{at}.qkv_norm",
        {
            "x": stacked,
            "q_weight": net.weight(f"{at}.q_norm.weight"),
            "kv_weight": net.weight(f"{at}.kv_norm.weight"),
        },
        eps=spec.rms_norm_eps,
    )
    rotated = _rotate_and_insert(
        net, layer, fp8_linear(net, norms["qr"], f"{at}.wq_b"), norms["kv"]
    )
    inputs = {
        "q": rotated["q"],
        "kv": rotated["kv"],
        "sinks": net.weight(f"{at}.attn_sink"),
        "inv_freq": _inv_freq(net, layer.kind),
        **_step(net),
        "swa_block_table": net.input(f"block_table.{layer.window_class}"),
        "swa_pool": rotated["pool"],
    }
    if layer.kind is LayerKind.CSA:
        inputs["topk"] = _index(net, layer, x, norms["qr"])
    compressed = CacheClass.CSA if layer.kind is LayerKind.CSA else CacheClass.HCA
    if layer.kind is not LayerKind.SWA:
        inputs["pool"] = _compress(net, layer, x, f"{at}.compressor", compressed)
        inputs["block_table"] = net.input(f"block_table.{compressed}")
    quantized = net.precision.wo_a_act == "act8_128"
    entries = 0 if layer.kind is LayerKind.SWA else net.layout[compressed].entries_per_page
    out = net.op(
        "sparse_attention",
        f"{at}.attention",
        inputs,
        ratio=int(layer.kind),
        sm_scale=spec.head_dim**-0.5,
        window=spec.sliding_window,
        format=net.precision.kv,
        prob_dtype=str(net.precision.prob_dtype),
        inverse_rope=not quantized,
        swa_layer_row=_row(net, layer.window_class, layer),
        swa_entries_per_page=net.layout[layer.window_class].entries_per_page,
        swa_window_pages=net.layout[layer.window_class].window_pages,
        layer_row=0 if layer.kind is LayerKind.SWA else _row(net, compressed, layer),
        entries_per_page=entries,
    )["out"]
    heads = {"x": out}
    if quantized:
        rotated = net.op(
            "inv_rope_quant",
            f"{at}.inv_rope",
            {"x": out, "inv_freq": inputs["inv_freq"], "positions": inputs["positions"]},
        )
        heads = {"x": rotated["out"], "x_scale": rotated["scale"]}
    grouped = net.op(
        "grouped_linear",
        f"{at}.wo_a",
        {
            **heads,
            "weight": net.weight(f"{at}.wo_a.weight"),
            "scale": net.weight(f"{at}.wo_a.scale"),
        },
        groups=spec.o_groups // net.mapping.tp_size,
        act=net.precision.wo_a_act,
        out_dtype=str(net.precision.dtype),
    )["out"]
    return reduced_linear(net, grouped, f"{at}.wo_b")


def _inv_freq(net: Network, kind: LayerKind) -> str:
    """Rotation frequencies of a layer kind: everything in a layer uses the same ones."""
    return net.weight("rope.swa.inv_freq" if kind is LayerKind.SWA else "rope.compress.inv_freq")


def _rotate_and_insert(net: Network, layer: Layer, q: str, kv: str) -> dict[str, str]:
    cache_class = layer.window_class
    return net.op(
        "qkv_rope_insert",
        f"{layer.prefix}.attn.insert",
        {
            "q": q,
            "kv": kv,
            "inv_freq": _inv_freq(net, layer.kind),
            "positions": net.input("positions"),
            "seq_ids": net.input("seq_ids"),
            "table_rows": net.input("table_rows"),
            "slot_mapping": net.input(f"slot_mapping.{cache_class}"),
            "block_table": net.input(f"block_table.{cache_class}"),
            "pool": net.pool(cache_class, layer.index),
        },
        num_heads=net.spec.num_attention_heads // net.mapping.tp_size,
        D=net.spec.head_dim,
        eps=net.spec.rms_norm_eps,
        format=net.precision.kv,
        layer_row=_row(net, cache_class, layer),
        entries_per_page=net.layout[cache_class].entries_per_page,
        window_pages=net.layout[cache_class].window_pages,
    )


def _compress(net: Network, layer: Layer, x: str, prefix: str, cache_class: CacheClass) -> str:
    """Compress this step's tokens into entries of `cache_class`; returns the updated pool."""
    spec = net.spec
    state_class = CacheClass(f"{cache_class}_state")
    state, kv = net.layout[state_class], net.layout[cache_class]
    index = cache_class is CacheClass.INDEXER
    return net.op(
        "compress",
        prefix,
        {
            "kv_gate": bf16_linear(net, x, f"{prefix}.wkv_gate", out_dtype=DType.F32),
            "ape": net.weight(f"{prefix}.ape"),
            "norm_weight": net.weight(f"{prefix}.norm.weight"),
            "inv_freq": _inv_freq(net, layer.kind),
            **_step(net, decodes=False),
            "state_slot_mapping": net.input(f"slot_mapping.{state_class}"),
            "state_block_table": net.input(f"block_table.{state_class}"),
            "state_pool": net.pool(state_class, layer.index),
            "slot_mapping": net.input(f"slot_mapping.{cache_class}"),
            "block_table": net.input(f"block_table.{cache_class}"),
            "pool": net.pool(cache_class, layer.index),
        },
        ratio=int(layer.kind),
        overlap=overlap(layer.kind),
        width=spec.index_head_dim if index else spec.head_dim,
        hadamard=index,
        act_dtype=str(net.precision.dtype),
        format=kv.format,
        eps=spec.rms_norm_eps,
        layer_row=_row(net, cache_class, layer),
        entries_per_page=kv.entries_per_page,
        state_entries_per_page=state.entries_per_page,
        state_window_pages=state.window_pages,
    )["pool"]


def _index(net: Network, layer: Layer, x: str, qr: str) -> str:
    """The indexer: its own compressed keys, its queries, and the best entries of each token."""
    spec, at = net.spec, f"{layer.prefix}.attn.indexer"
    pool = _compress(net, layer, x, f"{at}.compressor", CacheClass.INDEXER)
    head_dim, heads, format = spec.index_head_dim, spec.index_n_heads, net.precision.indexer
    queries = net.op(
        "indexer_q",
        f"{at}.q",
        {
            "q": fp8_linear(net, qr, f"{at}.wq_b"),
            "weights": bf16_linear(net, x, f"{at}.weights_proj", out_dtype=net.precision.dtype),
            "inv_freq": _inv_freq(net, layer.kind),
            "positions": net.input("positions"),
        },
        num_heads=heads,
        head_dim=head_dim,
        row=head_dim // 2 if format == "fp4" else head_dim,
        format=format,
        scale=head_dim**-0.5 * heads**-0.5,
    )
    return net.op(
        "index_topk",
        f"{at}.topk",
        {
            **queries,
            **_step(net),
            "block_table": net.input(f"block_table.{CacheClass.INDEXER}"),
            "pool": pool,
        },
        topk=spec.index_topk,
        ratio=int(layer.kind),
        head_dim=head_dim,
        format=format,
        score_dtype=str(net.precision.score_dtype),
        layer_row=_row(net, CacheClass.INDEXER, layer),
        entries_per_page=net.layout[CacheClass.INDEXER].entries_per_page,
    )["topk"]


def _step(net: Network, *, decodes: bool = True) -> dict[str, str]:
    """The step inputs that say which row is which token of which sequence."""
    names = ["positions", "seq_ids", "query_start", "seq_lens", "table_rows"]
    if decodes:
        names.append("decode_carrier")
    return {name: net.input(name) for name in names}


def _row(net: Network, cache_class: CacheClass, layer: Layer) -> int:
    return net.layout[cache_class].layers.index(layer.index)
