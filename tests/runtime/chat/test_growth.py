"""Eight times the work takes about eight times as long, not sixty-four times."""

from __future__ import annotations

import time

import pytest

from dsv4_trt.runtime.chat.encoding import encode_segments
from dsv4_trt.runtime.chat.parse import parse_completion
from dsv4_trt.runtime.chat.stream_parser import StreamParser
from tests.runtime.chat.outputs import DSML, EOS, block, parameter

OPEN = f"\n\n<{DSML}tool_calls>\n"


def seconds(work, size):
    """CPU time of the faster of two runs."""

    def once():
        start = time.process_time()
        work(size)
        return time.process_time() - start

    return min(once(), once())


def check_grows_as_the_work(work, size):
    assert seconds(work, 8 * size) < 24 * max(seconds(work, size), 0.002)


def turns(size):
    message = {"role": "user", "content": "a"}
    encode_segments([message, {"role": "assistant", "content": "b"}] * size + [message] * size)


def calls(size):
    calls = [{"id": str(i), "function": {"name": "f", "arguments": "{}"}} for i in range(size)]
    answer = {"role": "assistant", "content": "", "tool_calls": calls}
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "r"} for call in calls]
    encode_segments([answer, *reversed(results)])


def members(size):
    arguments = "{" + ", ".join(f'"{i}": 1e3' for i in range(size)) + "}"
    call = {"id": "1", "function": {"name": "f", "arguments": arguments}}
    encode_segments([{"role": "assistant", "content": "", "tool_calls": [call]}])


@pytest.mark.parametrize("work", [turns, calls, members])
def test_encoding(work):
    check_grows_as_the_work(work, 500)


OUTPUTS = {
    "text": lambda n: "word " * n,
    "line ends": lambda n: "\n\n<" * n,
    "marker beginnings": lambda n: "</thin｜DSML" * n,
    "markers": lambda n: DSML * n,
    "a name": lambda n: f'{OPEN}<{DSML}invoke name="' + '">' * n,
    "values": lambda n: block(("f", "".join(parameter(i, "</") for i in range(n // 10)))),
    "broken blocks": lambda n: OPEN * (n // 4),
    "calls": lambda n: block(*[("f", parameter("a", "x"))] * (n // 10)),
}


@pytest.mark.parametrize("name", OUTPUTS)
@pytest.mark.parametrize("step", [1, 10**9], ids=["by character", "whole"])
def test_streaming(name, step):
    def work(size):
        text, parser = OUTPUTS[name](size), StreamParser(thinking=False)
        for i in range(0, len(text), step):
            parser.push(text[i : i + step])
        parser.finish()

    check_grows_as_the_work(work, 500 if step == 1 else 5000)


def test_strict_parsing():
    check_grows_as_the_work(lambda size: parse_completion(OUTPUTS["calls"](size) + EOS), 10_000)
