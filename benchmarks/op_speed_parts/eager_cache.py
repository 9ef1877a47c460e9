"""The same math as the fused cache ops, written with torch's ops: what a model without fusion runs.

Each function takes an op's arguments and gives a call; what does not depend on activations (rotation
tables, slots as page and row) is made outside the call. The store to pages is part of it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from op_speed_parts.case import Arguments, Call

E4M3_MAX = 448.0


def rotation(positions: Tensor, inv_freq: Tensor, *, inverse: bool = False) -> Tensor:
    """Complex factors `[T, pairs]`."""
    angle = positions.double().unsqueeze(1) * inv_freq.double()
    return torch.polar(torch.ones_like(angle), -angle if inverse else angle).to(torch.complex64)


def rotate(x: Tensor, turn: Tensor) -> Tensor:
    """The last pairs of fp32 `x [T, (heads,) D]` turned by `[T, pairs]`."""
    pairs = turn.shape[1]
    kept, tail = x[..., : -2 * pairs], x[..., -2 * pairs :].unflatten(-1, (pairs, 2))
    turn = turn if x.dim() == 2 else turn.unsqueeze(1)
    turned = torch.view_as_real(torch.view_as_complex(tail.contiguous()) * turn)
    return torch.cat((kept, turned.flatten(-2)), -1)


def normalise(x: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


def quantize(x: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """e4m3 codes and the exponents of power-of-two scales, one for each `block` channels."""
    blocks = x.unflatten(-1, (-1, block))
    amax = blocks.abs().amax(-1).clamp_min(1e-4)
    exponent = torch.ceil(torch.log2(amax / E4M3_MAX))
    codes = (blocks * torch.exp2(-exponent).unsqueeze(-1)).to(torch.float8_e4m3fn)
    return codes.flatten(-2), exponent


def store(pool: Tensor, per_page: int, page: Tensor, row: Tensor, entry: Tensor) -> None:
    """fp8 entries `[n, 512]` of fp32 into pages."""
    codes, exponent = quantize(entry[:, :448], 64)
    rows = pool[:, : per_page * 576].unflatten(1, (per_page, 576))
    rows[page, row, :448] = codes.view(torch.int8)
    rows[page, row, 448:] = entry[:, 448:].bfloat16().view(torch.int8)
    scale = pool[:, per_page * 576 : per_page * 584].unflatten(1, (per_page, 8))
    scale[page, row, :7] = (exponent + 127).to(torch.uint8).view(torch.int8)


def _place(a: Arguments, slots: Tensor, seqs: Tensor) -> tuple[Tensor, Tensor]:
    per_page = a["entries_per_page"]
    after = a.get("window_pages", 0)  # a window's second ring is the one that is written
    page = a["block_table"][0, seqs.long(), after + (slots // per_page).long()].long()
    return page, (slots % per_page).long()


def compress_decode(a: Arguments) -> Call:
    """Every sequence completes a group of four with its token; its seven older rows come from state."""
    width, per_page = a["width"], a["state_entries_per_page"]
    lanes, turn = 2 * width, rotation(a["positions"] // 4 * 4, a["inv_freq"])
    state = a["state_pool"].view(torch.float32)[:, : per_page * 2 * lanes]
    state = state.unflatten(1, (per_page, 2 * lanes))
    slots = a["state_slot_mapping"].long().unsqueeze(1)
    around = slots + torch.arange(-7, 1, device=slots.device)  # the last one is the new token's
    around %= a["state_window_pages"] * per_page
    held = a["state_block_table"][0].long().gather(1, around // per_page)
    offset = around % per_page
    page, row = _place(a, a["slot_mapping"], a["seq_ids"])
    phase = (a["positions"] % 4).long()

    def call() -> None:
        new = a["kv_gate"].clone()
        new[:, lanes:] += a["ape"][phase]
        state[held[:, -1], offset[:, -1]] = new
        terms = state[held, offset]
        _finish(a, _halves(terms, width), turn, page, row)

    return call


def compress_prefill(a: Arguments) -> Call:
    """One prompt from its start; state is kept of the last eight tokens."""
    width, lanes = a["width"], 2 * a["width"]
    groups = len(a["positions"]) // 4
    turn = rotation(a["positions"][::4], a["inv_freq"])
    page, row = _place(a, a["slot_mapping"][3::4], a["seq_ids"][3::4])
    per_page = a["state_entries_per_page"]
    state = a["state_pool"].view(torch.float32)[:2, : per_page * 2 * lanes]
    state = state.unflatten(1, (per_page, 2 * lanes))  # the ring: the last two groups

    def call() -> None:
        rows = a["kv_gate"].view(groups, 4, 2 * lanes).clone()
        rows[..., lanes:] += a["ape"]
        state.copy_(rows[-2:])
        before = torch.nn.functional.pad(rows[:-1], (0, 0, 0, 0, 1, 0))
        before[0, :, lanes:] = -torch.inf
        _finish(a, _halves(torch.cat((before, rows), 1), width), turn, page, row)

    return call


def _halves(terms: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Values and gates of eight terms: first halves of four rows, second halves of the next four."""
    values, gates = terms.chunk(2, -1)
    value = torch.cat((values[:, :4, :width], values[:, 4:, width:]), 1)
    return value, torch.cat((gates[:, :4, :width], gates[:, 4:, width:]), 1)


def _finish(
    a: Arguments, terms: tuple[Tensor, Tensor], turn: Tensor, page: Tensor, row: Tensor
) -> None:
    pooled = (terms[0] * terms[1].softmax(1)).sum(1).bfloat16().float()
    entry = normalise(pooled, a["eps"]) * a["norm_weight"].float()
    store(a["pool"], a["entries_per_page"], page, row, rotate(entry.bfloat16().float(), turn))


def insert(a: Arguments) -> Call:
    """Norm and rotation of q, rotation of kv, its rows into pages."""
    turn = rotation(a["positions"], a["inv_freq"])
    page, row = _place(a, a["slot_mapping"], a["seq_ids"])
    q = a["q"].view(-1, a["num_heads"], a["D"])

    def call() -> Tensor:
        size = torch.rsqrt(q.square().mean(-1, keepdim=True) + a["eps"])  # rounded, as the model is
        out = rotate((q * size).float(), turn).bfloat16()
        store(a["pool"], a["entries_per_page"], page, row, rotate(a["kv"].float(), turn))
        return out

    return call


def inverse(a: Arguments) -> Call:
    """Rotation back, then codes and scales."""
    turn = rotation(a["positions"], a["inv_freq"], inverse=True)
    return lambda: quantize(rotate(a["x"].float(), turn).bfloat16().float().flatten(1), 128)


def indexer_q(a: Arguments) -> Call:
    """Rotation, Hadamard transform as a product, fp4 codes of 32 channels, the constant into weights."""
    dim, turn = a["head_dim"], rotation(a["positions"], a["inv_freq"])
    matrix = torch.ones(1, 1, device=a["q"].device)
    while len(matrix) < dim:
        matrix = torch.cat((torch.cat((matrix, matrix), 1), torch.cat((matrix, -matrix), 1)))
    matrix = (matrix / dim**0.5).bfloat16()
    edges = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], device=a["q"].device)
    q = a["q"].view(-1, a["num_heads"], dim)

    def call() -> tuple[Tensor, Tensor, Tensor]:
        turned = (rotate(q.float(), turn).bfloat16() @ matrix).float().unflatten(-1, (-1, 32))
        exponent = torch.ceil(torch.log2(turned.abs().amax(-1).clamp_min(1e-4) / 6.0))
        scaled = turned * torch.exp2(-exponent).unsqueeze(-1)
        code = torch.bucketize(scaled.abs(), edges) | ((scaled < 0).long() << 3)
        code = code.flatten(-2).to(torch.uint8)
        packed = code[..., ::2] | (code[..., 1::2] << 4)
        return packed, (exponent + 127).to(torch.uint8), a["weights"].float() * a["scale"]

    return call


EAGER = {"qkv_rope_insert": insert, "inv_rope_quant": inverse, "indexer_q": indexer_q}
