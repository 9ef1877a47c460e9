"""How deep JSON values nest, found out without nesting calls."""

from __future__ import annotations

from typing import Any


def nests_deeper(value: object, limit: int) -> bool:
    """Whether values stand within one another more than `limit` deep."""
    level = [value]
    for _ in range(limit):
        level = [inner for outer in level for inner in inside(outer)]
        if not level:
            return False
    return True


def inside(value: object) -> list[Any]:
    """The values in an object or a list; nothing else has some."""
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, list | tuple) else []
