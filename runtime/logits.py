"""Logits of given prompts: what the model says at every position, for comparison with any reference."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from dsv4_trt.runtime.engine import Engine
from dsv4_trt.runtime.logits_prompt import LogitsOptions, LogitsPrompt, check_prompt
from dsv4_trt.runtime.stepper import Chunk, Stepper


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
        self.row = self.stepper.kv.open()
        self.mtp_row = self.stepper.mtp_kv.open() if options.mtp else None
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
        chunk = Chunk(row=self.row, token_ids=ids, all_logits=every)
        output = self.stepper.step([chunk], want_streams=self.options.mtp)
        if last:
            greedy = int(output.logits[-1].argmax())
            self.next_token = next(self.forced, greedy)
        if self.mtp_row is None or output.streams is None:
            return output.logits, output.logits[:0]
        shifted = Chunk(row=self.mtp_row, token_ids=(*ids[1:], self.next_token), all_logits=every)
        return output.logits, self.stepper.step_mtp([shifted], output.streams).logits
