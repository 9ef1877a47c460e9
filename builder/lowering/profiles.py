"""Ranges of run-time sizes that a plan is good for: one profile for decode steps, one for all others.

A decode step has as many tokens as sequences and rows of logits, padded to a rung, so its profile is narrow
and what TensorRT plans for it is small.
"""

from __future__ import annotations

from dsv4_trt.contract import BuildSpec, pool_size
from dsv4_trt.kv_layout import LOGICAL_BLOCK, Bucket, KvLayout
from dsv4_trt.plan_record import Profile
from dsv4_trt.step_ladders import step_ladders

Range = tuple[int, int, int]

_MOST_POOL_BYTES = 1 << 40  # more than a GPU has


def profiles(build: BuildSpec, layout: KvLayout) -> tuple[Profile, ...]:
    """The profiles of a build: steps of `runtime/step_arrays.py` fit the first or the second."""
    return (_decode(build, layout), _prefill(build, layout))


def _decode(build: BuildSpec, layout: KvLayout) -> Profile:
    most = build.max_batch_size
    seqs = (1, most, most)
    names = ("num_tokens", "num_seqs", "num_decodes", "num_logits")
    sizes = dict.fromkeys(names, seqs) | {"num_seqs_plus_1": _plus_1(seqs)}
    return Profile(name="decode", sizes=sizes | _fixed(build, layout))


def _prefill(build: BuildSpec, layout: KvLayout) -> Profile:
    """Padded decodes and, beside them, as many prompts; logits of every position where asked for."""
    ladders, most = step_ladders(build), build.max_batch_size
    tokens = ladders.tokens.maximum
    seqs = (1, most, 2 * most)
    sizes = {
        "num_tokens": (1, tokens, tokens),
        "num_seqs": seqs,
        "num_seqs_plus_1": _plus_1(seqs),
        "num_decodes": (0, 0, most),
        "num_logits": (0, most, max(tokens, 2 * most)),
    }
    return Profile(name="prefill", sizes=sizes | _fixed(build, layout))


def _plus_1(sizes: Range) -> Range:
    least, usual, most = sizes
    return least + 1, usual + 1, most + 1


def _fixed(build: BuildSpec, layout: KvLayout) -> dict[str, Range]:
    """Sizes of tables and pools: the runtime chooses them once."""
    # boundaries that a chunk can leave behind, whatever the prefix cache keeps
    tails = -(-min(build.max_num_tokens, build.max_seq_len) // LOGICAL_BLOCK) + 1
    sizes = {"num_table_rows": (1, build.max_batch_size, build.max_batch_size)}
    for cache_class, kv in layout.classes.items():
        width = kv.table_width(build.max_seq_len, tails)
        sizes[f"pages.{cache_class}"] = (1, width, width)
    for bucket in Bucket:
        most = min(_MOST_POOL_BYTES // layout.page_bytes[bucket], (1 << 31) - 1)
        sizes[pool_size(bucket)] = (1, most // 16, most)
    return sizes
