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

Window tables hold two halves of `window_pages` columns per sequence: the pages of the window as it
was before the step, then as it is after it. The first column of a half that ends at token `end`
(exclusive) is logical page `first_page(end)`.
"""

from __future__ import annotations

from collections.abc import Mapping as MappingABC
from dataclasses import dataclass
from enum import StrEnum

from dsv4_trt.errors import ConfigError
from dsv4_trt.model_spec import LayerKind, ModelSpec
from dsv4_trt.precision import INDEXER_FORMATS, KV_FORMATS

LOGICAL_BLOCK = 256  # native tokens of one logical block
PAGE_ALIGNMENT = 576  # bytes; pages of quantized formats


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
    window: int | None  # tokens kept; None = all
    layers: tuple[int, ...]  # which layers have it; the index in this tuple is the block-table row

    @property
    def raw_bytes(self) -> int:
        """Bytes of a page that hold entries."""
        return self.entry_bytes * self.entries_per_page

    @property
    def window_pages(self) -> int:
        """Most pages that a window of this class can touch, at any alignment."""
        assert self.window is not None, f"{self.cache_class} is not a window class"
        return (self.window - 2 + self.tokens_per_page) // self.tokens_per_page + 1

    def first_page(self, end: int) -> int:
        """Logical page of the oldest token kept when the sequence holds `end` tokens."""
        assert self.window is not None, f"{self.cache_class} is not a window class"
        return max(0, end - self.window) // self.tokens_per_page

    def pages_for(self, num_tokens: int) -> int:
        """Pages of one layer that a sequence of `num_tokens` holds."""
        if num_tokens <= 0:
            return 0
        last = -(-num_tokens // self.tokens_per_page)
        return last if self.window is None else last - self.first_page(num_tokens)

    def table_width(self, max_seq_len: int) -> int:
        """Columns of this class's block table for sequences of up to `max_seq_len` tokens."""
        if self.window is None:
            return -(-max_seq_len // self.tokens_per_page)
        return 2 * self.window_pages


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

    def peak_pages_per_sequence(self, num_tokens: int) -> dict[Bucket, int]:
        """Upper bound while a step is under way, when a window is held before and after it."""
        need = dict.fromkeys(Bucket, 0)
        for layout in self.classes.values():
            pages = (
                layout.pages_for(num_tokens) if layout.window is None else 2 * layout.window_pages
            )
            need[layout.bucket] += pages * len(layout.layers)
        return need

    def bytes_per_token(self) -> float:
        """Page bytes that each further token of a long sequence costs."""
        return sum(
            layout.page_bytes * len(layout.layers) / layout.tokens_per_page
            for layout in self.classes.values()
            if layout.window is None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KvPlan:
    """Pool sizes: what an engine allocates its slabs from."""

    layout: KvLayout
    num_pages: MappingABC[Bucket, int]

    @property
    def total_bytes(self) -> int:
        """Bytes of the three slabs."""
        return sum(n * self.layout.page_bytes[b] for b, n in self.num_pages.items())


def plan_for_sequences(layout: KvLayout, max_seq_lens: list[int]) -> KvPlan:
    """Pools that hold sequences of these lengths at once, whatever the steps look like."""
    total = dict.fromkeys(Bucket, 0)
    for length in max_seq_lens:
        for bucket, pages in layout.peak_pages_per_sequence(length).items():
            total[bucket] += pages
    return KvPlan(layout=layout, num_pages=total)


def kv_entry_bytes(format: str, head_dim: int, rope_dim: int) -> int:
    """Bytes of one KV entry of `head_dim` channels, the last `rope_dim` of them rotated."""
    if format == "fp8":
        nope = head_dim - rope_dim
        scales = -(-nope // 64)
        return nope + 2 * rope_dim + scales + scales % 2
    return head_dim * {"bf16": 2, "fp32": 4}[format]


def indexer_entry_bytes(format: str, index_dim: int) -> int:
    """Bytes of one indexer key of `index_dim` channels."""
    if format == "fp4":
        return index_dim // 2 + index_dim // 32
    if format == "fp8":
        return index_dim + 4
    return index_dim * {"bf16": 2, "fp32": 4}[format]


def solve(spec: ModelSpec, kv_format: str, indexer_format: str, *, mtp: bool = False) -> KvLayout:
    """Lay out every cache class so that pages of one bucket have one size.

    The large page is 64 KV entries, the middle 64 indexer keys, the small 2 KV entries; a state class
    takes the largest power of two of tokens that fits its bucket's page.
    """
    if kv_format not in KV_FORMATS:
        raise ConfigError(f"kv_cache_dtype '{kv_format}' is unknown; expected one of {KV_FORMATS}")
    if indexer_format not in INDEXER_FORMATS:
        raise ConfigError(
            f"indexer_cache_dtype '{indexer_format}' is unknown; expected one of {INDEXER_FORMATS}"
        )
    entry = kv_entry_bytes(kv_format, spec.head_dim, spec.qk_rope_head_dim)
    key = indexer_entry_bytes(indexer_format, spec.index_head_dim)
    per_block = LOGICAL_BLOCK // LayerKind.CSA
    page_bytes = {
        Bucket.LARGE: _aligned(per_block * entry, kv_format),
        Bucket.MIDDLE: _aligned(per_block * key, indexer_format),
        Bucket.SMALL: _aligned(LOGICAL_BLOCK // LayerKind.HCA * entry, kv_format),
    }
    kinds = spec.layer_kinds
    csa = tuple(i for i, kind in enumerate(kinds) if kind is LayerKind.CSA)
    hca = tuple(i for i, kind in enumerate(kinds) if kind is LayerKind.HCA)

    def full(cls: CacheClass, bucket: Bucket, kind: LayerKind, size: int, fmt: str) -> ClassLayout:
        return ClassLayout(
            cache_class=cls,
            bucket=bucket,
            format=fmt,
            entry_bytes=size,
            entries_per_page=LOGICAL_BLOCK // kind,
            tokens_per_page=LOGICAL_BLOCK,
            page_bytes=page_bytes[bucket],
            ratio=int(kind),
            window=None,
            layers=csa if kind is LayerKind.CSA else hca,
        )

    def window(
        cls: CacheClass, bucket: Bucket, size: int, fmt: str, tokens: int, layers: tuple[int, ...]
    ) -> ClassLayout:
        per_page = _power_of_two_at_most(page_bytes[bucket] // size)
        return ClassLayout(
            cache_class=cls,
            bucket=bucket,
            format=fmt,
            entry_bytes=size,
            entries_per_page=per_page,
            tokens_per_page=per_page,
            page_bytes=page_bytes[bucket],
            ratio=1,
            window=tokens,
            layers=layers,
        )

    def state_bytes(coff: int, width: int) -> int:
        return 2 * coff * width * 4

    large, middle, small = Bucket.LARGE, Bucket.MIDDLE, Bucket.SMALL
    swa, sliding = CacheClass.SWA, spec.sliding_window
    found = [window(swa, large, entry, kv_format, sliding, tuple(range(len(kinds))))]
    if csa:
        main, index = state_bytes(2, spec.head_dim), state_bytes(2, spec.index_head_dim)
        found += [
            full(CacheClass.CSA, large, LayerKind.CSA, entry, kv_format),
            window(CacheClass.CSA_STATE, large, main, "fp32", 2 * LayerKind.CSA, csa),
            full(CacheClass.INDEXER, middle, LayerKind.CSA, key, indexer_format),
            window(CacheClass.INDEXER_STATE, middle, index, "fp32", 2 * LayerKind.CSA, csa),
        ]
    if hca:
        state = state_bytes(1, spec.head_dim)
        found += [
            full(CacheClass.HCA, small, LayerKind.HCA, entry, kv_format),
            window(CacheClass.HCA_STATE, large, state, "fp32", int(LayerKind.HCA), hca),
        ]
    if mtp:
        layer = (len(kinds),)
        found.append(window(CacheClass.MTP_SWA, large, entry, kv_format, sliding, layer))
    return KvLayout(
        kv_format=kv_format,
        indexer_format=indexer_format,
        classes={layout.cache_class: layout for layout in found},
        page_bytes=page_bytes,
    )


def _aligned(raw: int, format: str) -> int:
    if format in ("bf16", "fp32"):
        return raw
    return -(-raw // PAGE_ALIGNMENT) * PAGE_ALIGNMENT


def _power_of_two_at_most(n: int) -> int:
    return 1 << (n.bit_length() - 1)
