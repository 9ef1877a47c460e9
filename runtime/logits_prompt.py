"""Prompts whose logits are wanted, and what is wanted of them. Knows no torch."""

from __future__ import annotations

from dataclasses import dataclass

from dsv4_trt.errors import RequestError
from dsv4_trt.kv_layout import CacheClass
from dsv4_trt.runtime.request import Limits, check_length, check_prompt_ids

SUFFIXES = (".decode", ".mtp", ".mtp_decode")  # of the names that a prompt's id makes


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitsPrompt:
    """One prompt; `forced_ids` are fed while decoding instead of the greedy tokens."""

    id: str
    token_ids: tuple[int, ...]
    forced_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitsOptions:
    """What to compute for each prompt."""

    all_positions: bool = True
    decode: int = 0  # steps of one token each
    chunk: int = 0  # prefill tokens per step; 0 = as many as the engine takes
    mtp: bool = False


def check_prompt(limits: Limits, prompt: LogitsPrompt, options: LogitsOptions) -> None:
    """Raise `RequestError` for a prompt or options that this engine, opened or not, can not serve."""
    name = f"prompt '{prompt.id}'"
    check_prompt_ids(name, prompt.token_ids, limits)
    if prompt.forced_ids:
        check_prompt_ids(f"forced_ids of {name}", prompt.forced_ids, limits)
    check_length(name, len(prompt.token_ids), options.decode, limits)
    if options.mtp and CacheClass.MTP_SWA not in limits.layout.classes:
        raise RequestError(
            "--mtp asks for the MTP block, which this engine was built without; build with --mtp "
            "from a checkpoint converted with --mtp keep"
        )
    if options.chunk > limits.build.max_num_tokens:
        raise RequestError(
            f"chunk {options.chunk} is above the engine's max_num_tokens "
            f"{limits.build.max_num_tokens}; ask for at most that, or for 0"
        )
