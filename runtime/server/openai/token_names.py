"""Names of tokens in lists of log-probabilities.

A token whose bytes are no text by themselves is written in escapes (`\\xe2\\x82`), a name of its own.
"""

from __future__ import annotations

LOWEST = -9999.0  # JSON has no infinity


def text_of(raw: bytes) -> str | None:
    """The text of a token's bytes; None where they begin or end inside a character."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return None


def escaped(raw: bytes) -> str:
    """The bytes in escapes."""
    return "".join(f"\\x{byte:02x}" for byte in raw)


def finite(logprob: float) -> float:
    """A log-probability that JSON can hold."""
    return max(logprob, LOWEST)
