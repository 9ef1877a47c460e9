"""An answer that comes back as a message is the tokens that the model wrote, reasoning and calls too."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4_trt.runtime.chat.encoding import encode_messages, encode_segments
from dsv4_trt.runtime.chat.parse import parse_completion
from dsv4_trt.runtime.chat.stream_parser import StreamParser
from dsv4_trt.runtime.sampling.sampling_params import SamplingParams
from dsv4_trt.runtime.text.text_stream import TextStream
from tests.runtime.chat.outputs import DSML, EOS, joined, message_of, read

USER = {"role": "user", "content": "Go."}
SPELLINGS = ["1.0", "1e3", "1E+2", "-0.0", "0", "9" * 40, "12345678901234567890", "0.10", "1e400"]
SPELLINGS += ["true", "null", "[1,2]", "[1, 2]", "{}", '{"a":[ ]}', '["</x>"]', '["\\u00e9"]']
MARKUP = [DSML, "</think>", "<think>", EOS, f"</{DSML}parameter>\n", f"\n\n<{DSML}tool_calls>\n"]
plain = st.text(
    st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from('<>/"\n\\ ')), max_size=12
)
plain = plain.filter(lambda text: not any(marker in text for marker in MARKUP[:4]))
spelled = st.lists(st.one_of(plain, st.sampled_from(MARKUP)), max_size=4).map("".join)


def quote(text):
    return json.dumps(text, ensure_ascii=False)


@st.composite
def answers(draw, text):
    """An assistant's message as a client echoes it; arguments mostly in the layout it got them in."""
    keys = text.filter(lambda key: '" string=' not in key)
    names = text.filter(lambda name: name and '">\n' not in name)
    values = st.one_of(text.map(quote), st.sampled_from(SPELLINGS), st.integers().map(str))
    calls = []
    for i in range(draw(st.integers(0, 2))):
        members = draw(st.dictionaries(keys, values, max_size=3))
        arguments = (
            "{" + ", ".join(f"{quote(key)}: {value}" for key, value in members.items()) + "}"
        )
        if draw(st.integers(0, 5)) == 0:
            arguments = draw(text)
        function = {"name": draw(names), "arguments": arguments}
        calls.append({"id": f"call{i}", "type": "function", "function": function})
    return {
        "role": "assistant",
        "content": draw(text),
        "reasoning_content": draw(text),
        "tool_calls": calls,
    }


def conversation(answer):
    """The answer after a question, with results of its calls."""
    calls = answer["tool_calls"]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in calls]
    return [USER, answer, *(results or [USER])]


def with_ids(message, answer):
    """The message as a client keeps it: with ids of calls."""
    pairs = zip(message["tool_calls"], answer["tool_calls"], strict=True)
    return message | {"tool_calls": [call | {"id": other["id"]} for call, other in pairs]}


@settings(max_examples=100, deadline=None)
@given(answers(spelled), st.booleans())
def test_sampled_tokens_come_back(tokenizer, markup, answer, thinking):
    """Token ids -> text with marks -> events -> message -> the same token ids; markers may be spelled."""

    def encode(messages):
        segments = encode_segments(messages, thinking=thinking, drop_thinking=False)
        return markup.encode(segments, tokenizer)

    start, ids = len(encode([USER])), encode([USER, answer])
    text = TextStream(tokenizer, SamplingParams(max_tokens=1), markup.eos)
    parser = StreamParser(thinking)
    events = []
    for token_id in ids[start:]:
        shown = text.push(token_id)
        events += parser.push(shown, [] if text.mark is None else [text.mark])
    assert text.matched == markup.eos
    message = message_of(joined(events + parser.finish()))
    assert message["content"] == answer["content"]
    assert message["reasoning_content"] == (answer["reasoning_content"] if thinking else "")
    names = [call["function"]["name"] for call in answer["tool_calls"]]
    assert [call["function"]["name"] for call in message["tool_calls"]] == names
    echoed = with_ids(message, answer)
    assert encode(conversation(echoed)) == encode(conversation(answer))
    assert encode([USER, echoed]) == ids


@settings(max_examples=100, deadline=None)
@given(answers(plain), st.booleans(), st.data())
def test_both_parsers_read_what_is_encoded(answer, thinking, data):
    options = {"thinking": thinking, "drop_thinking": False}
    text = encode_messages([USER, answer], **options)[len(encode_messages([USER], **options)) :]
    message = parse_completion(text, thinking=thinking)
    size = data.draw(st.integers(1, len(text)))
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    assert message_of(read(pieces, thinking=thinking)) == message
    echoed = with_ids(message, answer)
    whole = conversation(answer)
    assert encode_messages(conversation(echoed), **options) == encode_messages(whole, **options)


def test_numbers_are_echoed_as_the_model_spelled_them():
    arguments = "{" + ", ".join(f'"{i}": {text}' for i, text in enumerate(SPELLINGS[:-1])) + "}"
    call = {"id": "1", "function": {"name": "f", "arguments": arguments}}
    text = encode_messages([{"role": "assistant", "content": "", "tool_calls": [call]}])
    message = parse_completion(text.removeprefix("<｜begin▁of▁sentence｜>"))
    assert message["tool_calls"][0]["function"]["arguments"] == arguments
