"""From a run of the engine to a response, in one piece or as a stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from dsv4_trt.runtime.server.chat_answer import NO_NEWS
from dsv4_trt.runtime.server.chat_run import ChatRun
from dsv4_trt.runtime.server.early_end import check_ended
from dsv4_trt.runtime.server.failures import Failure
from dsv4_trt.runtime.server.json_answer import named_event
from dsv4_trt.runtime.server.responses.output_items import OutputItems
from dsv4_trt.runtime.server.responses.response_object import end, fail, usage


class Answer:
    """A run, and the response that it becomes; `keep` is given the response when it has ended."""

    def __init__(
        self,
        run: ChatRun,
        begun: dict[str, Any],
        output: OutputItems,
        keep: Callable[[dict[str, Any]], None],
    ) -> None:
        self.run = run
        self._begun = begun
        self._output = output
        self._keep = keep
        self._number = 0  # of the stream's next event

    async def whole(self) -> dict[str, Any]:
        """The response; raises `Refusal` if the server ended it, and the run's error."""
        last = NO_NEWS
        async for deltas in self.run:
            for last in deltas:
                self._output.take(last.events)
        finish_reason = check_ended(last.finish_reason)
        self._output.end(is_complete=finish_reason != "length")
        return self._ended(finish_reason)

    async def stream(self) -> AsyncIterator[str]:
        """The response's events; raises as `whole` does."""
        yield self._sse(
            {"type": f"response.{name}", "response": self._begun}
            for name in ("created", "in_progress")
        )
        last = NO_NEWS
        async for deltas in self.run:
            for last in deltas:
                if events := self._output.take(last.events):
                    yield self._sse(events)
        finish_reason = check_ended(last.finish_reason)
        events = self._output.end(is_complete=finish_reason != "length")
        response = self._ended(finish_reason)
        yield self._sse([*events, {"type": f"response.{response['status']}", "response": response}])

    def failed(self, failure: Failure) -> str:
        """The last event of a stream that could not be completed."""
        response = fail(self._begun, self._output.items, failure)
        return self._sse([{"type": "response.failed", "response": response}])

    def _ended(self, finish_reason: str) -> dict[str, Any]:
        response = end(self._begun, self._output.items, usage(self.run), finish_reason)
        self._keep(response)
        return response

    def _sse(self, events: Iterable[dict[str, Any]]) -> str:
        chunk = ""
        for event in events:
            data = {"type": event["type"], "sequence_number": self._number} | event
            chunk += named_event(data)
            self._number += 1
        return chunk
