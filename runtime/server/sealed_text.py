"""Reasoning as an opaque string, for fields in which a client keeps it without reading it.

Clients echo Anthropic's `signature` and OpenAI's `encrypted_content` as they got them. The text in them is
only encoded: whoever sent the request may read the answer.
"""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from hashlib import sha256

PREFIX = "dsv4.reasoning."


def seal(text: str) -> str:
    """A string from which `unseal` gets the text again."""
    return PREFIX + urlsafe_b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii")


def unseal(sealed: str) -> str | None:
    """The text in a sealed string; None for any other string, such as one that another server made."""
    if not sealed.startswith(PREFIX):
        return None
    try:
        encoded = sealed[len(PREFIX) :].encode("ascii")
        return b64decode(encoded, altchars=b"-_", validate=True).decode("utf-8", "surrogatepass")
    except (Base64Error, UnicodeError):
        return None


def signature_of(text: str) -> str:
    """A stable name of a text that is shown beside it, never empty."""
    return "dsv4.sha256." + sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
