"""One streamed answer: its events put into the record, and the record held against the usage."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dsv4_trt.runtime.bench.openai_body import chunk_tokens
from dsv4_trt.runtime.bench.record import Record

DONE = b"[DONE]"


class Answer:
    """Reads the events of one answer with one choice."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._is_done = False
        self._is_counted = False  # chunks say which tokens they bring
        self._usage: Mapping[str, Any] | None = None

    def read(self, data: bytes, now: float) -> None:
        """Take one event that arrived at `now`; what is no JSON chunk fails the request."""
        if self._is_done:
            self._record.fail("stream", f"an event after [DONE]: {data[:200]!r}")
        elif data == DONE:
            self._is_done = True
        else:
            try:
                self._read_chunk(json.loads(data), now)
            except (ValueError, TypeError, AttributeError, LookupError) as error:
                self._record.fail("stream", f"{type(error).__name__} in {data[:200]!r}: {error}")

    def finish(self) -> None:
        """The stream has ended: check that nothing is missing, lost or there twice."""
        record, usage = self._record, self._usage
        if not self._is_done:
            record.fail("stream", "the stream ended without [DONE]")
        if record.finish_reason is None:
            record.fail("stream", "the stream ended without a finish_reason")
        record.output_tokens = record.streamed
        if usage is None:
            return
        record.has_usage = True
        record.input_tokens = int(usage["prompt_tokens"])
        details = usage.get("prompt_tokens_details") or {}
        record.cached_tokens = int(details.get("cached_tokens") or 0)
        record.output_tokens = int(usage["completion_tokens"])
        lost = record.streamed < record.output_tokens and not record.num_by_text
        if lost or record.streamed > record.output_tokens:
            record.fail(
                "tokens", f"usage says {record.output_tokens}, {record.streamed} were streamed"
            )

    def _read_chunk(self, chunk: Any, now: float) -> None:
        if chunk.get("error") is not None:
            error = chunk["error"]
            says = error.get("message", error) if isinstance(error, dict) else error
            self._record.fail("stream", f"the server says in the stream: {says}")
        usage = chunk.get("usage")
        if usage is not None:
            int(usage["prompt_tokens"]), int(usage["completion_tokens"])
            self._usage = usage
        for choice in chunk.get("choices") or ():
            if self._record.finish_reason is not None:
                self._record.fail("stream", "a choice after the one with finish_reason")
            tokens, counted = chunk_tokens(choice)
            self._is_counted |= counted
            if tokens and counted >= self._is_counted:  # else its tokens came with an earlier chunk
                self._record.arrive(now, tokens)
                self._record.num_by_text += not counted
            self._record.finish_reason = choice.get("finish_reason")
