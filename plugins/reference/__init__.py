"""Every op of the table in plain torch: the reference for kernels, and the CPU implementation.

`REFERENCES[op](**inputs, **attrs)` takes tensors by the op's parameter names and attributes as plain
values, and returns the outputs by name. Aliased outputs are the input tensor, updated in place. A
collective op takes and returns one tensor per rank. Shapes and dtypes are the table's and are not
checked again here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dsv4_trt.plugins.reference.attention import inv_rope_quant, sparse_attention
from dsv4_trt.plugins.reference.attention_inputs import qkv_rope_insert
from dsv4_trt.plugins.reference.collectives import all_gather, all_reduce
from dsv4_trt.plugins.reference.compress import compress
from dsv4_trt.plugins.reference.embedding import embed
from dsv4_trt.plugins.reference.indexer import index_topk, indexer_q
from dsv4_trt.plugins.reference.linear import grouped_linear, linear
from dsv4_trt.plugins.reference.mhc import (
    add_streams,
    expand_streams,
    mhc_head,
    mhc_post,
    mhc_post_pre,
    mhc_pre,
)
from dsv4_trt.plugins.reference.moe import add, experts, router, shared_expert
from dsv4_trt.plugins.reference.norms import qkv_norm, rms_norm
from dsv4_trt.plugins.reference.sampling import sample

REFERENCES: dict[str, Callable[..., dict[str, Any]]] = {
    function.__name__: function
    for function in (
        embed,
        expand_streams,
        add_streams,
        rms_norm,
        linear,
        grouped_linear,
        mhc_pre,
        mhc_post,
        mhc_post_pre,
        mhc_head,
        qkv_norm,
        qkv_rope_insert,
        compress,
        indexer_q,
        index_topk,
        sparse_attention,
        inv_rope_quant,
        router,
        experts,
        shared_expert,
        add,
        sample,
        all_reduce,
        all_gather,
    )
}
