"""Events of the parser, as hypothesis makes them, and what the APIs' streams make of them."""

import json

from hypothesis import strategies as st

from dsv4_trt.runtime.chat.events import CallArguments, CallEnd, CallStart, Content, Reasoning

_TEXTS = st.text(min_size=1, max_size=3)
PIECES = st.lists(
    st.one_of(
        st.lists(_TEXTS.map(Reasoning), min_size=1),
        st.lists(_TEXTS.map(Content), min_size=1),
        st.integers(0, 9).map(
            lambda i: [
                CallStart(i, "f"),
                CallArguments(i, '{"a"'),
                CallArguments(i, ": 1}"),
                CallEnd(i),
            ]
        ),
    )
)


def named_events(stream):
    """Events of a stream's text; each is framed by its own name."""
    found = []
    for part in stream.split("\n\n")[:-1]:
        name, data = part.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        found.append(event)
    return found
