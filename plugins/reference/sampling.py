"""Logits in, tokens out: the `sample` op. The order of rules and filters is that of its table entry.

Each filter sees the renormalised distribution that the one before left. Everything about a row follows
from that row alone.
"""

from __future__ import annotations

import torch

from dsv4_trt.plugins.reference.sampling_rules import BANNED, apply_rules

OK, NO_NUMBER, NOTHING_LEFT = 0, 1, 2  # status


def sample(
    logits: torch.Tensor,
    scales: torch.Tensor,
    doubles: torch.Tensor,
    limits: torch.Tensor,
    num_top: int,
    **rules: torch.Tensor,
) -> dict[str, torch.Tensor]:
    """Reference of the op; `rules` are the masks and the lists."""
    changed = apply_rules(logits, scales[:, 2], limits[:, 1], **rules)
    status = _status(logits, changed)
    good = status == OK
    # a row without a number or a choice goes through as anything that has both
    token = _choose(changed.masked_fill(~good[:, None], 0), scales, doubles, limits[:, 0])
    norm = logits.logsumexp(dim=-1)
    logprob = logits.gather(-1, token[:, None]).squeeze(-1) - norm
    counts = limits[:, 2].clamp(0, num_top).masked_fill(~good, 0)
    top_ids, top_logprobs = _top(logits, norm, counts, num_top)
    return {
        "token": token.masked_fill(~good, -1).int(),
        "logprob": logprob.masked_fill(~good, 0),
        "status": status,
        "top_ids": top_ids,
        "top_logprobs": top_logprobs,
    }


def running_sums(weights: torch.Tensor) -> torch.Tensor:
    """Sums over the vocabulary in fp64, of each row alike whatever is beside it."""
    # CUDA sums a lone row in another order than rows of a batch, so it is given company
    rows = weights if len(weights) > 1 else weights.expand(2, -1)
    return rows.cumsum(dim=-1, dtype=torch.float64)[: len(weights)]


def _status(logits: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    """Of each row, by its best logit before and after the rules; NaN wins `amax`."""
    raw, ruled = logits.amax(dim=-1), changed.amax(dim=-1)
    status = torch.where(ruled == BANNED, NOTHING_LEFT, OK)
    no_number = ~raw.isfinite() | ruled.isnan() | (ruled == float("inf"))
    return torch.where(no_number, NO_NUMBER, status).int()


def _choose(
    logits: torch.Tensor, scales: torch.Tensor, doubles: torch.Tensor, top_k: torch.Tensor
) -> torch.Tensor:
    """Token ids int64 `[num_rows]`."""
    chosen = logits.argmax(dim=-1)  # the first of equals
    top_p, share = doubles.clone().view(torch.float64).unbind(dim=-1)
    temperature, min_p = scales[:, 0], scales[:, 1]
    filters = (top_k > 0) | (top_p < 1) | (min_p > 0)
    drawn = temperature > 0
    plain = (drawn & ~filters).nonzero().squeeze(-1)
    if len(plain):
        weights = _weights(logits[plain], temperature[plain])
        chosen[plain] = _draw(weights, share[plain])
    rest = (drawn & filters).nonzero().squeeze(-1)
    if len(rest):
        ordered, ids = logits[rest].sort(dim=-1, descending=True, stable=True)
        weights = _weights(ordered, temperature[rest])
        _filter(weights, top_k[rest], top_p[rest], min_p[rest])
        chosen[rest] = ids.gather(-1, _draw(weights, share[rest])[:, None]).squeeze(-1)
    return chosen


def _weights(logits: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """Probabilities at each row's temperature, up to a factor: the best token has 1. fp32."""
    temperature = temperature.clamp(min=torch.finfo(torch.float32).tiny)
    return ((logits - logits.amax(dim=-1, keepdim=True)) / temperature[:, None]).exp()


def _filter(
    weights: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor, min_p: torch.Tensor
) -> None:
    """Take the weight from what the filters of each row leave out; weights come best first."""
    vocab = weights.shape[1]
    top_k, top_p, min_p = top_k[:, None], top_p[:, None], min_p[:, None]
    places = torch.arange(vocab, device=weights.device)
    weights.masked_fill_((places >= top_k) & (top_k > 0), 0)
    sums = running_sums(weights)
    before = sums - weights
    weights.masked_fill_((before >= top_p * sums[:, -1:]) & (top_p < 1), 0)
    weights.masked_fill_(weights < min_p, 0)  # the best token weighs 1


def _draw(weights: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
    """Index of the first entry at which the running sum passes the row's share of the total."""
    sums = running_sums(weights)
    passed = (sums > share[:, None] * sums[:, -1:]) & (weights > 0)
    first = passed.to(torch.uint8).argmax(dim=-1)
    # rounding can put the share on the total itself; the best token is as good as any then
    return torch.where(passed.any(dim=-1), first, weights.argmax(dim=-1))


def _top(
    logits: torch.Tensor, norm: torch.Tensor, counts: torch.Tensor, num_top: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and logprobs `[num_rows, num_top]` of the best tokens, best first, ties by id."""
    top_ids = torch.full((len(logits), num_top), -1, dtype=torch.int32, device=logits.device)
    top_logprobs = torch.zeros(len(logits), num_top, device=logits.device)
    for i, count in enumerate(counts.tolist()) if num_top else ():
        if count == 0:
            continue
        worst = logits[i].topk(count).values[-1]
        ids = (logits[i] >= worst).nonzero().squeeze(-1)
        best = logits[i, ids].sort(descending=True, stable=True)
        top_ids[i, :count] = ids[best.indices[:count]].int()
        top_logprobs[i, :count] = best.values[:count] - norm[i]
    return top_ids, top_logprobs
