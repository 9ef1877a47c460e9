"""What an output must have looked like for its events: shows that no character was lost."""

from __future__ import annotations

import re

from dsv4_trt.runtime.chat.events import CallEnd, CallStart, Content, Reasoning
from tests.runtime.chat.outputs import DSML, EOS, block

OPEN = re.escape(f"\n\n<{DSML}tool_calls>\n")
CLOSE = re.escape(f"\n</{DSML}tool_calls>")
EMPTY = f"(?:{re.escape(block())})*"  # blocks without calls say nothing


def source_pattern(events, *, thinking, has_marks):
    """A pattern of every output that may give these events, in one push."""
    parts = ["(?:<think>)?"] if thinking else []
    parts += [re.escape(event.text) for event in events if isinstance(event, Reasoning)]
    parts += ["(?:</think>)?"] if thinking else []
    in_block = False
    for event in events:
        if isinstance(event, Content):
            parts += [f"(?:{CLOSE})?" if in_block else "", EMPTY, re.escape(event.text)]
            in_block = False
        elif isinstance(event, CallStart):
            opens = f"(?:{CLOSE})?{EMPTY}{OPEN}"
            parts.append(f"(?:{opens}|\n)" if in_block else f"{EMPTY}{OPEN}")
            parts.append(re.escape(f'<{DSML}invoke name="{event.name}">\n') + ".*?")
            in_block = True
        elif isinstance(event, CallEnd):
            parts.append(re.escape(f"</{DSML}invoke>"))
    if in_block:  # what is left of a tag at the end is dropped
        parts.append("(?:\n.*)?" if isinstance(events[-1], CallEnd) else ".*")
    parts += [EMPTY] if has_marks else [EMPTY, f"(?:{EOS})?"]
    return re.compile("".join(parts), re.DOTALL)
