"""The table of ops: everything V4 needs, one entry each. References, kernels and lowerings follow it.

Dimension names: T tokens, S sequences, H hidden, M streams, N local heads, D head channels, R logits
rows, E experts, K picks. "$A" is the activation type: bf16 in serving, fp32 in exact. Row-wise ops run on
padding rows too (their results are never used); nothing is ever written to a pool for them.
"""

from __future__ import annotations

from dsv4_trt.dtypes import DType
from dsv4_trt.plugins.op_schema import AttrSpec, Op, TensorSpec
from dsv4_trt.precision import ACT_FORMATS, INDEXER_FORMATS, KV_FORMATS

F32, BF16, I32, I8 = DType.F32, DType.BF16, DType.I32, DType.I8
FLOAT, INT = AttrSpec(float), AttrSpec(int)
ACT = AttrSpec(str, ACT_FORMATS)
FLOAT_TYPE = AttrSpec(str, (str(DType.F32), str(DType.BF16)))
KV = AttrSpec(str, KV_FORMATS)
INDEXER = AttrSpec(str, INDEXER_FORMATS)
WEIGHT = AttrSpec(str, ("fp8", "bf16"))
WEIGHT_TYPES = {"fp8": DType.F8_E4M3, "bf16": DType.BF16}

POSITIONS = TensorSpec("positions", I32, ("T",))
SEQ_IDS = TensorSpec("seq_ids", I32, ("T",))
QUERY_START = TensorSpec("query_start", I32, ("S_plus_1",))
SEQ_LENS = TensorSpec("seq_lens", I32, ("S",))
DECODES = TensorSpec("decode_carrier", I8, ("num_decodes",))
INV_FREQ = TensorSpec("inv_freq", F32, ("rope_pairs",))


def _pool(prefix: str = "", *, optional: bool = False) -> tuple[TensorSpec, TensorSpec]:
    """A block table `[layers, S, pages]` and the pool it points into, as bytes `[pages, page]`."""
    table = (f"{prefix}layers", "S", f"{prefix}columns")
    slab = (f"{prefix}num_pages", f"{prefix}page_bytes")
    return (
        TensorSpec(f"{prefix}block_table", I32, table, optional=optional),
        TensorSpec(f"{prefix}pool", I8, slab, optional=optional),
    )


def _pool_out(prefix: str = "") -> TensorSpec:
    return TensorSpec(f"{prefix}pool", I8, (f"{prefix}num_pages", f"{prefix}page_bytes"))


_TABLE = (
    Op(
        name="embed",
        doc="Rows of the local vocabulary slice; ids outside it give zeros.",
        inputs=(
            TensorSpec("token_ids", I32, ("T",)),
            TensorSpec("weight", BF16, ("V", "H")),
            TensorSpec("row_offset", I32, (1,)),
        ),
        outputs=(TensorSpec("out", "@out_dtype", ("T", "H")),),
        attrs={"out_dtype": FLOAT_TYPE},
    ),
    Op(
        name="expand_streams",
        doc="Copy a hidden state into every residual stream.",
        inputs=(TensorSpec("x", "$A", ("T", "H")),),
        outputs=(TensorSpec("streams", "$A", ("T", "hc_mult", "H")),),
        attrs={"hc_mult": INT},
    ),
    Op(
        name="add_streams",
        doc="Add one hidden state to every residual stream.",
        inputs=(
            TensorSpec("x", "$A", ("T", "H")),
            TensorSpec("streams", "$A", ("T", "M", "H")),
        ),
        outputs=(TensorSpec("streams", "$A", ("T", "M", "H")),),
    ),
    Op(
        name="rms_norm",
        doc="x * rsqrt(mean(x^2) + eps) * weight over the last dimension, in fp32.",
        inputs=(
            TensorSpec("x", "$A", ("...", "H")),
            TensorSpec("weight", BF16, ("H",)),
        ),
        outputs=(TensorSpec("out", "$A", ("...", "H")),),
        attrs={"eps": FLOAT},
    ),
    Op(
        name="linear",
        doc="x @ weight^T. fp8 weights carry one e8m0 scale byte per 128x128 block.",
        inputs=(
            TensorSpec("x", "$A", ("...", "in_features")),
            TensorSpec("weight", WEIGHT_TYPES, ("out_features", "in_features"), by="weight_format"),
            TensorSpec("scale", I8, ("out_features/128", "in_features/128"), optional=True),
        ),
        outputs=(TensorSpec("out", "@out_dtype", ("...", "out_features")),),
        attrs={"weight_format": WEIGHT, "act": ACT, "out_dtype": FLOAT_TYPE},
    ),
    Op(
        name="grouped_linear",
        doc="Heads in consecutive groups, each group projected by its own rows of the weight.",
        inputs=(
            TensorSpec("x", "$A", ("T", "N", "D")),
            TensorSpec("weight", DType.F8_E4M3, ("rows", "cols")),
            TensorSpec("scale", I8, ("rows/128", "cols/128")),
        ),
        outputs=(TensorSpec("out", "$A", ("T", "rows")),),
        attrs={"groups": INT, "act": ACT},
    ),
    Op(
        name="mhc_pre",
        doc="Mix the streams into a layer input and normalise it; also give the weights that put "
        "the layer output back (post, comb; comb's first index is the source stream).",
        inputs=(
            TensorSpec("streams", "$A", ("T", "M", "H")),
            TensorSpec("fn", F32, ("mix", "M*H")),
            TensorSpec("base", F32, ("mix",)),
            TensorSpec("scale", F32, (3,)),
            TensorSpec("norm_weight", BF16, ("H",)),
        ),
        outputs=(
            TensorSpec("x", "$A", ("T", "H")),
            TensorSpec("post", F32, ("T", "M")),
            TensorSpec("comb", F32, ("T", "M", "M")),
        ),
        attrs={"eps": FLOAT, "hc_eps": FLOAT, "iters": INT},
    ),
    Op(
        name="mhc_post",
        doc="streams'[k] = post[k] * y + sum over j of comb[j, k] * streams[j].",
        inputs=(
            TensorSpec("y", "$A", ("T", "H")),
            TensorSpec("streams", "$A", ("T", "M", "H")),
            TensorSpec("post", F32, ("T", "M")),
            TensorSpec("comb", F32, ("T", "M", "M")),
        ),
        outputs=(TensorSpec("streams", "$A", ("T", "M", "H")),),
    ),
    Op(
        name="mhc_post_pre",
        doc="mhc_post of one site, then mhc_pre of the next, without a trip through memory.",
        inputs=(
            TensorSpec("y", "$A", ("T", "H")),
            TensorSpec("streams", "$A", ("T", "M", "H")),
            TensorSpec("post", F32, ("T", "M")),
            TensorSpec("comb", F32, ("T", "M", "M")),
            TensorSpec("fn", F32, ("mix", "M*H")),
            TensorSpec("base", F32, ("mix",)),
            TensorSpec("scale", F32, (3,)),
            TensorSpec("norm_weight", BF16, ("H",)),
        ),
        outputs=(
            TensorSpec("streams", "$A", ("T", "M", "H")),
            TensorSpec("x", "$A", ("T", "H")),
            TensorSpec("post", F32, ("T", "M")),
            TensorSpec("comb", F32, ("T", "M", "M")),
        ),
        attrs={"eps": FLOAT, "hc_eps": FLOAT, "iters": INT},
    ),
    Op(
        name="mhc_head",
        doc="Collapse the streams of the wanted rows and apply the final norm.",
        inputs=(
            TensorSpec("streams", "$A", ("T", "M", "H")),
            TensorSpec("rows", I32, ("R",)),
            TensorSpec("fn", F32, ("M", "M*H")),
            TensorSpec("base", F32, ("M",)),
            TensorSpec("scale", F32, (1,)),
            TensorSpec("norm_weight", BF16, ("H",)),
        ),
        outputs=(TensorSpec("x", "$A", ("R", "H")),),
        attrs={"eps": FLOAT, "hc_eps": FLOAT},
    ),
    Op(
        name="qkv_norm",
        doc="Split the stacked down-projection and normalise both parts.",
        inputs=(
            TensorSpec("x", "$A", ("T", "width")),
            TensorSpec("q_weight", BF16, ("Q",)),
            TensorSpec("kv_weight", BF16, ("D",)),
        ),
        outputs=(
            TensorSpec("qr", "$A", ("T", "Q")),
            TensorSpec("kv", "$A", ("T", "D")),
        ),
        attrs={"eps": FLOAT},
    ),
    Op(
        name="qkv_rope_insert",
        doc="Weightless norm of each q head and rotation of q and kv; kv rounded to its cache format, "
        "returned as it reads back, and its rows inside the window written to SWA pages.",
        inputs=(
            TensorSpec("q", "$A", ("T", "num_heads*D")),
            TensorSpec("kv", "$A", ("T", "D")),
            INV_FREQ,
            POSITIONS,
            SEQ_IDS,
            TensorSpec("slot_mapping", I32, ("T",)),
            *_pool(),
        ),
        outputs=(
            TensorSpec("q", "$A", ("T", "num_heads", "D")),
            TensorSpec("kv", "$A", ("T", "D")),
            _pool_out(),
        ),
        attrs={
            "num_heads": INT,
            "D": INT,
            "eps": FLOAT,
            "format": KV,
            "layer_row": INT,
            "entries_per_page": INT,
        },
        aliases={"pool": "pool"},
    ),
    Op(
        name="compress",
        doc="Softmax-pool groups of `ratio` tokens per channel (with the previous group's first half "
        "where `overlap` is 2), norm, rotate at the group's first position, quantize and write the "
        "entries completed in this step; write the state rows that stay inside the window. Tokens of "
        "this step come from `kv_gate` (values, then gates), older ones from state pages.",
        inputs=(
            TensorSpec("kv_gate", F32, ("T", "2*overlap*width")),
            TensorSpec("ape", F32, ("ratio", "overlap*width")),
            TensorSpec("norm_weight", BF16, ("width",)),
            INV_FREQ,
            POSITIONS,
            SEQ_IDS,
            QUERY_START,
            SEQ_LENS,
            TensorSpec("state_slot_mapping", I32, ("T",)),
            *_pool("state_"),
            TensorSpec("slot_mapping", I32, ("T",)),
            *_pool(),
        ),
        outputs=(_pool_out("state_"), _pool_out()),
        attrs={
            "ratio": INT,
            "overlap": INT,
            "width": INT,
            "hadamard": AttrSpec(bool),
            "act_dtype": FLOAT_TYPE,
            "format": AttrSpec(str, ("fp4", "fp8", "bf16", "fp32")),
            "eps": FLOAT,
            "window": INT,
            "layer_row": INT,
            "entries_per_page": INT,
            "state_entries_per_page": INT,
        },
        aliases={"state_pool": "state_pool", "pool": "pool"},
    ),
    Op(
        name="indexer_q",
        doc="Rotate indexer queries, Hadamard transform, quantize; fold the constant scale (and an fp8 "
        "query's own scale) into the head weights. An fp4 row is 64 packed pairs, then 4 e8m0 scales.",
        inputs=(
            TensorSpec("q", "$A", ("T", "num_heads*head_dim")),
            TensorSpec("weights", "$A", ("T", "num_heads")),
            INV_FREQ,
            POSITIONS,
        ),
        outputs=(
            TensorSpec(
                "q",
                {"fp4": I8, "fp8": DType.F8_E4M3, "bf16": BF16, "fp32": F32},
                ("T", "num_heads", "row"),
                by="format",
            ),
            TensorSpec("weights", F32, ("T", "num_heads")),
        ),
        attrs={
            "num_heads": INT,
            "head_dim": INT,
            "row": INT,
            "format": INDEXER,
            "scale": FLOAT,
        },
    ),
    Op(
        name="index_topk",
        doc="Score every visible indexer key of the sequence and pick the best `topk` entries; -1 "
        "fills up. Equal scores go to the lower entry; NaN ranks last.",
        inputs=(
            TensorSpec(
                "q",
                {"fp4": I8, "fp8": DType.F8_E4M3, "bf16": BF16, "fp32": F32},
                ("T", "num_heads", "row"),
                by="format",
            ),
            TensorSpec("weights", F32, ("T", "num_heads")),
            POSITIONS,
            SEQ_IDS,
            QUERY_START,
            SEQ_LENS,
            DECODES,
            *_pool(),
        ),
        outputs=(TensorSpec("topk", I32, ("T", "topk")),),
        attrs={
            "topk": INT,
            "ratio": INT,
            "head_dim": INT,
            "format": INDEXER,
            "score_dtype": FLOAT_TYPE,
            "layer_row": INT,
            "entries_per_page": INT,
        },
    ),
    Op(
        name="sparse_attention",
        doc="One shared key-value head: the window (this step's rows from `kv`, older ones from SWA "
        "pages) and compressed entries (all visible, or `topk`), a sink per head in the denominator, "
        "then the inverse rotation at the query position. A row without keys gives zeros.",
        inputs=(
            TensorSpec("q", "$A", ("T", "N", "D")),
            TensorSpec("kv", "$A", ("T", "D")),
            TensorSpec("sinks", F32, ("N",)),
            INV_FREQ,
            POSITIONS,
            SEQ_IDS,
            QUERY_START,
            SEQ_LENS,
            DECODES,
            *_pool("swa_"),
            *_pool(optional=True),
            TensorSpec("topk", I32, ("T", "K"), optional=True),
        ),
        outputs=(TensorSpec("out", "$A", ("T", "N", "D")),),
        attrs={
            "ratio": INT,
            "sm_scale": FLOAT,
            "window": INT,
            "format": KV,
            "prob_dtype": FLOAT_TYPE,
            "swa_layer_row": INT,
            "swa_entries_per_page": INT,
            "layer_row": INT,
            "entries_per_page": INT,
        },
    ),
    Op(
        name="router",
        doc="sqrt(softplus(x @ gate^T)) in fp32; experts by biased score or by token id; weights from "
        "the unbiased scores, normalised, times `route_scale`.",
        inputs=(
            TensorSpec("x", "$A", ("T", "H")),
            TensorSpec("gate", BF16, ("E", "H")),
            TensorSpec("bias", F32, ("E",), optional=True),
            TensorSpec("tid2eid", I32, ("V", "topk"), optional=True),
            TensorSpec("token_ids", I32, ("T",), optional=True),
        ),
        outputs=(
            TensorSpec("expert_ids", I32, ("T", "topk")),
            TensorSpec("weights", F32, ("T", "topk")),
        ),
        attrs={"topk": INT, "route_scale": FLOAT},
    ),
    Op(
        name="experts",
        doc="Clamped SwiGLU experts of this rank, the routing weight applied before w2, summed in fp32. "
        "`expert_map` gives the local row of each expert, -1 if it lives elsewhere.",
        inputs=(
            TensorSpec("x", "$A", ("T", "H")),
            TensorSpec("expert_ids", I32, ("T", "K")),
            TensorSpec("weights", F32, ("T", "K")),
            TensorSpec("expert_map", I32, ("E",)),
            TensorSpec(
                "w13",
                {"fp4": I8, "fp8": DType.F8_E4M3},
                ("local", "2*width", "H/pack"),
                by="weight_format",
            ),
            TensorSpec("w13_scale", I8, ("local", "2*width/scale_rows", "H/scale_cols")),
            TensorSpec(
                "w2",
                {"fp4": I8, "fp8": DType.F8_E4M3},
                ("local", "H", "width/pack"),
                by="weight_format",
            ),
            TensorSpec("w2_scale", I8, ("local", "H/scale_rows", "width/scale_cols")),
        ),
        outputs=(TensorSpec("out", F32, ("T", "H")),),
        attrs={
            "weight_format": AttrSpec(str, ("fp4", "fp8")),
            "width": INT,
            "pack": INT,
            "scale_rows": INT,
            "scale_cols": INT,
            "act": ACT,
            "swiglu_limit": FLOAT,
        },
    ),
    Op(
        name="shared_expert",
        doc="Clamped SwiGLU with fp8 weights, for every token.",
        inputs=(
            TensorSpec("x", "$A", ("T", "H")),
            TensorSpec("w13", DType.F8_E4M3, ("2*width", "H")),
            TensorSpec("w13_scale", I8, ("2*width/128", "H/128")),
            TensorSpec("w2", DType.F8_E4M3, ("H", "width")),
            TensorSpec("w2_scale", I8, ("H/128", "width/128")),
        ),
        outputs=(TensorSpec("out", "@out_dtype", ("T", "H")),),
        attrs={"width": INT, "act": ACT, "swiglu_limit": FLOAT, "out_dtype": FLOAT_TYPE},
    ),
    Op(
        name="add",
        doc="a + b in fp32.",
        inputs=(
            TensorSpec("a", F32, ("T", "H")),
            TensorSpec("b", "$B", ("T", "H")),
        ),
        outputs=(TensorSpec("out", "@out_dtype", ("T", "H")),),
        attrs={"out_dtype": FLOAT_TYPE},
    ),
    Op(
        name="all_reduce",
        doc="Sum over ranks in fp32.",
        inputs=(TensorSpec("x", "$X", ("T", "H")),),
        outputs=(TensorSpec("out", "@out_dtype", ("T", "H")),),
        attrs={"out_dtype": FLOAT_TYPE},
        collective=True,
    ),
    Op(
        name="all_gather",
        doc="Concatenate the ranks' columns.",
        inputs=(TensorSpec("x", F32, ("R", "cols")),),
        outputs=(TensorSpec("out", F32, ("R", "cols*world_size")),),
        attrs={"world_size": INT},
        collective=True,
    ),
)

OPS: dict[str, Op] = {op.name: op for op in _TABLE}
