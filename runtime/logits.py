"""Logits of given prompts: what the model says at every position, for comparison with any reference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from dsv4_trt.errors import RequestError
from dsv4_trt.kv_layout import CacheClass
from dsv4_trt.runtime.engine import Engine
from dsv4_trt.runtime.stepper import Chunk, Stepper

if TYPE_CHECKING:
    from dsv4_trt.runtime.bundle import Bundle

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


def prompt_logits(
    engine: Engine, prompt: LogitsPrompt, options: LogitsOptions
) -> dict[str, torch.Tensor]:
    """fp32 logits by name: `ID`, `ID.decode`, `ID.mtp`, `ID.mtp_decode`, each `[positions, vocab]`.

    Row j of `.decode` follows the j-th decoded token. MTP rows belong to the position they are
    computed at and predict the token after next.
    """
    check_prompt(engine, prompt, options)
    return _Run(engine, prompt, options).result()


class _Run:
    def __init__(self, engine: Engine, prompt: LogitsPrompt, options: LogitsOptions) -> None:
        self.options = options
        self.prompt = prompt
        self.chunk = options.chunk or engine.build.max_num_tokens
        self.stepper = Stepper(engine)
        self.pages = self.stepper.kv.open()
        self.mtp_pages = self.stepper.kv.open(mtp=True) if options.mtp else None
        self.forced: Iterator[int] = iter(prompt.forced_ids)
        self.next_token = -1  # follows what was fed last

    def result(self) -> dict[str, torch.Tensor]:
        name, ids = self.prompt.id, self.prompt.token_ids
        rows, mtp_rows = self._prefill(ids)
        out = {name: rows}
        decoded, mtp_decoded = [], []
        for _ in range(self.options.decode):
            step, drafts = self._feed((self.next_token,), last=True)
            decoded.append(step)
            mtp_decoded.append(drafts)
        if self.options.decode:
            out[f"{name}.decode"] = torch.cat(decoded)
        if self.options.mtp:
            out[f"{name}.mtp"] = mtp_rows
            if self.options.decode:
                out[f"{name}.mtp_decode"] = torch.cat(mtp_decoded)
        return out

    def _prefill(self, ids: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        rows, mtp_rows = [], []
        for start in range(0, len(ids), self.chunk):
            end = min(start + self.chunk, len(ids))
            if end < len(ids):
                self.next_token = ids[end]
            step, drafts = self._feed(ids[start:end], last=end == len(ids))
            rows.append(step)
            mtp_rows.append(drafts)
        if not self.options.all_positions:
            rows, mtp_rows = rows[-1:], mtp_rows[-1:]
        return torch.cat(rows), torch.cat(mtp_rows)

    def _feed(self, ids: tuple[int, ...], *, last: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """One step; with `last`, the token that follows is chosen from its last row."""
        every = self.options.all_positions
        chunk = Chunk(pages=self.pages, token_ids=ids, all_logits=every)
        output = self.stepper.step([chunk], want_streams=self.options.mtp)
        if last:
            greedy = int(output.logits[-1].argmax())
            self.next_token = next(self.forced, greedy)
        if self.mtp_pages is None or output.streams is None:
            return output.logits, output.logits[:0]
        shifted = Chunk(
            pages=self.mtp_pages, token_ids=(*ids[1:], self.next_token), all_logits=every
        )
        return output.logits, self.stepper.step_mtp([shifted], output.streams).logits


def check_prompt(engine: Engine | Bundle, prompt: LogitsPrompt, options: LogitsOptions) -> None:
    """Raise `RequestError` for a prompt or options that this engine, opened or not, can not serve."""
    if not prompt.token_ids:
        raise RequestError(f"prompt '{prompt.id}' has no token_ids; expected at least one")
    vocab = engine.spec.vocab_size
    for token in (*prompt.token_ids, *prompt.forced_ids):
        if not 0 <= token < vocab:
            raise RequestError(
                f"prompt '{prompt.id}' has token id {token}; the vocabulary is 0 to {vocab - 1}"
            )
    total = len(prompt.token_ids) + options.decode
    if total > engine.build.max_seq_len:
        raise RequestError(
            f"prompt '{prompt.id}' with {len(prompt.token_ids)} tokens and {options.decode} decode "
            f"steps is longer than the engine's max_seq_len {engine.build.max_seq_len}; shorten it "
            "or build with a larger --max_seq_len"
        )
    if options.mtp and CacheClass.MTP_SWA not in engine.layout.classes:
        raise RequestError(
            "--mtp asks for the MTP block, which this engine was built without; build with --mtp "
            "from a checkpoint converted with --mtp keep"
        )
    if options.chunk > engine.build.max_num_tokens:
        raise RequestError(
            f"chunk {options.chunk} is above the engine's max_num_tokens "
            f"{engine.build.max_num_tokens}; ask for at most that, or for 0"
        )
