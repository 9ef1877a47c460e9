"""What a row of the table is made from: an op call, what it moves, and whom it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from dsv4_trt.plugins.costs import Span

Arguments = dict[str, Any]  # of an op call: tensors and attributes by name
Call = Callable[[], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another implementation. `build(n)` gives n calls of the same work on memory of their own."""

    name: str
    build: Callable[[int], list[Call]]
    compiled: str = (
        ""  # names the kernels that its first call compiles; peers of one name share them
    )
    remark: str = ""  # where its work is not quite the same


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One call of one op.

    `make` builds the arguments on torch's default device. Further sets of inputs, for cold caches, are
    copies of all tensors but those in `shared`; `vary` then replaces what must differ in value.
    """

    op: str
    label: str
    make: Callable[[], Arguments]
    spans: tuple[Span, ...] = ()
    shared: frozenset[str] = frozenset()
    vary: Callable[[Arguments], Arguments] | None = None
    page_bytes: float = 0.0  # moved in pages, where the cost model counts activations only
    peers: tuple[Peer, ...] = ()
    eager: Callable[[Arguments], Call] | None = None  # the same math, an op of torch at a time
    quick: bool = True  # part of a quick run

    @property
    def name(self) -> str:
        return f"{self.op} {self.label}"

    def sets(self, first: Arguments, count: int) -> list[Arguments]:
        """`count` argument sets, `first` among them."""
        return [first, *(self._another(first) for _ in range(count - 1))]

    def _another(self, first: Mapping[str, Any]) -> Arguments:
        fresh = {
            name: value.clone()
            if isinstance(value, torch.Tensor) and name not in self.shared
            else value
            for name, value in first.items()
        }
        return self.vary(fresh) if self.vary else fresh
