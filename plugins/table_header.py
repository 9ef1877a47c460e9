"""Writes the op table as a C++ header: names for the places of a call's tensors and attributes, and JSON.

python -m dsv4_trt.plugins.table_header op_table.h
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from dsv4_trt.plugins.op_schema import Op
from dsv4_trt.plugins.ops import OPS


def table_header() -> str:
    """The header's text; its order of ops, tensors and attributes is that of the table."""
    ops = OPS.values()
    names = ", ".join(f'"{op.name}"' for op in ops)
    texts = ",\n    ".join(_literal(json.dumps(op.to_json())) for op in ops)
    return "\n".join(
        [
            "// Written from the op table by dsv4_trt.plugins.table_header.",
            "#pragma once",
            "namespace dsv4::table {",
            f"constexpr int num_ops = {len(OPS)};",
            f"constexpr const char* names[] = {{{names}}};",
            f"constexpr const char* json[] = {{\n    {texts}}};",
            *(_namespace(op) for op in ops),
            "}  // namespace dsv4::table",
            "",
        ]
    )


def _namespace(op: Op) -> str:
    lists = {
        "in": (p.name for p in op.inputs),
        "out": (p.name for p in op.outputs),
        "attr": iter(op.attrs),
    }
    body = " ".join(f"namespace {kind} {{ {_enum(names)} }}" for kind, names in lists.items())
    return f"namespace {op.name} {{ {body} }}"


def _enum(names: Iterable[str]) -> str:
    found = ", ".join(names)
    return f"enum {{ {found} }};" if found else ""


def _literal(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(table_header())
