"""One request to make: a prompt in one of its forms, and how many tokens to ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A prompt and a length; just one of the three forms is there."""

    max_tokens: int
    text: str | None = None
    token_ids: list[int] | None = None
    messages: list[dict[str, Any]] | None = None
