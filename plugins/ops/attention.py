"""Attention: norms, rotation and insert, compression, indexer, sparse attention."""

from __future__ import annotations

from dsv4_trt.contract import TABLE_ORDER
from dsv4_trt.dtypes import DType
from dsv4_trt.graph import Attr
from dsv4_trt.model_spec import LayerKind
from dsv4_trt.plugins.op_schema import AttrSpec, Op, Param
from dsv4_trt.plugins.ops.common import (
    BF16,
    F32,
    FLOAT,
    FLOAT_TYPE,
    I8,
    I32,
    INDEXER,
    INDEXER_TYPES,
    INT,
    KV,
)

POSITIONS = Param("positions", I32, ("T",))
TABLE_ROWS = Param("table_rows", I32, ("S",))
SEQ_IDS = Param("seq_ids", I32, ("T",))
QUERY_START = Param("query_start", I32, ("S_plus_1",))
SEQ_LENS = Param("seq_lens", I32, ("S",))
DECODES = Param("decode_carrier", I8, ("num_decodes",))
INV_FREQ = Param("inv_freq", F32, ("rope_pairs",))


COMPRESSED = ("ratio", (int(LayerKind.CSA), int(LayerKind.HCA)))
PICKED = ("ratio", (int(LayerKind.CSA),))
SCALED = ("format", ("fp4",))


def _pool(
    prefix: str = "", *, when: tuple[str, tuple[Attr, ...]] | None = None
) -> tuple[Param, Param]:
    """A block table `[layers, rows, pages]` and the pool it points into, as bytes `[pages, page]`."""
    table = (f"{prefix}layers", f"{prefix}rows", f"{prefix}columns")
    slab = (f"{prefix}num_pages", f"{prefix}page_bytes")
    return (
        Param(f"{prefix}block_table", I32, table, when=when, order=TABLE_ORDER),
        Param(f"{prefix}pool", I8, slab, when=when),
    )


def _pool_out(prefix: str = "") -> Param:
    return Param(f"{prefix}pool", I8, (f"{prefix}num_pages", f"{prefix}page_bytes"))


ATTENTION_OPS = (
    Op(
        name="qkv_norm",
        doc="Split the stacked down-projection and normalise both parts.",
        inputs=(
            Param("x", "$A", ("T", "width")),
            Param("q_weight", BF16, ("Q",)),
            Param("kv_weight", BF16, ("D",)),
        ),
        outputs=(
            Param("qr", "$A", ("T", "Q")),
            Param("kv", "$A", ("T", "D")),
        ),
        attrs={"eps": FLOAT},
    ),
    Op(
        name="qkv_rope_insert",
        doc="Weightless norm of each q head and rotation of q and kv; kv rounded to its cache format, "
        "returned as it reads back, and its rows inside the window written to SWA pages.",
        inputs=(
            Param("q", "$A", ("T", "num_heads*D")),
            Param("kv", "$A", ("T", "D")),
            INV_FREQ,
            POSITIONS,
            SEQ_IDS,
            TABLE_ROWS,
            Param("slot_mapping", I32, ("T",)),
            *_pool(),
        ),
        outputs=(
            Param("q", "$A", ("T", "num_heads", "D")),
            Param("kv", "$A", ("T", "D")),
            _pool_out(),
        ),
        attrs={
            "num_heads": INT,
            "D": INT,
            "eps": FLOAT,
            "format": KV,
            "layer_row": INT,
            "entries_per_page": INT,
            "window_pages": INT,
        },
        aliases={"pool": "pool"},
    ),
    Op(
        name="compress",
        doc="Softmax-pool groups of `ratio` tokens per channel (with the previous group's first half "
        "where `overlap` is 2), norm, rotate at the group's first position, quantize and write the "
        "entries completed in this step; write the state rows that later groups need. Tokens of "
        "this step come from `kv_gate` (values, then gates), older ones from state pages.",
        inputs=(
            Param("kv_gate", F32, ("T", "2*overlap*width")),
            Param("ape", F32, ("ratio", "overlap*width")),
            Param("norm_weight", BF16, ("width",)),
            INV_FREQ,
            POSITIONS,
            SEQ_IDS,
            TABLE_ROWS,
            QUERY_START,
            SEQ_LENS,
            Param("state_slot_mapping", I32, ("T",)),
            *_pool("state_"),
            Param("slot_mapping", I32, ("T",)),
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
            "layer_row": INT,
            "entries_per_page": INT,
            "state_entries_per_page": INT,
            "state_window_pages": INT,
        },
        aliases={"state_pool": "state_pool", "pool": "pool"},
    ),
    Op(
        name="indexer_q",
        doc="Rotate indexer queries, Hadamard transform, quantize; fold the constant scale (and an fp8 "
        "query's own scale) into the head weights. fp4 packs two channels a byte; a scale covers 32.",
        inputs=(
            Param("q", "$A", ("T", "num_heads*head_dim")),
            Param("weights", "$A", ("T", "num_heads")),
            INV_FREQ,
            POSITIONS,
        ),
        outputs=(
            Param("q", INDEXER_TYPES, ("T", "num_heads", "row"), by="format"),
            Param("q_scale", I8, ("T", "num_heads", "head_dim/32"), when=SCALED),
            Param("weights", F32, ("T", "num_heads")),
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
        doc="Score every visible indexer key of the sequence and pick the best `topk` entries, "
        "listed in ascending order; -1 fills up. Equal scores go to the lower entry; NaN ranks last.",
        inputs=(
            Param("q", INDEXER_TYPES, ("T", "num_heads", "row"), by="format"),
            Param("q_scale", I8, ("T", "num_heads", "head_dim/32"), when=SCALED),
            Param("weights", F32, ("T", "num_heads")),
            POSITIONS,
            SEQ_IDS,
            TABLE_ROWS,
            QUERY_START,
            SEQ_LENS,
            DECODES,
            *_pool(),
        ),
        outputs=(Param("topk", I32, ("T", "topk")),),
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
        "then the inverse rotation at the query position (unless `inverse_rope` leaves it to "
        "inv_rope_quant). A row without keys gives zeros.",
        inputs=(
            Param("q", "$A", ("T", "N", "D")),
            Param("kv", "$A", ("T", "D")),
            Param("sinks", F32, ("N",)),
            INV_FREQ,
            POSITIONS,
            SEQ_IDS,
            TABLE_ROWS,
            QUERY_START,
            SEQ_LENS,
            DECODES,
            *_pool("swa_"),
            *_pool(when=COMPRESSED),
            Param("topk", I32, ("T", "K"), when=PICKED),
        ),
        outputs=(Param("out", "$A", ("T", "N", "D")),),
        attrs={
            "ratio": INT,
            "sm_scale": FLOAT,
            "window": INT,
            "format": KV,
            "prob_dtype": FLOAT_TYPE,
            "inverse_rope": AttrSpec(bool),
            "swa_layer_row": INT,
            "swa_entries_per_page": INT,
            "swa_window_pages": INT,
            "layer_row": INT,
            "entries_per_page": INT,
        },
    ),
    Op(
        name="inv_rope_quant",
        doc="Rotate attention outputs back at the query position and quantize them to e4m3, with an e8m0 "
        "scale per 128 channels of all heads side by side.",
        inputs=(Param("x", "$A", ("T", "N", "D")), INV_FREQ, POSITIONS),
        outputs=(
            Param("out", DType.F8_E4M3, ("T", "N", "D")),
            Param("scale", I8, ("T", "N*D/128")),
        ),
    ),
)
