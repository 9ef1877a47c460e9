"""What all objects of one answer share: id, time, model, and the engine's fingerprint."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from typing import Any

from dsv4_trt.runtime.server.failures import Failure, openai_body
from dsv4_trt.runtime.server.json_answer import dumped
from dsv4_trt.runtime.server.served import Served

DONE = "data: [DONE]\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerHead:
    """The head of one answer."""

    id: str
    model: str
    system_fingerprint: str  # the same for the same weights and build
    created: int = field(default_factory=lambda: int(time.time()))  # Unix seconds

    @staticmethod
    def begin(served: Served, prefix: str) -> AnswerHead:
        """The head of a new answer, whose id begins with `prefix`."""
        return AnswerHead(
            id=prefix + secrets.token_hex(16),
            model=served.model_name,
            system_fingerprint="fp_" + served.info.identity,
        )

    def of(self, kind: str) -> dict[str, Any]:
        """The first fields of an object of this kind."""
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.system_fingerprint,
        }


class EventWriter:
    """Writes the events of one answer; their head is put into JSON once."""

    def __init__(self, head: AnswerHead, kind: str) -> None:
        self._begin = "data: " + dumped(head.of(kind))[:-1] + ","

    def write(self, rest: dict[str, Any]) -> str:
        """An event with these fields after the head."""
        return f"{self._begin}{dumped(rest)[1:]}\n\n"


def error_chunk(failure: Failure) -> str:
    """The end of a stream that fails: the error, which clients raise, and no `[DONE]`."""
    return f"data: {dumped(openai_body(failure))}\n\n"
