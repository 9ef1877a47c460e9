"""Names, dtypes and shapes of the tensors in an official DeepSeek-V4 checkpoint.

Two layouts exist. Instruct: routed experts are packed fp4 with e8m0 scales per 32 inputs, other
quantized weights e4m3 with e8m0 scales per 128x128 block. Base: experts are e4m3 too, and every scale is
a float32 power of two. Base files may also carry copies of the shared embedding and head under `mtp.0`.
"""

from __future__ import annotations

from collections.abc import Iterator

from dsv4_trt.dtypes import DType
from dsv4_trt.model_spec import MX_BLOCK, QUANT_BLOCK, LayerKind, ModelSpec
from dsv4_trt.rank_tensors import TensorSpec, overlap

MTP_COPIES = {"mtp.0.emb.tok_emb.weight": "embed.weight", "mtp.0.head.weight": "head.weight"}


def official_tensors(spec: ModelSpec, *, scale_dtype: DType, mtp: bool) -> Iterator[TensorSpec]:
    """Every tensor of an official checkpoint, MTP copies of shared tensors not included.

    `spec.expert_dtype` picks the expert layout, `scale_dtype` (F8_E8M0 or F32) that of block scales.
    """
    yield TensorSpec("embed.weight", DType.BF16, (spec.vocab_size, spec.hidden_size))
    for layer, kind in enumerate(spec.layer_kinds):
        hashed = spec.is_hash_layer(layer)
        yield from _block(f"layers.{layer}", spec, kind, scale_dtype, hashed=hashed)
    yield from _head("", spec)
    yield TensorSpec("head.weight", DType.BF16, (spec.vocab_size, spec.hidden_size))
    if mtp:
        hidden = spec.hidden_size
        yield from fp8("mtp.0.e_proj", hidden, hidden, scale_dtype)
        yield from fp8("mtp.0.h_proj", hidden, hidden, scale_dtype)
        yield TensorSpec("mtp.0.enorm.weight", DType.BF16, (hidden,))
        yield TensorSpec("mtp.0.hnorm.weight", DType.BF16, (hidden,))
        yield from _block("mtp.0", spec, LayerKind.SWA, scale_dtype, hashed=False)
        yield from _head("mtp.0.", spec)


def fp8(prefix: str, rows: int, cols: int, scale_dtype: DType) -> Iterator[TensorSpec]:
    """An e4m3 weight and its 128x128 block scales."""
    yield TensorSpec(f"{prefix}.weight", DType.F8_E4M3, (rows, cols))
    blocks = (-(-rows // QUANT_BLOCK), -(-cols // QUANT_BLOCK))
    yield TensorSpec(f"{prefix}.scale", scale_dtype, blocks)


def _block(
    prefix: str, spec: ModelSpec, kind: LayerKind, scale_dtype: DType, *, hashed: bool
) -> Iterator[TensorSpec]:
    hidden = spec.hidden_size
    for site in ("attn", "ffn"):
        width = spec.hc_mult * hidden
        yield TensorSpec(f"{prefix}.hc_{site}_fn", DType.F32, (spec.hc_mix, width))
        yield TensorSpec(f"{prefix}.hc_{site}_base", DType.F32, (spec.hc_mix,))
        yield TensorSpec(f"{prefix}.hc_{site}_scale", DType.F32, (3,))
        yield TensorSpec(f"{prefix}.{site}_norm.weight", DType.BF16, (hidden,))
    yield from _attention(f"{prefix}.attn", spec, kind, scale_dtype)
    yield from _moe(f"{prefix}.ffn", spec, scale_dtype, hashed=hashed)


def _attention(
    prefix: str, spec: ModelSpec, kind: LayerKind, scale_dtype: DType
) -> Iterator[TensorSpec]:
    hidden, heads, head_dim = spec.hidden_size, spec.num_attention_heads, spec.head_dim
    group_rows = spec.o_groups * spec.o_lora_rank
    yield TensorSpec(f"{prefix}.attn_sink", DType.F32, (heads,))
    yield from fp8(f"{prefix}.wq_a", spec.q_lora_rank, hidden, scale_dtype)
    yield TensorSpec(f"{prefix}.q_norm.weight", DType.BF16, (spec.q_lora_rank,))
    yield from fp8(f"{prefix}.wq_b", heads * head_dim, spec.q_lora_rank, scale_dtype)
    yield from fp8(f"{prefix}.wkv", head_dim, hidden, scale_dtype)
    yield TensorSpec(f"{prefix}.kv_norm.weight", DType.BF16, (head_dim,))
    yield from fp8(f"{prefix}.wo_a", group_rows, spec.group_width, scale_dtype)
    yield from fp8(f"{prefix}.wo_b", hidden, group_rows, scale_dtype)
    if kind is not LayerKind.SWA:
        yield from _compressor(f"{prefix}.compressor", kind, hidden, head_dim)
    if kind is LayerKind.CSA:
        index = f"{prefix}.indexer"
        rows = spec.index_n_heads * spec.index_head_dim
        yield from fp8(f"{index}.wq_b", rows, spec.q_lora_rank, scale_dtype)
        shape = (spec.index_n_heads, hidden)
        yield TensorSpec(f"{index}.weights_proj.weight", DType.BF16, shape)
        yield from _compressor(f"{index}.compressor", kind, hidden, spec.index_head_dim)


def _compressor(prefix: str, kind: LayerKind, hidden: int, width: int) -> Iterator[TensorSpec]:
    lanes = overlap(kind) * width
    yield TensorSpec(f"{prefix}.ape", DType.F32, (int(kind), lanes))
    yield TensorSpec(f"{prefix}.wkv.weight", DType.BF16, (lanes, hidden))
    yield TensorSpec(f"{prefix}.wgate.weight", DType.BF16, (lanes, hidden))
    yield TensorSpec(f"{prefix}.norm.weight", DType.BF16, (width,))


def _moe(prefix: str, spec: ModelSpec, scale_dtype: DType, *, hashed: bool) -> Iterator[TensorSpec]:
    hidden, width = spec.hidden_size, spec.moe_intermediate_size
    yield TensorSpec(f"{prefix}.gate.weight", DType.BF16, (spec.n_routed_experts, hidden))
    if hashed:
        shape = (spec.vocab_size, spec.num_experts_per_tok)
        yield TensorSpec(f"{prefix}.gate.tid2eid", DType.I64, shape)
    else:
        yield TensorSpec(f"{prefix}.gate.bias", DType.F32, (spec.n_routed_experts,))
    for expert in range(spec.n_routed_experts):
        at = f"{prefix}.experts.{expert}"
        for name, rows, cols in (
            ("w1", width, hidden),
            ("w2", hidden, width),
            ("w3", width, hidden),
        ):
            if spec.expert_dtype == "fp4":
                yield from fp4(f"{at}.{name}", rows, cols)
            else:
                yield from fp8(f"{at}.{name}", rows, cols, scale_dtype)
    shared = width * spec.n_shared_experts
    at = f"{prefix}.shared_experts"
    yield from fp8(f"{at}.w1", shared, hidden, scale_dtype)
    yield from fp8(f"{at}.w2", hidden, shared, scale_dtype)
    yield from fp8(f"{at}.w3", shared, hidden, scale_dtype)


def fp4(prefix: str, rows: int, cols: int) -> Iterator[TensorSpec]:
    """A packed e2m1 weight (low nibble first) and its e8m0 scales, one per row and 32 inputs."""
    yield TensorSpec(f"{prefix}.weight", DType.I8, (rows, cols // 2))
    yield TensorSpec(f"{prefix}.scale", DType.F8_E8M0, (rows, cols // MX_BLOCK))


def _head(prefix: str, spec: ModelSpec) -> Iterator[TensorSpec]:
    width = spec.hc_mult * spec.hidden_size
    yield TensorSpec(f"{prefix}hc_head_fn", DType.F32, (spec.hc_mult, width))
    yield TensorSpec(f"{prefix}hc_head_base", DType.F32, (spec.hc_mult,))
    yield TensorSpec(f"{prefix}hc_head_scale", DType.F32, (1,))
    yield TensorSpec(f"{prefix}norm.weight", DType.BF16, (spec.hidden_size,))
