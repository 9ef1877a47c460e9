"""SGLang's fused kernels and vLLM's, for the ops between projections and caches."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from op_speed_parts import kit
from op_speed_parts.case import Call, Peer

HEADS, DIM, GROUPS = 64, 512, 8
TABLE_LENGTH = 8192  # positions in the peers' rotation table
GPU = "cuda"


def _turns() -> Tensor:
    """Complex factors of every position, `[8192, 32]`."""
    inv_freq = 10000.0 ** (-torch.arange(32, device=GPU) / 32)
    angle = torch.outer(torch.arange(TABLE_LENGTH, device=GPU).float(), inv_freq)
    return torch.polar(torch.ones_like(angle), angle)


def _interleaved() -> Tensor:
    """Cosine and sine of each pair next to each other, `[8192, 64]`."""
    return torch.view_as_real(_turns()).flatten(-2).contiguous()


def _positions(tokens: int) -> Tensor:
    return torch.randint(TABLE_LENGTH, (tokens,), device=GPU)


def _bf16(*shape: int) -> Tensor:
    return torch.randn(*shape, device=GPU, dtype=torch.bfloat16)


def _pages(entries: int, per_page: int) -> Tensor:
    page = -(-584 * per_page // 576) * 576
    return torch.zeros(-(-entries // per_page), page, dtype=torch.uint8, device=GPU)


def insert(tokens: int) -> tuple[Peer, ...]:
    """Q norm and rotation, then kv norm, rotation and insert: two kernels."""

    def build(count: int) -> list[Call]:
        ops, table, at = kit.module("main_norm_rope"), _interleaved(), _positions(tokens).int()
        weight = _bf16(DIM).abs()

        def one() -> Call:
            q, kv, pool = _bf16(tokens, HEADS, DIM), _bf16(tokens, DIM), _pages(tokens, 256)
            out, slots = torch.empty_like(q), torch.randperm(tokens, device=GPU).int()

            def call() -> None:
                ops["q"](q, out, table, at, 1e-6)
                ops["kv"](kv, weight, table, at, slots, pool, 1e-6)

            return call

        return [one() for _ in range(count)]

    return (Peer(name="SGLang", build=build, remark="also applies the norm of kv; two kernels"),)


def inverse(tokens: int) -> tuple[Peer, ...]:
    """VLLM's kernel, and SGLang's two."""

    def vllm(count: int) -> list[Call]:
        run, turns, at = kit.vllm_inverse_rope(), _turns(), _positions(tokens)
        table = torch.cat((turns.real, turns.imag), 1).contiguous()

        def one() -> Call:
            x = _bf16(tokens, HEADS, DIM)
            return lambda: run(x, at, table, GROUPS, HEADS // GROUPS)

        return [one() for _ in range(count)]

    def sglang(count: int) -> list[Call]:
        turn, quantize = kit.module("rope")["forward"], kit.module("wo_a_quant")["run"]
        table, at, width = _interleaved(), _positions(tokens), HEADS * DIM // GROUPS

        def one() -> Call:
            x = _bf16(tokens, HEADS, DIM)
            codes = torch.empty(tokens, GROUPS, width, device=GPU, dtype=torch.float8_e4m3fn)
            scale = torch.empty(GROUPS, tokens, width // 128, device=GPU)

            def call() -> None:
                turn(x[..., -64:], None, table, at, True)
                quantize(x.view(tokens, GROUPS, width), codes, scale)

            return call

        return [one() for _ in range(count)]

    return (
        Peer(name="vLLM triton", build=vllm, compiled="vllm inverse rope"),
        Peer(name="SGLang", build=sglang, remark="two kernels"),
    )


def indexer_q(tokens: int) -> tuple[Peer, ...]:
    """SGLang's kernels for fp4 codes, and for fp8 codes compiled when run and ahead of time."""

    def inputs() -> tuple[Tensor, Tensor, Tensor]:
        return (
            _bf16(tokens, HEADS, 128),
            _bf16(tokens, HEADS),
            torch.empty(tokens, HEADS, 1, device=GPU),
        )

    def fp4(count: int) -> list[Call]:
        run, table = kit.module("main_norm_rope")["index_fp4"], _interleaved()
        at = _positions(tokens).int()

        def one() -> Call:
            q, weights, out = inputs()
            codes = torch.empty(tokens, HEADS, 64, device=GPU, dtype=torch.int8)
            scale = torch.empty(tokens, HEADS, device=GPU, dtype=torch.int32)
            return lambda: run(q, codes, scale, weights, out, 0.5, table, at)

        return [one() for _ in range(count)]

    def fp8(count: int, *, ahead: bool) -> list[Call]:
        run: Any = (
            kit.torch_ops(
                "sgl_kernel", "sm90/common_ops.abi3.so"
            ).dsv4_fused_q_indexer_rope_hadamard_quant
            if ahead
            else kit.module("main_norm_rope")["index_fp8"]
        )
        table, at = _interleaved(), _positions(tokens).int()

        def one() -> Call:
            q, weights, out = inputs()
            codes = torch.empty(tokens, HEADS, 128, device=GPU, dtype=torch.float8_e4m3fn)
            folded = out[..., 0] if ahead else out
            return lambda: run(q, codes, weights, folded, 0.5, table, at)

        return [one() for _ in range(count)]

    return (
        Peer(name="SGLang fp4", build=fp4),
        Peer(name="SGLang fp8", build=lambda n: fp8(n, ahead=False), remark="fp8 codes"),
        Peer(name="sgl_kernel fp8", build=lambda n: fp8(n, ahead=True), remark="fp8 codes"),
    )


def compressor(tokens: int, prefill: bool) -> tuple[Peer, ...]:
    """SGLang's pooling, then norm, rotation and insert; every token (every fourth) completes an entry."""
    build = _compress_prefill if prefill else _compress_decode
    return (Peer(name="SGLang", build=lambda count: build(tokens, count), remark="two kernels"),)


def _compress_decode(tokens: int, count: int) -> list[Call]:
    pool_rows, finish = kit.module("compress")["decode"], kit.module("norm_rope")["forward"]
    table, ape = _interleaved(), torch.randn(8, 512, device=GPU)
    weight = torch.rand(512, device=GPU) + 0.5
    row = torch.arange(tokens, dtype=torch.int32, device=GPU)
    length = torch.full_like(row, 4096)
    # sequence length, where its row goes, and the pages of the previous and of this group
    plan = (
        torch.stack((length, 8 * row + 7, 2 * row, 2 * row + 1), 1).contiguous().view(torch.uint8)
    )

    def one() -> Call:
        rows, state = (
            torch.randn(tokens, 2048, device=GPU),
            torch.randn(2 * tokens, 4, 2048, device=GPU),
        )
        pool, slots = _pages(tokens, 64), torch.randperm(tokens, device=GPU)
        out = torch.empty(tokens, 512, device=GPU)

        def call() -> None:
            pool_rows(state, rows, out, ape, plan)
            finish(out, plan, weight, 1e-6, table, slots, pool, True, 4)

        return call

    return [one() for _ in range(count)]


def _compress_prefill(tokens: int, count: int) -> list[Call]:
    pool_rows, finish = kit.module("compress")["prefill"], kit.module("norm_rope")["forward"]
    table, ape = _interleaved(), torch.randn(8, 512, device=GPU)
    weight = torch.rand(512, device=GPU) + 0.5
    entry = torch.arange(tokens // 4, dtype=torch.int32, device=GPU)
    nothing = torch.zeros_like(entry)
    # sequence length, row of the step (and no rows from state), no pages
    plan = torch.stack((4 * entry + 4, 4 * entry + 3, nothing, nothing), 1)
    kept = torch.arange(8, dtype=torch.int32, device=GPU)
    writes = torch.stack((tokens - 8 + kept, kept), 1).contiguous().view(torch.uint8)
    plan = plan.contiguous().view(torch.uint8)

    def one() -> Call:
        rows, state = torch.randn(tokens, 2048, device=GPU), torch.randn(16, 4, 2048, device=GPU)
        pool, out = _pages(tokens // 4, 64), torch.empty(tokens // 4, 512, device=GPU)
        slots = torch.zeros(tokens, dtype=torch.int64, device=GPU)  # looked up by token
        slots[3::4] = torch.randperm(tokens // 4, device=GPU)

        def call() -> None:
            pool_rows(state, rows, out, ape, plan, writes)
            finish(out, plan, weight, 1e-6, table, slots, pool, False, 4)

        return call

    return [one() for _ in range(count)]
