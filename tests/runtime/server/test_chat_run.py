"""From updates to deltas: reasoning, calls, ends, and what is joined when a reader is slow."""

import asyncio

import pytest

from dsv4_trt.errors import EngineFault
from dsv4_trt.runtime.chat.events import CallArguments, CallEnd, CallStart, Content, Reasoning
from dsv4_trt.runtime.chat.stream_parser import StreamParser
from dsv4_trt.runtime.request import Request
from dsv4_trt.runtime.sampling.row_state import SampledToken
from dsv4_trt.runtime.sampling.sampling_params import SamplingParams
from dsv4_trt.runtime.server.chat_run import ChatRun
from dsv4_trt.runtime.server.token_stream import TokenStream
from dsv4_trt.runtime.update import Update

END_THINK = 900
MARKERS = {"</think>", "｜DSML｜"}
CALL = (
    *("\n\n", "<", "｜DSML｜", "tool_calls>\n"),
    *("<", "｜DSML｜", 'invoke name="f">\n'),
    *("<", "｜DSML｜", 'parameter name="a" string="true">', "x", "</", "｜DSML｜", "parameter>\n"),
    *("</", "｜DSML｜", "invoke>\n"),
)
END = ("</", "｜DSML｜", "tool_calls>")


class Played:
    """A run whose engine says what a test wrote, sequence by sequence."""

    def __init__(self, n=1, thinking=True, **options):
        params = SamplingParams(n=n, max_tokens=99)
        request = Request(request_id="r", prompt_ids=[1, 2], params=params)
        self.cancelled = []
        self.stream = TokenStream(request, self.cancelled.append)
        self.at = [0] * n
        parsers = [StreamParser(thinking) for _ in range(n)]
        self.run = ChatRun(self.stream, parsers, END_THINK if thinking else None, **options)

    def say(self, *texts, index=0):
        for text in texts:
            marks = (self.at[index],) if text in MARKERS else ()
            token = SampledToken(END_THINK if text == "</think>" else 7, -0.5)
            self.stream.deliver(
                Update(request_id="r", index=index, token=token, text=text, marks=marks)
            )
            self.at[index] += len(text)

    def end(self, reason="stop", index=0, finished=True, error=None):
        self.stream.deliver(
            Update(
                request_id="r",
                index=index,
                finish_reason=reason,
                finished=finished,
                error=error,
                num_cached=1,
            )
        )

    def whole(self):
        return asyncio.run(self.run.whole())


def test_reasoning_content_and_usage():
    played = Played()
    played.say("a", "b", "</think>", "c")
    played.end()
    (answer,) = played.whole()
    assert (answer.reasoning, answer.content, answer.finish_reason) == ("ab", "c", "stop")
    assert (len(answer.tokens), answer.num_reasoning) == (4, 3)
    assert (played.run.completion_tokens, played.run.reasoning_tokens) == (4, 3)
    assert (played.run.prompt_tokens, played.run.cached_tokens) == (2, 1)


def test_a_spelled_end_of_thinking_is_text():
    played = Played()
    played.say("a </th", "ink> b")
    played.end("length")
    (answer,) = played.whole()
    assert (answer.reasoning, answer.finish_reason) == ("a </think> b", "length")


def test_what_waited_is_joined():
    played = Played(thinking=False)
    played.say("a", "b", "c")

    async def first():
        return await anext(aiter(played.run))

    (delta,) = asyncio.run(first())
    assert delta.events == [Content("abc")]
    assert len(delta.tokens) == 3


def test_calls_end_as_tool_calls():
    played = Played(thinking=False)
    played.say("hm", *CALL, *CALL[4:], *END)
    played.end()
    (answer,) = played.whole()
    assert [(call.name, call.arguments) for call in answer.calls] == [("f", '{"a": "x"}')] * 2
    assert (answer.content, answer.finish_reason) == ("hm", "tool_calls")


def test_a_call_that_is_cut_is_not_part_of_a_whole_answer():
    played = Played(thinking=False)
    played.say(*CALL[:9])
    played.end("length")
    (answer,) = played.whole()
    assert (answer.calls, answer.finish_reason) == ([], "length")


def test_one_call_ends_the_turn():
    played = Played(thinking=False, one_call=True)
    played.say(*CALL, *CALL[4:])
    (answer,) = played.whole()
    assert (len(answer.calls), answer.finish_reason) == (1, "tool_calls")
    assert played.cancelled == ["r"]


def test_one_call_ends_each_sequence_by_itself():
    played = Played(n=2, thinking=False, one_call=True)
    played.say(*CALL, index=0)
    played.say("a", index=1)
    played.say(*CALL[4:], index=0)
    played.say("b", index=1)
    played.end(index=1)
    first, second = played.whole()
    assert (len(first.calls), first.finish_reason) == (1, "tool_calls")
    assert (second.content, second.finish_reason) == ("ab", "stop")


def test_sequences_that_never_began_end_with_the_request():
    played = Played(n=3)
    played.say("a", index=0)
    played.end("cancelled", index=0)
    answers = played.whole()
    assert [answer.finish_reason for answer in answers] == ["cancelled"] * 3


def test_an_error_comes_after_what_there_was():
    played = Played()
    played.say("a")
    played.end("error", error=EngineFault("gone"))

    async def read():
        async for deltas in played.run:
            seen.extend(deltas)

    seen = []
    with pytest.raises(EngineFault, match="gone"):
        asyncio.run(read())
    assert seen[0].events == [Reasoning("a")]


def test_events_of_a_call_come_as_its_tokens_do():
    played = Played(thinking=False)

    async def main():
        events = []
        runs = aiter(played.run)
        for text in (*CALL, *END):
            played.say(text)
            (delta,) = await anext(runs)
            events += delta.events
        return events

    kinds = [type(event) for event in asyncio.run(main())]
    assert kinds[0] is CallStart
    assert kinds[-1] is CallEnd
    assert set(kinds[1:-1]) == {CallArguments}
