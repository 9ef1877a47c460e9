"""A model's config.pbtxt, rendered from the tables of tensors."""

from __future__ import annotations

import json
from collections.abc import Mapping

from dsv4_trt.errors import ConfigError
from dsv4_trt.runtime.triton.tensors import INPUT_TYPES, OUTPUTS


def model_config(name: str, max_batch_size: int, parameters: Mapping[str, str]) -> str:
    """The text of config.pbtxt: a decoupled model of one process."""
    parts = [
        f"name: {quote(name)}",
        'backend: "python"',
        f"max_batch_size: {max_batch_size}",
        "model_transaction_policy { decoupled: true }",
        "instance_group [ { count: 1, kind: KIND_CPU } ]  # the engine chooses its own device",
        *(_parameter(key, value) for key, value in parameters.items()),
        *(_tensor("input", n, kind, "[ -1 ], optional: true") for n, kind in INPUT_TYPES.items()),
        *(
            _tensor("output", name, output.data_type, "[ -1, -1 ]" if output.is_row else "[ -1 ]")
            for name, output in OUTPUTS.items()
        ),
    ]
    return "\n".join(parts) + "\n"


def quote(text: str) -> str:
    """A text as protobuf's text format writes it; `ConfigError` for one that can not be."""
    if not text.isprintable():
        raise ConfigError(
            f"{text!r} has characters that config.pbtxt can not hold; use another name"
        )
    return json.dumps(text, ensure_ascii=False)


def _parameter(key: str, value: str) -> str:
    return f"parameters {{ key: {quote(key)}, value: {{ string_value: {quote(value)} }} }}"


def _tensor(kind: str, name: str, data_type: str, dims: str) -> str:
    return f'{kind} [ {{ name: "{name}", data_type: {data_type}, dims: {dims} }} ]'
