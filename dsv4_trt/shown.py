"""Text that came from a file, fit for one line of a message: quoted, printable, never long."""

from __future__ import annotations

from reprlib import Repr

LONGEST = 200  # characters
LONGEST_NAME = 200  # of a tensor or a file; official ones have less than 60

_repr = Repr()
_repr.maxlevel = 3
_repr.maxlist = _repr.maxdict = 8
_repr.maxstring = _repr.maxlong = _repr.maxother = 80


def shown(value: object) -> str:
    """`value` as Python spells it, its middle or end left out where that is long."""
    text = _repr.repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def is_plain(name: str) -> bool:
    """Whether a name can stand in a message as it is."""
    return 0 < len(name) <= LONGEST_NAME and name.isprintable()
