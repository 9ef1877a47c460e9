"""Token counts, as Anthropic splits them: what the prefix cache had is not in `input_tokens`."""

from __future__ import annotations

from typing import Any


def usage(prompt: int, cached: int, output: int, thinking: int) -> dict[str, Any]:
    """Counts so far; the prefix cache fills by itself, so that nothing counts as written to it."""
    return {
        "input_tokens": prompt - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": output,
        "output_tokens_details": {"thinking_tokens": thinking},
    }
