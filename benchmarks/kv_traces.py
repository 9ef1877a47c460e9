"""How full the KV pools get: traces of requests until the first one is refused, against one page id.

For traces of 8K, 32K, 128K and mixed lengths, pools are solved from a memory budget for that mix, then
requests arrive without end; the scheduler admits, chunks and decodes them (with no engine) until the first
one finds no room. Reported are the share of the scarcest pool's pages that are held or cached then, the
share of all bytes that is payload against what the layout predicts, and the tokens admitted.

The comparison is a cache with one id space over layer tuples of 37,440 + 8,640 + 1,728 bytes: an id
reserves the same slot in 22 tuples (Flash), windows and compressor state take whole ids, and a prefill
chunk of 8K tokens holds state for all of them.

    python benchmarks/kv_traces.py
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from no_engine import no_engine
from results_file import circumstances, parser_of, write

from dsv4_trt.contract import BuildSpec
from dsv4_trt.kv_layout import LOGICAL_BLOCK, KvLayout, solve
from dsv4_trt.kv_mix import Load, mean_pages
from dsv4_trt.kv_plan import plan_pools
from dsv4_trt.kv_report import payload_bytes
from dsv4_trt.presets import FLASH
from dsv4_trt.runtime.kv.retention import Retention
from dsv4_trt.runtime.request import Request
from dsv4_trt.runtime.sampling.sampling_params import SamplingParams
from dsv4_trt.runtime.schedule.scheduler import ScheduleLimits, Scheduler
from dsv4_trt.runtime.schedule.sequence import Sequence
from dsv4_trt.runtime.stepper import Stepper

MEMORY_BYTES = 40 * 10**9
CHUNK = 8192  # tokens that one prompt feeds in a step
STEP = 8 * CHUNK  # tokens of a step: pools fill before outputs change the lengths much
OUTPUT = 4096  # tokens that each may put out: nobody ends before the pools are full
TUPLE_BYTES, TUPLES = 37_440 + 8_640 + 1_728, 22
KIB = 1 << 10
TRACES = {
    "8K": (Load(1, 8 * KIB),),
    "32K": (Load(1, 32 * KIB),),
    "128K": (Load(1, 128 * KIB),),
    "mixed": (Load(16, 8 * KIB), Load(4, 32 * KIB), Load(1, 128 * KIB)),
}


def main() -> int:
    args = parser_of(__doc__).parse_args()
    about = circumstances("kv_traces", args.note)
    layout = solve(FLASH, "fp8", "fp8")
    rows = {name: _trace(layout, mix) for name, mix in TRACES.items()}
    print(
        f"{'trace':8}{'full':>8}{'payload':>9}{'predicted':>11}{'tokens':>13}{'one id':>13}{'gain':>7}"
    )
    for name, row in rows.items():
        print(
            f"{name:8}{row['scarcest_full']:8.4f}{row['payload_share']:9.4f}"
            f"{row['predicted_share']:11.4f}{row['tokens']:13,}{row['one_id_tokens']:13,}"
            f"{row['gain']:7.3f}"
        )
    met = all(
        row["scarcest_full"] >= 0.98 and abs(row["payload_share"] - row["predicted_share"]) <= 0.01
        for row in rows.values()
    )
    result = {
        **about,
        "memory_bytes": MEMORY_BYTES,
        "model": "flash",
        "traces": rows,
        "target_met": met,
    }
    write(args.name, result)
    return 0 if met else 1


def _trace(layout: KvLayout, mix: tuple[Load, ...]) -> dict[str, Any]:
    longest = max(load.length for load in mix) * 2
    plan = plan_pools(layout, MEMORY_BYTES, mix, max_seq_len=longest)
    build = BuildSpec(max_batch_size=4096, max_num_tokens=STEP, max_seq_len=longest)
    stepper = Stepper(no_engine(plan, build))
    limits = ScheduleLimits(max_num_seqs=4096, max_num_tokens=STEP)
    scheduler = Scheduler(stepper.kv, limits, Retention())
    _fill(scheduler, stepper, _lengths(mix))
    running = scheduler.running
    used = {b: 1 - pool.num_free / pool.num_pages for b, pool in stepper.pools.items()}
    payload = sum(payload_bytes(layout, s.num_computed) for s in running) + _cached_payload(stepper)
    tokens = sum(s.num_prompt for s in running)
    other = _one_id_tokens(_lengths(mix))
    return {
        "pools": {str(b): n for b, n in plan.num_pages.items()},
        "running": len(running),
        "preempted": scheduler.num_preempted,
        "full": {str(b): round(share, 4) for b, share in used.items()},
        "scarcest_full": round(max(used.values()), 4),
        "payload_share": round(payload / plan.total_bytes, 4),
        "predicted_share": round(_predicted_share(layout, mix), 4),
        "tokens": tokens,
        "one_id_tokens": other,
        "gain": round(tokens / other, 3),
    }


def _lengths(mix: tuple[Load, ...]) -> Iterator[int]:
    """Prompt lengths without end, within a tenth of those of the mix; the same ones each time."""
    rng = random.Random(0)
    while True:
        once = [load.length for load in mix for _ in range(load.count)]
        rng.shuffle(once)
        yield from (int(length * rng.uniform(0.9, 1.1)) for length in once)


def _fill(scheduler: Scheduler, stepper: Stepper, lengths: Iterator[int]) -> None:
    """Run steps until the first request in the queue finds no room."""
    arrival = 0
    while True:
        while len(scheduler.waiting) < 16:
            arrival += 1
            scheduler.add(_sequence(arrival, next(lengths)))
        plan = scheduler.schedule()
        assert plan is not None
        record = plan.record()
        stepper.run(record)
        scheduler.settle(plan)
        for sequence in scheduler.decoding:
            sequence.append(arrival % FLASH.vocab_size)
        if record.token_ids.size < STEP - LOGICAL_BLOCK:
            return  # tokens were left and nobody could take them


def _sequence(arrival: int, length: int) -> Sequence:
    """A request whose tokens nobody else has."""
    prompt = [arrival] * length
    request = Request(
        request_id=str(arrival), prompt_ids=prompt, params=SamplingParams(max_tokens=OUTPUT)
    )
    sequence = Sequence.begin(request)
    sequence.arrival = arrival
    return sequence


def _cached_payload(stepper: Stepper) -> int:
    """Bytes of entries in pages that only the prefix cache keeps: such pages are full."""
    layout, total = stepper.engine.layout, 0
    holders = {bucket: pool.holders() for bucket, pool in stepper.pools.items()}
    for tail in stepper.prefix.tails():
        for cache_class, pages in tail.pages.items():
            kv = layout[cache_class]
            total += int((holders[kv.bucket][pages] == 0).sum()) * kv.raw_bytes
    return total


def _predicted_share(layout: KvLayout, mix: tuple[Load, ...]) -> float:
    """Payload of the mix over the bytes of its pages, windows at their mean."""
    pages = mean_pages(layout, mix)
    held = float(sum(count * layout.page_bytes[bucket] for bucket, count in pages.items()))
    entries = sum(load.count * _mean_payload(layout, load.length) for load in mix)
    return entries / held


def _mean_payload(layout: KvLayout, length: int) -> float:
    around = range(length - LOGICAL_BLOCK // 2, length + LOGICAL_BLOCK // 2)
    return sum(payload_bytes(layout, n) for n in around) / LOGICAL_BLOCK


def _one_id_tokens(lengths: Iterator[int]) -> int:
    """Prompt tokens that the cache of layer tuples admits before it refuses one."""
    total_ids = MEMORY_BYTES // (TUPLES * TUPLE_BYTES)
    held = tokens = 0
    while True:
        length = next(lengths)
        blocks = -(-length // LOGICAL_BLOCK)
        if held + blocks + _window_ids(min(CHUNK, length)) > total_ids:
            return tokens
        held += blocks + _window_ids(1)
        tokens += length


def _window_ids(chunk: int) -> int:
    """Ids that the windows of one sequence take in a step of `chunk` tokens.

    Each window holds all but one of its tokens and the chunk's, at any alignment in its blocks: SWA (two
    groups of layers) 128 tokens in blocks of 64, CSA state 8 in blocks of 4, HCA state 128 in blocks of 8.
    """

    def ids(window: int, block: int) -> int:
        return -(-(window - 1 + chunk) // block) + 1

    return 2 * ids(128, 64) + ids(8, 4) + ids(128, 8)


if __name__ == "__main__":
    raise SystemExit(main())
