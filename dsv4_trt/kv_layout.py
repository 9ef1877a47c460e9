"""Page arithmetic of the KV cache: classes, entries, pages and buckets. Pure numbers, no tensors.

Every compressed class uses one logical block of 256 native tokens. Compressor state is a sliding
window like the SWA keys, in pages of the same sizes. Three page sizes, one pool each:

    large    csa, swa, csa_state, hca_state, mtp_swa    64 KV entries, or as much state as fits
    middle   indexer, indexer_state                     64 indexer keys, or as much state as fits
    small    hca                                        2 KV entries

Entry bytes and page fields:

    KV fp8       rows of 448 e4m3 + 64 bf16 = 576 B, then one row of 7 e8m0 scales + 1 pad per entry
    KV bf16/fp32 rows of 512 elements
    indexer fp8  rows of 128 e4m3, then one fp32 scale per entry
    indexer fp4  rows of 64 packed e2m1 pairs, then 4 e8m0 scales per entry
    state        rows of fp32: gated values [coff * width], then gates with position bias

Fields of a page are planar: all rows first, then all scales. fp8 KV pages are padded to a multiple of
576 B, the row of FlashMLA's layout.

A block table of a class that keeps all tokens has logical page p in column p. That of a window class
has two rings of W = `window_pages` columns, the window as it was before the step and as it is after it:
logical page p is in columns p % W and W + p % W. Behind them come columns of pages that the step passes
but a prefix hit will need: `tail_pages` for each tail.
"""

from __future__ import annotations

from collections.abc import Mapping as MappingABC
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from dsv4_trt.errors import ConfigError
from dsv4_trt.model_spec import MX_BLOCK, LayerKind, ModelSpec
from dsv4_trt.precision import INDEXER_FORMATS, KV_FORMATS

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Count = TypeVar(
    "Count", int, "npt.NDArray[np.int32]"
)  # a number of tokens, or one for each sequence

LOGICAL_BLOCK = 256  # native tokens of one logical block
PAGE_ALIGNMENT = 576  # bytes; pages of quantized formats
KEEP_ALL = 1 << 30  # tokens; more than any sequence has
KV_BLOCK = 64  # channels that share one scale in an fp8 KV entry


class CacheClass(StrEnum):
    """What a page holds."""

    SWA = "swa"
    CSA = "csa"
    CSA_STATE = "csa_state"
    INDEXER = "indexer"
    INDEXER_STATE = "indexer_state"
    HCA = "hca"
    HCA_STATE = "hca_state"
    MTP_SWA = "mtp_swa"


class Bucket(StrEnum):
    """One of the three page sizes."""

    LARGE = "large"
    MIDDLE = "middle"
    SMALL = "small"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassLayout:
    """How one cache class lies in pages."""

    cache_class: CacheClass
    bucket: Bucket
    format: str  # "fp8", "fp4", "bf16" or "fp32"
    entry_bytes: int
    entries_per_page: int
    tokens_per_page: int
    page_bytes: int
    ratio: int  # native tokens per entry
    window: int | None  # most tokens kept; None = all
    group: int  # state: tokens pooled into one entry; 0 in the other classes
    layers: tuple[int, ...]  # which layers have it; the index in this tuple is the block-table row

    @property
    def raw_bytes(self) -> int:
        """Bytes of a page that hold entries."""
        return self.entry_bytes * self.entries_per_page

    @property
    def window_pages(self) -> int:
        """Most pages that a window of this class can touch, at any alignment."""
        assert self.window is not None, f"{self.cache_class} is not a window class"
        kept = self.window - 1 if self.group else self.window
        misaligned = max(self.tokens_per_page - (self.group or 1), 0)
        return (misaligned + kept - 1) // self.tokens_per_page + 1

    @property
    def kept_before(self) -> int:
        """Tokens kept before the unfinished group, or of all where there are no groups."""
        return KEEP_ALL if self.window is None else self.window - self.group

    @property
    def tail_pages(self) -> int:
        """Pages of a window that ends with a logical block: what a prefix hit there needs."""
        return 0 if self.window is None else self.pages_for(8 * LOGICAL_BLOCK)

    def first_token(self, end: Count) -> Count:
        """Oldest token kept when the sequence holds `end` tokens; one number or an array of them.

        State keeps the unfinished group, and where groups overlap the one before it: at the end of a
        logical block that is nothing of HCA and 4 tokens of CSA.
        """
        group = self.group or 1
        oldest = end // group * group - self.kept_before
        return oldest * (oldest > 0)

    def first_page(self, end: Count) -> Count:
        """Logical page of the oldest token kept when the sequence holds `end` tokens."""
        return self.first_token(end) // self.tokens_per_page

    def end_page(self, end: Count) -> Count:
        """Logical page after the newest one held when the sequence holds `end` tokens."""
        return -(-end // self.tokens_per_page)

    def pages_for(self, num_tokens: Count) -> Count:
        """Pages of one layer that a sequence of `num_tokens` holds."""
        return self.end_page(num_tokens) - self.first_page(num_tokens)

    def table_width(self, max_seq_len: int, tails: int = 1) -> int:
        """Columns of this class's block table: sequences of `max_seq_len`, steps that pass `tails`."""
        if self.window is None:
            return -(-max_seq_len // self.tokens_per_page)
        return 2 * self.window_pages + tails * self.tail_pages


@dataclass(frozen=True, slots=True, kw_only=True)
class KvLayout:
    """All classes of one model at one choice of cache formats, and the three page sizes."""

    kv_format: str
    indexer_format: str
    classes: MappingABC[CacheClass, ClassLayout]
    page_bytes: MappingABC[Bucket, int]

    def __getitem__(self, cache_class: CacheClass) -> ClassLayout:
        return self.classes[cache_class]

    def pages_per_sequence(self, num_tokens: int) -> dict[Bucket, int]:
        """Pages that one sequence of `num_tokens` holds at rest, per bucket, over all layers."""
        need = dict.fromkeys(Bucket, 0)
        for layout in self.classes.values():
            need[layout.bucket] += layout.pages_for(num_tokens) * len(layout.layers)
        return need

    def peak_pages_per_sequence(self, num_tokens: int, tails: int = 1) -> dict[Bucket, int]:
        """Upper bound while a step is under way, over all layers.

        A window is held as it was before the step, as it will be after it, and at `tails` tails
        that the step passes.
        """
        need = dict.fromkeys(Bucket, 0)
        for layout in self.classes.values():
            if layout.window is None:
                pages = layout.pages_for(num_tokens)
            else:
                pages = 2 * layout.window_pages + tails * layout.tail_pages
            need[layout.bucket] += pages * len(layout.layers)
        return need

    @property
    def trunk(self) -> KvLayout:
        """The same pages without the MTP block's class."""
        classes = dict(self.classes)
        classes.pop(CacheClass.MTP_SWA, None)
        return replace(self, classes=classes)

    def bytes_per_token(self) -> float:
        """Page bytes that each further token of a long sequence costs."""
        return sum(
            layout.page_bytes * len(layout.layers) / layout.tokens_per_page
            for layout in self.classes.values()
            if layout.window is None
        )


def kv_entry_bytes(format: str, head_dim: int, rope_dim: int) -> int:
    """Bytes of one KV entry of `head_dim` channels, the last `rope_dim` of them rotated."""
    if format == "fp8":
        nope = head_dim - rope_dim
        scales = -(-nope // KV_BLOCK)
        return nope + 2 * rope_dim + scales + scales % 2
    return head_dim * {"bf16": 2, "fp32": 4}[format]


def indexer_entry_bytes(format: str, index_dim: int) -> int:
    """Bytes of one indexer key of `index_dim` channels."""
    if format == "fp4":
        return index_dim // 2 + index_dim // MX_BLOCK
    if format == "fp8":
        return index_dim + 4
    return index_dim * {"bf16": 2, "fp32": 4}[format]


def solve(spec: ModelSpec, kv_format: str, indexer_format: str, *, mtp: bool = False) -> KvLayout:
    """Lay out every cache class so that pages of one bucket have one size.

    The large page is 64 KV entries, the middle 64 indexer keys, the small 2 KV entries; a state class
    takes the largest power of two of tokens that fits its bucket's page.
    """
    _check_formats(kv_format, indexer_format)
    kv = _Entry(kv_format, kv_entry_bytes(kv_format, spec.head_dim, spec.qk_rope_head_dim))
    key = _Entry(indexer_format, indexer_entry_bytes(indexer_format, spec.index_head_dim))
    page_bytes = {
        Bucket.LARGE: _aligned(LOGICAL_BLOCK // LayerKind.CSA, kv),
        Bucket.MIDDLE: _aligned(LOGICAL_BLOCK // LayerKind.CSA, key),
        Bucket.SMALL: _aligned(LOGICAL_BLOCK // LayerKind.HCA, kv),
    }
    large, middle, small = page_bytes.items()
    kinds, swa_tokens = spec.layer_kinds, spec.sliding_window
    csa = tuple(i for i, kind in enumerate(kinds) if kind is LayerKind.CSA)
    hca = tuple(i for i, kind in enumerate(kinds) if kind is LayerKind.HCA)
    found = (
        _window(CacheClass.SWA, large, kv, swa_tokens, 0, tuple(range(len(kinds)))),
        _full(CacheClass.CSA, large, kv, LayerKind.CSA, csa),
        _window(CacheClass.CSA_STATE, large, _state(2 * spec.head_dim), *_CSA_STATE, csa),
        _full(CacheClass.INDEXER, middle, key, LayerKind.CSA, csa),
        _window(
            CacheClass.INDEXER_STATE, middle, _state(2 * spec.index_head_dim), *_CSA_STATE, csa
        ),
        _full(CacheClass.HCA, small, kv, LayerKind.HCA, hca),
        _window(CacheClass.HCA_STATE, large, _state(spec.head_dim), *_HCA_STATE, hca),
        _window(CacheClass.MTP_SWA, large, kv, swa_tokens, 0, (len(kinds),) if mtp else ()),
    )
    return KvLayout(
        kv_format=kv_format,
        indexer_format=indexer_format,
        classes={layout.cache_class: layout for layout in found if layout.layers},
        page_bytes=page_bytes,
    )


def _check_formats(kv_format: str, indexer_format: str) -> None:
    if kv_format not in KV_FORMATS:
        raise ConfigError(f"kv_cache_dtype '{kv_format}' is unknown; expected one of {KV_FORMATS}")
    if indexer_format not in INDEXER_FORMATS:
        raise ConfigError(
            f"indexer_cache_dtype '{indexer_format}' is unknown; expected one of {INDEXER_FORMATS}"
        )


_CSA_STATE = (2 * LayerKind.CSA, int(LayerKind.CSA))  # tokens kept, tokens of a group
_HCA_STATE = (int(LayerKind.HCA), int(LayerKind.HCA))


class _Entry(NamedTuple):
    format: str
    nbytes: int


def _state(lanes: int) -> _Entry:
    """One token's compressor state: a value and a gate in fp32 per lane."""
    return _Entry("fp32", 2 * lanes * 4)


def _full(
    cache_class: CacheClass,
    page: tuple[Bucket, int],
    entry: _Entry,
    kind: LayerKind,
    layers: tuple[int, ...],
) -> ClassLayout:
    """A class that keeps all tokens: the entries of one logical block in a page."""
    return ClassLayout(
        cache_class=cache_class,
        bucket=page[0],
        format=entry.format,
        entry_bytes=entry.nbytes,
        entries_per_page=LOGICAL_BLOCK // kind,
        tokens_per_page=LOGICAL_BLOCK,
        page_bytes=page[1],
        ratio=int(kind),
        window=None,
        group=0,
        layers=layers,
    )


def _window(
    cache_class: CacheClass,
    page: tuple[Bucket, int],
    entry: _Entry,
    tokens: int,
    group: int,
    layers: tuple[int, ...],
) -> ClassLayout:
    """A class that keeps at most the last `tokens` tokens: a power of two of them in a page."""
    per_page = 1 << ((page[1] // entry.nbytes).bit_length() - 1)
    return ClassLayout(
        cache_class=cache_class,
        bucket=page[0],
        format=entry.format,
        entry_bytes=entry.nbytes,
        entries_per_page=per_page,
        tokens_per_page=per_page,
        page_bytes=page[1],
        ratio=1,
        window=tokens,
        group=group,
        layers=layers,
    )


def _aligned(count: int, entry: _Entry) -> int:
    """Bytes of a page of `count` entries."""
    raw = count * entry.nbytes
    if entry.format in ("bf16", "fp32"):
        return raw
    return -(-raw // PAGE_ALIGNMENT) * PAGE_ALIGNMENT
