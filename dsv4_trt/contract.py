"""What the rooms agree on through files: names, format versions, and an engine's step inputs.

The builder writes these, the runtime reads them; neither imports the other.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from dsv4_trt.dtypes import DType
from dsv4_trt.errors import BundleMismatch, ConfigError
from dsv4_trt.graph import Dim, Value, ValueKind
from dsv4_trt.kv_layout import Bucket, KvLayout
from dsv4_trt.model_spec import ModelSpec
from dsv4_trt.precision import INDEXER_CACHE_DTYPES, KV_CACHE_DTYPES
from dsv4_trt.targets import check_target

CHECKPOINT_FORMAT = 1
BUNDLE_FORMAT = 1
GRAPH_FORMAT = 1

CONFIG_FILE = "config.json"
MANIFEST_FILE = "manifest.json"
GRAPH_FILE = "graph.json"
WEIGHTS_DIR = "weights"
GENERATION_CONFIG_FILE = "generation_config.json"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
MAX_SIZE = 2**22  # sequences or tokens that are built for: more than a GPU holds, below int32
ENCODER_REVISION = "v4-preview"  # which chat encoder the bundle expects

# dimensions of a block table, the slowest in memory first: layers of a column are neighbours
TABLE_ORDER = (1, 2, 0)

PLAN_FILE = "plan.json"  # what a build of TensorRT plans recorded
BUILD_LOG_FILE = "build.log"


def is_block_table(name: str) -> bool:
    """Whether a graph's input of this name is a block table."""
    return name.startswith("block_table.")


def rank_file(rank: int) -> str:
    """Name of one rank's weights inside a checkpoint or a bundle's weights folder."""
    return f"rank{rank}.safetensors"


def engine_file(rank: int, graph: str) -> str:
    """Name of one rank's TensorRT plan of a graph: the trunk's is TensorRT-LLM's name."""
    return f"rank{rank}.engine" if graph == "trunk" else f"rank{rank}.{graph}.engine"


def check_format(what: str, found: object, expected: int) -> None:
    """Refuse a file of another format version by name."""
    if found != expected:
        raise BundleMismatch(
            f"{what} has format version {found!r}; this version of dsv4-trt reads version "
            f"{expected}; convert and build again with the dsv4-trt that will run it"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSpec:
    """What the user asked the builder for; recorded in the bundle."""

    engine: str = "native"
    target: str | None = None  # GPU architecture; None: whatever GPU there is
    max_batch_size: int = 64
    max_num_tokens: int = 8192
    max_seq_len: int = 131072
    kv_cache_dtype: str = "fp8"
    indexer_cache_dtype: str = "fp4"
    mtp: bool = True

    def check(self) -> None:
        """Raise `ConfigError` on an illegal value."""
        check_target(self.engine, self.target)
        choices = {
            "kv_cache_dtype": KV_CACHE_DTYPES,
            "indexer_cache_dtype": INDEXER_CACHE_DTYPES,
        }
        for name, legal in choices.items():
            if getattr(self, name) not in legal:
                raise ConfigError(
                    f"{name} is {getattr(self, name)!r}; expected one of {', '.join(legal)}"
                )
        for name in ("max_batch_size", "max_num_tokens", "max_seq_len"):
            if not 1 <= getattr(self, name) <= MAX_SIZE:
                raise ConfigError(f"{name} is {getattr(self, name)}; expected 1 to {MAX_SIZE}")
        if self.max_num_tokens < self.max_batch_size:
            raise ConfigError(
                f"max_num_tokens {self.max_num_tokens} is below max_batch_size "
                f"{self.max_batch_size}; a decode step needs one token per sequence"
            )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> BuildSpec:
        """Read what `to_json` wrote; unknown keys raise `ConfigError`."""
        unknown = sorted(set(data) - {f.name for f in fields(BuildSpec)})
        if unknown:
            raise ConfigError(
                f"build_config has unknown keys {unknown}; expected "
                f"{[f.name for f in fields(BuildSpec)]}; build the bundle again"
            )
        return BuildSpec(**data)


def step_inputs(layout: KvLayout) -> list[Value]:
    """Inputs of a step besides weights and pools. A step is ragged and token-major.

    Decode sequences (one query token each) come first, then prefill chunks.

    token_ids       [num_tokens]      padding 0
    positions       [num_tokens]      absolute, 0-based; padding 0
    seq_ids         [num_tokens]      row of the sequence in this step; padding -1
    query_start     [num_seqs_plus_1] first token row of each sequence; the last entry is the total
    seq_lens        [num_seqs]        tokens of each sequence once the step is done; padding 0
    logits_rows     [num_logits]      token rows whose logits are wanted; padding 0
    decode_carrier  [num_decodes]     only its length is read: how many sequences decode
    table_rows      [num_seqs]        row of each sequence in the block tables, which outlive a step;
                    padding 0
    block_table.C   [layers of C, num_table_rows, pages]  page ids, padding -1; `kv_layout` says which
                    page each column is. In memory the layers of a column are neighbours (`TABLE_ORDER`)
    slot_mapping.C  [num_tokens]      where the entry that a token completes goes, relative to its
                    sequence: `column * entries_per_page + entry`, the column counted in the full
                    table, or in a window class from the ring after the step on; -1 = writes nothing.
                    The same for every layer: a layer's page id comes from its row of the table.

    Every size may be padded. Padding rows and sequences write nothing, and what comes out of them is
    not used. A padding sequence among the decodes owns one padding row, which `query_start` counts, so
    that decode i is row i; any other owns none.
    """
    inputs = [
        _input("token_ids", DType.I32, "num_tokens"),
        _input("positions", DType.I32, "num_tokens"),
        _input("seq_ids", DType.I32, "num_tokens"),
        _input("query_start", DType.I32, "num_seqs_plus_1"),
        _input("seq_lens", DType.I32, "num_seqs"),
        _input("logits_rows", DType.I32, "num_logits"),
        _input("decode_carrier", DType.I8, "num_decodes"),
        _input("table_rows", DType.I32, "num_seqs"),
    ]
    for cls, kv in layout.classes.items():
        table = (len(kv.layers), "num_table_rows", f"pages.{cls}")
        inputs.append(_input(f"block_table.{cls}", DType.I32, *table))
        inputs.append(_input(f"slot_mapping.{cls}", DType.I32, "num_tokens"))
    return inputs


def streams_input(spec: ModelSpec, dtype: DType) -> Value:
    """The further input of the MTP graph: the streams that the trunk gave for the same tokens."""
    return _input("streams", dtype, "num_tokens", spec.hc_mult, spec.hidden_size)


def _input(name: str, dtype: DType, *shape: Dim) -> Value:
    return Value(name=name, kind=ValueKind.INPUT, dtype=dtype, shape=shape)


def pool_size(bucket: Bucket) -> str:
    """The run-time size that says how many pages a bucket's pool has: dimension 0 of its values."""
    return f"num_pages.{bucket}"


def pool_bucket(value: Value) -> Bucket:
    """The bucket whose slab a KV value of a graph is bound to."""
    return next(bucket for bucket in Bucket if value.shape[0] == pool_size(bucket))
