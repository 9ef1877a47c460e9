"""The strings of V4's format. Markers are one token each; the rest of a tag around one is text."""

from __future__ import annotations

BOS = "<｜begin▁of▁sentence｜>"
EOS = "<｜end▁of▁sentence｜>"
USER = "<｜User｜>"
ASSISTANT = "<｜Assistant｜>"
LATEST_REMINDER = "<｜latest_reminder｜>"
THINK = "<think>"
END_THINK = "</think>"
DSML = "｜DSML｜"
TASKS = {
    task: f"<｜{task}｜>"
    for task in ("action", "query", "authority", "domain", "title", "read_url")
}
MARKERS = (
    BOS,
    EOS,
    USER,
    ASSISTANT,
    LATEST_REMINDER,
    THINK,
    END_THINK,
    DSML,
    *TASKS.values(),
)

# <｜DSML｜tool_calls>
# <｜DSML｜invoke name="NAME">
# <｜DSML｜parameter name="KEY" string="true|false">VALUE</｜DSML｜parameter>
# </｜DSML｜invoke>
# </｜DSML｜tool_calls>
PARAGRAPH = "\n\n"  # between the texts of a turn, and the parts of a text
BLOCK_LEAD = "\n\n<"  # what stands before the marker that opens a block
NAME_END = '">\n'
KEY_END = '" string="'
