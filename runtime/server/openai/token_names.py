"""Names of tokens in lists of log-probabilities.

A token whose bytes are no text by themselves is written in escapes (`\\xe2\\x82`), a name of its own.
"""

from __future__ import annotations

LOWEST = -9999.0  # JSON has no infinity


def token_name(raw: bytes, mark: str = "") -> str:
    """The text of a token's bytes; where they are none, `mark` and the bytes in escapes."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return mark + "".join(f"\\x{byte:02x}" for byte in raw)


def finite(logprob: float) -> float:
    """A log-probability that JSON can hold."""
    return max(logprob, LOWEST)
