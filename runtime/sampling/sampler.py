"""Turns logits into tokens: for each row, in this order,

    bitmask, logit bias, min_tokens, penalties   `logit_rules`
    temperature                                  0 = the best token, ties to the lowest id
    top-k                                        exactly k, ties to the lowest id
    top-p                                        the smallest set that reaches p, at least one
    min-p                                        at least min_p times the best token's probability
    draw                                         by inverse distribution, one uniform number per row

Each filter sees the renormalised distribution that the one before left. Everything about a row follows
from that row alone. A row that can not be sampled gets an error in the place of its token; the others
get the tokens they get without it.
"""

from __future__ import annotations

from math import isfinite

import torch

from dsv4_trt.errors import Dsv4Error, EngineFault, RequestError
from dsv4_trt.runtime.sampling.logit_rules import BANNED, Rows, apply_rules
from dsv4_trt.runtime.sampling.row_state import RowState, SampledToken


class Sampler:
    """Samples rows of logits over one vocabulary, on whatever device the logits are."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def sample(self, logits: torch.Tensor, rows: list[RowState]) -> list[SampledToken | Dsv4Error]:
        """One token for each row of `logits` `[num_rows, vocab]` fp32, or the error that it has.

        That is an `EngineFault` for a row with NaN or +inf, a `RequestError` for one with a bitmask of
        another vocabulary or with no token left to choose. Raises `EngineFault` for logits of another
        dtype or shape.
        """
        self._check_logits(logits, len(rows))
        if not rows:
            return []
        errors, good = self._check_bitmasks(rows)
        changed = apply_rules(logits, good)
        errors |= _find_bad_rows(logits, changed, good)
        good = {i: row for i, row in good.items() if i not in errors}
        return _report(logits, _choose(changed, good), good, errors)

    def _check_logits(self, logits: torch.Tensor, num_rows: int) -> None:
        expected = (num_rows, self.vocab_size)
        if logits.dtype is not torch.float32 or tuple(logits.shape) != expected:
            raise EngineFault(
                f"logits are {logits.dtype} {list(logits.shape)}; "
                f"expected torch.float32 {list(expected)}"
            )

    def _check_bitmasks(self, rows: list[RowState]) -> tuple[dict[int, Dsv4Error], Rows]:
        """Errors of the rows whose bitmask can not be used, and the other rows, both by place."""
        errors: dict[int, Dsv4Error] = {}
        for i, row in enumerate(rows):
            try:
                row.check_bitmask(self.vocab_size)
            except RequestError as error:
                errors[i] = error
        return errors, {i: row for i, row in enumerate(rows) if i not in errors}


def _find_bad_rows(logits: torch.Tensor, changed: torch.Tensor, rows: Rows) -> dict[int, Dsv4Error]:
    """Errors of rows whose best logit, before or after the rules, is no number; NaN wins `amax`."""
    peaks = torch.stack([logits.amax(dim=-1), changed.amax(dim=-1)], dim=-1).tolist()
    return {
        i: error for i, row in rows.items() if (error := _row_error(i, row, *peaks[i])) is not None
    }


def _row_error(i: int, row: RowState, raw: float, ruled: float) -> Dsv4Error | None:
    """What is wrong with row `i` if its maxima before and after the rules are these."""
    if not isfinite(raw) or ruled == float("inf") or ruled != ruled:
        return EngineFault(
            f"logits of row {i} ({row.name}) have the maximum {raw}, {ruled} with bias and "
            "penalties; expected finite numbers. No token was sampled; end this request and run "
            "its tokens through 'dsv4-trt logits --precision exact' to see whether weights or "
            "kernels are at fault"
        )
    if ruled == BANNED:
        return RequestError(
            f"row {i} ({row.name}) has no token left to choose: its bitmask, logit_bias and "
            "min_tokens together ban the whole vocabulary; end the request, or allow the tokens "
            "that end it"
        )
    return None


def _choose(logits: torch.Tensor, rows: Rows) -> torch.Tensor:
    """Token ids `[num_rows]`; those of rows that are not in `rows` mean nothing."""
    chosen = logits.argmax(dim=-1)  # the first of equals
    drawn = {i: row for i, row in rows.items() if row.params.temperature > 0}
    for draw, filters in ((_draw_plain, False), (_draw_filtered, True)):
        part = {i: row for i, row in drawn.items() if _filters(row) is filters}
        if part:
            at = torch.tensor([*part], device=logits.device)
            chosen[at] = draw(logits[at], [*part.values()])
    return chosen


def _filters(row: RowState) -> bool:
    params = row.params
    return params.top_k > 0 or params.top_p < 1 or params.min_p > 0


def _column(values: list[float], like: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype, device=like.device)[:, None]


def _weights(logits: torch.Tensor, rows: list[RowState]) -> torch.Tensor:
    """Probabilities at each row's temperature, up to a factor: the best token has 1. fp32."""
    temperature = _column([r.params.temperature for r in rows], logits, torch.float32)
    temperature.clamp_(min=torch.finfo(torch.float32).tiny)
    return ((logits - logits.amax(dim=-1, keepdim=True)) / temperature).exp()


def _draw_plain(logits: torch.Tensor, rows: list[RowState]) -> torch.Tensor:
    return _draw(_weights(logits, rows), rows)


def _running_sums(weights: torch.Tensor) -> torch.Tensor:
    """Sums over the vocabulary in fp64, of each row alike whatever is beside it."""
    # CUDA sums a lone row in another order than rows of a batch, so it is given company
    rows = weights if len(weights) > 1 else weights.expand(2, -1)
    return rows.cumsum(dim=-1, dtype=torch.float64)[: len(weights)]


def _draw(weights: torch.Tensor, rows: list[RowState]) -> torch.Tensor:
    """Index of the first entry at which the running sum passes the row's share of the total."""
    sums = _running_sums(weights)
    share = _column([row.uniform() for row in rows], weights, torch.float64)
    passed = (sums > share * sums[:, -1:]) & (weights > 0)
    first = passed.to(torch.uint8).argmax(dim=-1)
    # rounding can put the share on the total itself; the best token is as good as any then
    return torch.where(passed.any(dim=-1), first, weights.argmax(dim=-1))


def _draw_filtered(logits: torch.Tensor, rows: list[RowState]) -> torch.Tensor:
    ordered, ids = logits.sort(dim=-1, descending=True, stable=True)
    weights = _weights(ordered, rows)
    vocab = logits.shape[1]
    top_k = _column([min(r.params.top_k or vocab, vocab) for r in rows], logits, torch.int64)
    weights.masked_fill_(torch.arange(vocab, device=logits.device) >= top_k, 0)
    top_p = _column([r.params.top_p for r in rows], logits, torch.float64)
    sums = _running_sums(weights)
    before = sums - weights
    weights.masked_fill_((before >= top_p * sums[:, -1:]) & (top_p < 1), 0)
    min_p = _column([r.params.min_p for r in rows], logits, torch.float32)
    weights.masked_fill_(weights < min_p, 0)  # the best token weighs 1
    return ids.gather(-1, _draw(weights, rows)[:, None]).squeeze(-1)


def _report(
    logits: torch.Tensor, chosen: torch.Tensor, rows: Rows, errors: dict[int, Dsv4Error]
) -> list[SampledToken | Dsv4Error]:
    norm = logits.logsumexp(dim=-1)
    logprobs = (logits.gather(-1, chosen[:, None]).squeeze(-1) - norm).tolist()
    report: list[SampledToken | Dsv4Error] = []
    for i, (token_id, logprob) in enumerate(zip(chosen.tolist(), logprobs, strict=True)):
        if i in errors:
            report.append(errors[i])
            continue
        top = _top(logits[i], norm[i], rows[i].params.logprobs or 0)
        report.append(SampledToken(token_id, logprob, top))
    return report


def _top(logits: torch.Tensor, norm: torch.Tensor, count: int) -> tuple[tuple[int, float], ...]:
    """The `count` best (token, logprob) of one row, best first, ties by id."""
    if count == 0:
        return ()
    worst = logits.topk(count).values[-1]
    ids = (logits >= worst).nonzero().squeeze(-1)
    pairs = zip(ids.tolist(), (logits[ids] - norm).tolist(), strict=True)
    return tuple(sorted(pairs, key=lambda pair: (-pair[1], pair[0]))[:count])
