"""FlashMLA's sparse attention; DeepGEMM's indexer scores with SGLang's top-k behind them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dsv4_trt.plugins.costs import Span
from op_speed_parts import kit
from op_speed_parts.case import Call, Peer

GPU = "cuda"
HEADS, DIM, WINDOW, PICKS = 64, 512, 128, 512
SCALE = DIM**-0.5
MOST_PAGES = 4 << 30  # bytes of pages at most


def attention(ratio: int, spans: tuple[Span, ...]) -> tuple[Peer, ...]:
    if spans[0].fed == 1:
        return (
            Peer(
                name="FlashMLA",
                build=lambda count: _decode(ratio, spans[0].length, len(spans), count),
                remark="schedule made before; no inverse rotation",
            ),
        )
    return (
        Peer(
            name="FlashMLA",
            build=lambda count: [_prefill(ratio, spans[0])] * count,
            remark="over bf16 keys gathered before",
        ),
    )


def _flash_mla() -> tuple[Any, bool]:
    """Its ops, and whether they take an output: vLLM's build does."""
    try:
        return kit.torch_ops("vllm._flashmla_C", "_flashmla_C.abi3.so"), True
    except kit.Missing:
        return kit.package("flash_mla.cuda"), False


def _entry_pages(entries: int, per_page: int) -> Tensor:
    """fp8 entries `[pages, per_page, 1, 584]` as a view of padded pages."""
    stride = -(-584 * per_page // 576) * 576
    count = min(-(-entries // per_page), MOST_PAGES // stride)
    pages = torch.randint(0x28, 0x48, (count, stride), dtype=torch.uint8, device=GPU)
    rows = pages[:, : 576 * per_page].unflatten(1, (per_page, 576))
    turned = torch.randn(count, per_page, 64, device=GPU, dtype=torch.bfloat16)
    rows[..., 448:] = turned.view(torch.uint8)
    pages[:, 576 * per_page : 584 * per_page] = 120
    used = pages[:, : 584 * per_page].view(torch.float8_e4m3fn)
    return used.view(count, per_page, 1, 584)


def _decode(ratio: int, length: int, batch: int, count: int) -> list[Call]:
    ops, into = _flash_mla()
    per_page, entries = (64, length // 4) if ratio == 4 else (2, length // 128)
    chosen = min(entries, PICKS) if ratio == 4 else entries
    window = _entry_pages(256 * batch * count, 256)
    pages = _entry_pages(
        batch * entries * (count if length <= 8192 or ratio == 128 else 1), per_page
    )
    slots = pages.shape[0] * per_page
    sinks = torch.randn(HEADS, device=GPU)
    lengths = None if ratio == 4 else torch.full((batch,), chosen, dtype=torch.int32, device=GPU)
    schedule: list[Any] = [None, None]

    def one(index: int) -> Call:
        sequence = torch.arange(batch, device=GPU).unsqueeze(1) + index * batch
        recent = (256 * sequence + torch.arange(WINDOW, device=GPU)).int().view(batch, 1, WINDOW)
        if ratio == 4:
            local = torch.randint(entries, (batch, chosen), device=GPU)
        else:
            local = torch.arange(chosen, device=GPU).unsqueeze(0)
        older = ((sequence * entries + local) % slots).int().view(batch, 1, chosen)
        q = torch.randn(batch, 1, HEADS, DIM, device=GPU, dtype=torch.bfloat16)
        out = (torch.empty_like(q),) if into else ()

        def call() -> Tensor:
            result = ops.sparse_decode_fwd(
                q, window, recent, None, sinks, *schedule, pages, older, lengths, DIM, SCALE, *out
            )
            schedule[:] = result[2:4]
            return result[0]

        return call

    return [one(index) for index in range(count)]


def _prefill(ratio: int, span: Span) -> Call:
    ops, into = _flash_mla()
    position = torch.arange(span.length - span.fed, span.length, device=GPU).unsqueeze(1)
    compressed = span.length // ratio
    visible = (position + 1) // ratio
    entries = visible.clamp(max=PICKS) if ratio == 4 else visible
    recent = (position + 1).clamp(max=WINDOW)
    most = min(PICKS, compressed) if ratio == 4 else compressed
    width = -(-(most + WINDOW) // 128) * 128
    column = torch.arange(width, device=GPU).unsqueeze(0)
    if ratio == 4:
        older = (torch.rand(span.fed, width, device=GPU) * visible).long()
    else:
        older = column.expand(span.fed, width)
    # rows of keys: all entries, 128 tokens from before the step, then the step's own
    row = torch.arange(span.fed, device=GPU).unsqueeze(1)
    window = compressed + WINDOW + row + 1 - recent + column - entries
    ids = torch.where(column < entries, older, window)
    ids = ids.masked_fill(column >= entries + recent, -1).int().unsqueeze(1).contiguous()
    lengths = (entries + recent).flatten().int()
    options = {"device": GPU, "dtype": torch.bfloat16}
    q = torch.randn(span.fed, HEADS, DIM, **options)
    keys = torch.randn(compressed + WINDOW + span.fed, 1, DIM, **options)
    sinks = torch.randn(HEADS, device=GPU)
    out = (torch.empty_like(q),) if into else ()
    return lambda: ops.sparse_prefill_fwd(q, keys, ids, SCALE, DIM, sinks, lengths, *out)[0]


def index(spans: tuple[Span, ...]) -> tuple[Peer, ...]:
    decode = spans[0].fed == 1
    build = _paged_scores if decode else _flat_scores
    return (
        Peer(
            name="DeepGEMM + SGLang topk",
            build=lambda count: build(spans, count),
            compiled="DeepGEMM paged scores" if decode else "DeepGEMM flat scores",
            remark="fp8 scores, then top-k: times added",
        ),
    )


def _best(lengths: Tensor, columns: int) -> Any:
    """SGLang's top-k over rows of scores, as a function of the scores."""
    topk, rows = kit.module("topk"), lengths.numel()
    pages = torch.arange(-(-columns // 64), dtype=torch.int32, device=GPU)
    pages = pages.expand(rows, -1).contiguous()
    out = torch.empty(rows, PICKS, dtype=torch.int32, device=GPU)
    plan = torch.empty(rows + 1, 2, dtype=torch.int32, device=GPU)
    topk["plan"](lengths, plan, 0)
    return lambda scores: topk["transform"](scores, lengths, pages, out, 64, plan, None)


def _as_torch(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else torch.utils.dlpack.from_dlpack(value)


def _codes(*shape: int) -> Tensor:
    return torch.randn(*shape, device=GPU, dtype=torch.bfloat16).to(torch.float8_e4m3fn)


def _paged_scores(spans: tuple[Span, ...], count: int) -> list[Call]:
    gemm, batch, entries = kit.package("deep_gemm"), len(spans), spans[0].length // 4
    per_set = batch * entries // 64
    pages = torch.randint(0x28, 0x48, (per_set * count, 64 * 132), dtype=torch.uint8, device=GPU)
    scale = torch.rand(per_set * count, 64, device=GPU) + 0.5
    pages[:, 64 * 128 :] = scale.view(torch.uint8)
    pages = pages.view(-1, 64, 1, 132)
    table = torch.randperm(per_set * count, device=GPU).int().view(count, batch, entries // 64)
    length = torch.full((batch, 1), entries, dtype=torch.int32, device=GPU)
    plan = _as_torch(gemm.get_paged_mqa_logits_metadata(length, 64, gemm.get_num_sms()))
    best = _best(length.flatten(), entries)

    def one(index: int) -> Call:
        q, weights = _codes(batch, 1, 64, 128), torch.randn(batch, 64, device=GPU)
        own = table[index].contiguous()

        def call() -> None:
            best(
                _as_torch(
                    gemm.fp8_paged_mqa_logits(q, pages, weights, length, own, plan, entries, False)
                )
            )

        return call

    return [one(index) for index in range(count)]


def _flat_scores(spans: tuple[Span, ...], count: int) -> list[Call]:
    gemm, (length, fed) = kit.package("deep_gemm"), spans[0]
    entries = length // 4
    keys = _codes(entries, 128), torch.rand(entries, device=GPU) + 0.5
    q, weights = _codes(fed, 64, 128), torch.randn(fed, 64, device=GPU)
    first = torch.zeros(fed, dtype=torch.int32, device=GPU)
    end = ((torch.arange(length - fed, length, device=GPU) + 1) // 4).int()
    best = _best(end, entries)

    def call() -> None:
        best(_as_torch(gemm.fp8_mqa_logits(q, keys, weights, first, end, False))[:, :entries])

    return [call] * count
