"""A prompt as markup and text kept apart, so that text which spells a marker stays text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from dsv4_trt.runtime.chat.markers import MARKERS

_MARKER = re.compile(f"({'|'.join(map(re.escape, MARKERS))})")


@dataclass(frozen=True, slots=True)
class Segment:
    """One marker, or a stretch of text between two of them."""

    text: str
    is_markup: bool


def template(text: str) -> list[Segment]:
    """The segments of text that is ours: what spells a marker in it is one."""
    return [Segment(part, i % 2 == 1) for i, part in enumerate(_MARKER.split(text)) if part]


def join_text(segments: Iterable[Segment]) -> list[Segment]:
    """The same with neighbouring texts made one, as they are tokenized, and none empty."""
    joined: list[Segment] = []
    texts: list[str] = []
    for segment in segments:
        if not segment.is_markup:
            texts.append(segment.text)
            continue
        if text := "".join(texts):
            joined.append(Segment(text, is_markup=False))
        texts.clear()
        joined.append(segment)
    if text := "".join(texts):
        joined.append(Segment(text, is_markup=False))
    return joined
