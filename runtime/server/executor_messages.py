"""What travels between the server and the executor's process, pickled, over one pipe.

Updates travel as tuples: those of a step go in one message, and a tuple pickles several times faster than
the objects it stands for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, TypeAlias

from dsv4_trt.contract import BuildSpec
from dsv4_trt.errors import Dsv4Error
from dsv4_trt.model_spec import ModelSpec
from dsv4_trt.runtime.request import Request
from dsv4_trt.runtime.sampling.row_state import SampledToken
from dsv4_trt.runtime.update import Update


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """What the server says and needs to know of the engine that serves."""

    spec: ModelSpec
    build: BuildSpec  # the sizes that are served
    engine: str  # "native", "tensorrt" or "tensorrt-rtx"
    device: str  # "cpu" or "cuda"
    precision: str
    identity: str  # names weights and build: the same for the same bundle
    encoder_revision: str
    pool_pages: dict[str, int]


@dataclass(frozen=True, slots=True)
class Ready:
    """The engine is open."""

    info: EngineInfo


@dataclass(frozen=True, slots=True)
class Broken:
    """The engine could not be opened, or its executor failed; the process ends."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Submit:
    """Accept this request; `timeout` is seconds from its arrival in the executor's process."""

    request: Request
    timeout: float | None


@dataclass(frozen=True, slots=True)
class Answered:
    """A request is accepted (None), or refused with an error."""

    request_id: str
    error: Dsv4Error | None


@dataclass(frozen=True, slots=True)
class Cancel:
    """End a request at the next step."""

    request_id: str


@dataclass(frozen=True, slots=True)
class AskMetrics:
    """Send the metrics of now; `number` comes back with them."""

    number: int


@dataclass(frozen=True, slots=True)
class MetricsAnswer:
    """`Metrics.snapshot()`."""

    number: int
    snapshot: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Stop:
    """End all requests as "cancelled", and the process."""


@dataclass(frozen=True, slots=True)
class News:
    """All updates of one step."""

    updates: list[PackedUpdate]


PackedUpdate: TypeAlias = tuple[Any, ...]

_FIELDS = tuple(field.name for field in fields(Update))
_values = attrgetter(*_FIELDS)
_TOKEN = _FIELDS.index("token")


def pack(updates: Iterable[Update]) -> list[PackedUpdate]:
    """Updates as tuples in the order of their fields, the token as a tuple as well."""
    return [_pack(update) for update in updates]


def unpack(packed: Iterable[PackedUpdate]) -> list[Update]:
    """The updates again."""
    return [_unpack(values) for values in packed]


def _pack(update: Update) -> PackedUpdate:
    values = list(_values(update))
    token = update.token
    if token is not None:
        values[_TOKEN] = (token.token_id, token.logprob, token.top)
    return tuple(values)


def _unpack(values: PackedUpdate) -> Update:
    named = dict(zip(_FIELDS, values, strict=True))
    if named["token"] is not None:
        named["token"] = SampledToken(*named["token"])
    return Update(**named)
