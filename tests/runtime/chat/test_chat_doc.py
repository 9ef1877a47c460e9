"""The example of docs/chat.md prints what it says."""

from __future__ import annotations

import re
from pathlib import Path

DOC = Path(__file__).parents[3] / "docs" / "chat.md"


def test_example(capsys):
    code, printed = re.findall(r"^```(?:python)?\n(.*?)^```", DOC.read_text("utf-8"), re.M | re.S)
    exec(code, {})
    assert capsys.readouterr().out == printed
