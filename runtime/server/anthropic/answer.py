"""From a run of the engine to Anthropic's message, in one piece or as a stream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

from dsv4_trt.errors import TooLong
from dsv4_trt.runtime.chat.events import Event
from dsv4_trt.runtime.server.anthropic.events import MessageEvents
from dsv4_trt.runtime.server.anthropic.message import content_blocks, message, stop_fields, usage
from dsv4_trt.runtime.server.chat_answer import NO_NEWS, ChatDelta
from dsv4_trt.runtime.server.chat_run import ChatRun
from dsv4_trt.runtime.server.chat_turn import ChatTurn
from dsv4_trt.runtime.server.early_end import check_ended
from dsv4_trt.runtime.server.served import Served
from dsv4_trt.runtime.server.start_chat import start_chat


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A run, and how its message is written."""

    run: ChatRun
    model: str
    shows_thinking: bool
    is_clipped: bool  # the context leaves less than max_tokens

    async def whole(self) -> dict[str, Any]:
        """The message; raises `Refusal` if the server ended it, and the run's error."""
        events: list[Event] = []
        last = NO_NEWS
        async for deltas in self.run:
            for last in deltas:
                events += last.events
        blocks = content_blocks(events, shows_thinking=self.shows_thinking)
        return message(self.model, blocks, **self._stop(last), usage=usage(self.run))

    async def stream(self) -> AsyncIterator[str]:
        """The message's events; raises as `whole` does."""
        events = MessageEvents(self.model, shows_thinking=self.shows_thinking)
        yield events.start(self.run)
        last = NO_NEWS
        async for deltas in self.run:
            for last in deltas:
                if chunk := events.take(last.events):
                    yield chunk
        yield events.end(self._stop(last), self.run)

    def _stop(self, last: ChatDelta) -> dict[str, Any]:
        reason = check_ended(last.finish_reason)
        return stop_fields(reason, last.stop_reason, is_clipped=self.is_clipped)


async def start_answer(served: Served, turn: ChatTurn, *, shows_thinking: bool) -> Answer:
    """Run a turn. One whose `max_tokens` the context does not leave gets what it leaves.

    Agents ask for the same `max_tokens` however long their conversation is; the stop reason tells them when
    it was the context that ended the answer. Raises as `start_chat` does.
    """
    is_clipped = False
    try:
        run = await start_chat(served, turn)
    except TooLong:
        run = await start_chat(served, replace(turn, max_tokens=None))
        is_clipped = True
    return Answer(
        run=run,
        model=served.model_name,
        shows_thinking=shows_thinking,
        is_clipped=is_clipped,
    )
