"""Names, dtypes and shapes of the tensors in a rank file: the one list that converter and builder share.

A rank file holds weights in the layout the kernels read: `wq_a` and `wkv` stacked, compressor `wkv`
and `wgate` stacked, each expert's `w1` over `w3` and all experts of the rank in one tensor. fp4 pairs
and e8m0 scales are I8 bytes. What differs between ranks beyond slices is data too (`embed.row_offset`,
`expert_map`), so that one graph serves every rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from dsv4_trt.dtypes import DType
from dsv4_trt.mapping import Mapping
from dsv4_trt.model_spec import MX_BLOCK, QUANT_BLOCK, LayerKind, ModelSpec

LAYOUT_VERSION = 1  # raised whenever a tensor below changes its bytes


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor: name, element type, shape (row-major, contiguous)."""

    name: str
    dtype: DType
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the whole tensor."""
        return prod(self.shape) * self.dtype.itemsize


def rank_tensors(spec: ModelSpec, mapping: Mapping, *, mtp: bool) -> Iterator[TensorSpec]:
    """Every tensor of one rank file, in graph order; the list is the same for all ranks.

    `mtp` adds the MTP block as block `mtp.0`. The mapping must have passed `Mapping.check`.
    """
    vocab = spec.vocab_size // mapping.tp_size
    hidden = spec.hidden_size
    half_rope = spec.qk_rope_head_dim // 2
    yield TensorSpec("embed.weight", DType.BF16, (vocab, hidden))
    yield TensorSpec("embed.row_offset", DType.I32, (1,))
    yield TensorSpec("expert_map", DType.I32, (spec.n_routed_experts,))
    yield TensorSpec("rope.swa.inv_freq", DType.F32, (half_rope,))
    yield TensorSpec("rope.compress.inv_freq", DType.F32, (half_rope,))
    for layer, kind in enumerate(spec.layer_kinds):
        hashed = spec.is_hash_layer(layer)
        yield from _layer(f"layers.{layer}", spec, mapping, kind, hashed=hashed)
    yield from _head("", spec)
    yield TensorSpec("head.weight", DType.BF16, (vocab, hidden))
    if mtp:
        yield from _fp8("mtp.0.e_proj", hidden, hidden)
        yield from _fp8("mtp.0.h_proj", hidden, hidden)
        yield TensorSpec("mtp.0.enorm.weight", DType.BF16, (hidden,))
        yield TensorSpec("mtp.0.hnorm.weight", DType.BF16, (hidden,))
        yield from _layer("mtp.0", spec, mapping, LayerKind.SWA, hashed=False)
        yield from _head("mtp.0.", spec)


def _layer(
    prefix: str, spec: ModelSpec, mapping: Mapping, kind: LayerKind, *, hashed: bool
) -> Iterator[TensorSpec]:
    hidden = spec.hidden_size
    for site in ("attn", "ffn"):
        yield TensorSpec(f"{prefix}.hc_{site}_fn", DType.F32, (spec.hc_mix, spec.hc_mult * hidden))
        yield TensorSpec(f"{prefix}.hc_{site}_base", DType.F32, (spec.hc_mix,))
        yield TensorSpec(f"{prefix}.hc_{site}_scale", DType.F32, (3,))
        yield TensorSpec(f"{prefix}.{site}_norm.weight", DType.BF16, (hidden,))
    yield from _attention(f"{prefix}.attn", spec, mapping, kind)
    yield from _moe(f"{prefix}.ffn", spec, mapping, hashed=hashed)


def _attention(
    prefix: str, spec: ModelSpec, mapping: Mapping, kind: LayerKind
) -> Iterator[TensorSpec]:
    tp, hidden, head_dim = mapping.tp_size, spec.hidden_size, spec.head_dim
    heads = spec.num_attention_heads // tp
    group_rows = spec.o_groups // tp * spec.o_lora_rank
    yield from _fp8(f"{prefix}.wqkv_a", spec.q_lora_rank + head_dim, hidden)
    yield TensorSpec(f"{prefix}.q_norm.weight", DType.BF16, (spec.q_lora_rank,))
    yield TensorSpec(f"{prefix}.kv_norm.weight", DType.BF16, (head_dim,))
    yield from _fp8(f"{prefix}.wq_b", heads * head_dim, spec.q_lora_rank)
    yield TensorSpec(f"{prefix}.attn_sink", DType.F32, (heads,))
    yield from _fp8(f"{prefix}.wo_a", group_rows, spec.group_width)
    yield from _fp8(f"{prefix}.wo_b", hidden, group_rows)
    if kind is not LayerKind.SWA:
        yield from _compressor(f"{prefix}.compressor", kind, hidden, head_dim)
    if kind is LayerKind.CSA:
        index_dim = spec.index_head_dim
        yield from _fp8(f"{prefix}.indexer.wq_b", spec.index_n_heads * index_dim, spec.q_lora_rank)
        yield TensorSpec(
            f"{prefix}.indexer.weights_proj.weight", DType.BF16, (spec.index_n_heads, hidden)
        )
        yield from _compressor(f"{prefix}.indexer.compressor", kind, hidden, index_dim)


def _compressor(prefix: str, kind: LayerKind, hidden: int, width: int) -> Iterator[TensorSpec]:
    lanes = overlap(kind) * width
    yield TensorSpec(f"{prefix}.wkv_gate.weight", DType.BF16, (2 * lanes, hidden))
    yield TensorSpec(f"{prefix}.ape", DType.F32, (int(kind), lanes))
    yield TensorSpec(f"{prefix}.norm.weight", DType.BF16, (width,))


def overlap(kind: LayerKind) -> int:
    """How many entries each token feeds: 2 in CSA (its own group and the next), 1 in HCA."""
    return 2 if kind is LayerKind.CSA else 1


def _moe(prefix: str, spec: ModelSpec, mapping: Mapping, *, hashed: bool) -> Iterator[TensorSpec]:
    hidden, experts = spec.hidden_size, spec.n_routed_experts
    yield TensorSpec(f"{prefix}.gate.weight", DType.BF16, (experts, hidden))
    if hashed:
        shape = (spec.vocab_size, spec.num_experts_per_tok)
        yield TensorSpec(f"{prefix}.gate.tid2eid", DType.I32, shape)
    else:
        yield TensorSpec(f"{prefix}.gate.bias", DType.F32, (experts,))
    local = experts // mapping.moe_ep_size
    width = spec.moe_intermediate_size // mapping.moe_tp_size
    yield from _expert_bank(f"{prefix}.experts.w13", spec.expert_dtype, local, 2 * width, hidden)
    yield from _expert_bank(f"{prefix}.experts.w2", spec.expert_dtype, local, hidden, width)
    shared = spec.moe_intermediate_size * spec.n_shared_experts
    if mapping.shared_expert_is_sharded(spec):
        shared //= mapping.tp_size
    yield from _fp8(f"{prefix}.shared_experts.w13", 2 * shared, hidden)
    yield from _fp8(f"{prefix}.shared_experts.w2", hidden, shared)


def _expert_bank(
    prefix: str, expert_dtype: str, experts: int, rows: int, cols: int
) -> Iterator[TensorSpec]:
    if expert_dtype == "fp4":
        yield TensorSpec(f"{prefix}.weight", DType.I8, (experts, rows, cols // 2))
        yield TensorSpec(f"{prefix}.scale", DType.I8, (experts, rows, cols // MX_BLOCK))
    else:
        blocks = (experts, rows // QUANT_BLOCK, cols // QUANT_BLOCK)
        yield TensorSpec(f"{prefix}.weight", DType.F8_E4M3, (experts, rows, cols))
        yield TensorSpec(f"{prefix}.scale", DType.I8, blocks)


def _head(prefix: str, spec: ModelSpec) -> Iterator[TensorSpec]:
    width = spec.hc_mult * spec.hidden_size
    yield TensorSpec(f"{prefix}hc_head_fn", DType.F32, (spec.hc_mult, width))
    yield TensorSpec(f"{prefix}hc_head_base", DType.F32, (spec.hc_mult,))
    yield TensorSpec(f"{prefix}hc_head_scale", DType.F32, (1,))
    yield TensorSpec(f"{prefix}norm.weight", DType.BF16, (spec.hidden_size,))


def _fp8(prefix: str, rows: int, cols: int) -> Iterator[TensorSpec]:
    yield TensorSpec(f"{prefix}.weight", DType.F8_E4M3, (rows, cols))
    yield TensorSpec(f"{prefix}.scale", DType.I8, (rows // QUANT_BLOCK, cols // QUANT_BLOCK))
