"""Sizes that steps are padded to on a GPU: engines run them, plans have profiles for them."""

from __future__ import annotations

from dsv4_trt.contract import BuildSpec
from dsv4_trt.ladder import Ladder, StepLadders

_FINE_TOKENS = 256  # from here on, token rungs are this far apart: prefill pays for its padding


def step_ladders(build: BuildSpec) -> StepLadders:
    """Rungs of sequences and of tokens; the former are of both, so that decodes get no more rows."""
    most = build.max_num_tokens
    seqs = Ladder.up_to(build.max_batch_size)
    below = [rung for rung in Ladder.up_to(most).rungs if rung <= _FINE_TOKENS]
    fine = range(2 * _FINE_TOKENS, most, _FINE_TOKENS)
    return StepLadders(seqs=seqs, tokens=Ladder(tuple(sorted({*below, *fine, most, *seqs.rungs}))))
