"""`dsv4-trt bench engine`: an engine under load in this process, without HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dsv4_trt.cli.bench_options import POSITIVE, lengths_of, prompt_options, result_options
from dsv4_trt.cli.options import (
    checkpoint_dir_option,
    device_option,
    engine_dir_option,
    option,
    precision_option,
)
from dsv4_trt.errors import ConfigError

if TYPE_CHECKING:
    from array import array

    from dsv4_trt.cli.bench_result import Measured
    from dsv4_trt.runtime.bench.ask import Ask
    from dsv4_trt.runtime.bench.engine_sender import TimedLLM
    from dsv4_trt.runtime.bench.load import Load
    from dsv4_trt.runtime.bundle import Bundle

NUM_REQUESTS = 100
BATCHES = 10  # of each size, for latency


def _sizes(_: click.Context, __: click.Parameter, value: str) -> list[int]:
    try:
        found = [int(part) for part in value.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise click.BadParameter(f"{value!r} is no list of whole numbers above 0 like 1,8,64")
    return found


@click.command()
@engine_dir_option
@option(
    "--mode",
    type=click.Choice(["throughput", "latency"]),
    default="throughput",
    help="throughput: requests follow each other; latency: batches that begin and end together.",
)
@option("--batch_sizes", callback=_sizes, default="1", metavar="LIST", help="For latency: 1,8,64.")
@option("--concurrency", type=POSITIVE, help="For throughput: requests at once [default: all].")
@option(
    "--num_requests",
    type=POSITIVE,
    help=f"How many requests [default: {NUM_REQUESTS}, for latency {BATCHES} batches of each size].",
)
@prompt_options
@option("--temperature", type=float, default=1.0, help="0 = greedy.")
@option("--max_batch_size", type=POSITIVE, help="Sequences a step [default: as built].")
@option("--max_num_tokens", type=POSITIVE, help="Tokens a step [default: as built].")
@option("--max_seq_len", type=POSITIVE, help="Tokens of a sequence [default: as built].")
@option(
    "--kv_cache_free_gpu_memory_fraction",
    "free_fraction",
    type=float,
    default=0.9,
    help="Part of the free memory that pools take.",
)
@device_option
@precision_option
@checkpoint_dir_option
@result_options
@click.pass_context
def engine(context: click.Context, /, **given: Any) -> None:
    """Measure an engine in this process.

    \b
    Example:
      dsv4-trt bench engine --engine_dir ENGINE --input_len 1024 --output_len 128 --ignore_eos
      dsv4-trt bench engine --engine_dir ENGINE --mode latency --batch_sizes 1,8 --output r.json
    """
    from dsv4_trt.cli.bench_result import check_outputs, exit_code, parse_goodput
    from dsv4_trt.cli.kernels import prepare_kernels
    from dsv4_trt.runtime.bundle import open_bundle

    check_outputs(given["output"], given["save_requests"], given["plot"])
    objectives = parse_goodput(given["goodput"])
    bundle = open_bundle(
        given["engine_dir"], precision=given["precision"], checkpoint_dir=given["checkpoint_dir"]
    )
    bundle = _limit(bundle, given)
    loads = _loads(given, bundle)
    asks = _asks(given, bundle, max(load.num_requests or 0 for load in loads))
    prepare_kernels(bundle, given["device"])
    measured, signum = _measure(given, bundle, loads, asks, objectives)
    _publish(given, bundle, measured)
    context.exit(exit_code([one.report for one in measured], signum))


def _limit(bundle: Bundle, given: dict[str, Any]) -> Bundle:
    from dsv4_trt.runtime.llm_open import limit_sizes

    names = ("max_batch_size", "max_num_tokens", "max_seq_len")
    return limit_sizes(bundle, *(given[name] for name in names))


def _loads(given: dict[str, Any], bundle: Bundle) -> list[Load]:
    from dsv4_trt.runtime.bench.load import Load

    count, most = given["num_requests"], bundle.build.max_batch_size
    if given["mode"] == "throughput":
        count = count or NUM_REQUESTS
        return [Load(concurrency=given["concurrency"] or count, num_requests=count)]
    if given["concurrency"] is not None:
        raise click.UsageError("--concurrency is for throughput; latency has --batch_sizes")
    for size in given["batch_sizes"]:
        if size > most:
            raise ConfigError(f"batch size {size} is above max_batch_size {most}; some would wait")
        if count is not None and count % size:
            raise ConfigError(
                f"num_requests {count} makes no whole batches of {size}; give a multiple of each of the "
                "batch_sizes, or leave it out"
            )
    return [
        Load(concurrency=size, num_requests=count or BATCHES * size, batches=True)
        for size in given["batch_sizes"]
    ]


def _asks(given: dict[str, Any], bundle: Bundle, count: int) -> list[Ask]:
    """Prompts of the warm-up, and then those of a load; each is one that the engine can serve."""
    from dsv4_trt.runtime.bench.engine_asks import dataset_asks, random_engine_asks

    count += given["warmup"]
    if given["dataset"] != "random":
        return dataset_asks(
            bundle, Path(given["dataset"]), given["output_len"], count, given["seed"]
        )
    return random_engine_asks(bundle, lengths_of(given), count, given["seed"])


def _measure(
    given: dict[str, Any],
    bundle: Bundle,
    loads: Sequence[Load],
    asks: Sequence[Ask],
    objectives: dict[str, float],
) -> tuple[list[Measured], int | None]:
    """Run the loads one after another, up to one that was interrupted."""
    from dsv4_trt.cli.bench_result import measure
    from dsv4_trt.runtime.bench.load import Load, Run

    found: list[Measured] = []
    warm_up, asks = asks[: given["warmup"]], asks[given["warmup"] :]
    llm = _open(given, bundle, max(len(asks), 1024))
    with llm:
        sender = _sender(llm, given)
        if warm_up:
            load = Load(concurrency=len(warm_up), num_requests=len(warm_up))
            _, signum = measure(Run(load, warm_up, sender), "", {}, "warm-up")
            if signum is not None:
                raise SystemExit(128 + signum)
        for load in loads:
            label = f"batch {load.concurrency}" if load.batches else ""
            times = llm.time_steps()
            one, signum = measure(Run(load, asks, sender), label, objectives, label or "load")
            one.report.update(_steps(times), batch_size=load.concurrency if load.batches else None)
            found.append(one)
            if signum is not None:
                return found, signum
    return found, None


def _open(given: dict[str, Any], bundle: Bundle, max_queue_size: int) -> TimedLLM:
    from dsv4_trt.runtime.bench.engine_sender import TimedLLM
    from dsv4_trt.runtime.llm import KvCacheConfig

    return TimedLLM(
        bundle,
        device=given["device"],
        kv_cache_config=KvCacheConfig(free_gpu_memory_fraction=given["free_fraction"]),
        max_queue_size=max_queue_size,
    )


def _sender(llm: TimedLLM, given: dict[str, Any]) -> Any:
    from dsv4_trt.runtime.bench.engine_sender import EngineSender

    options = {"temperature": given["temperature"], "ignore_eos": given["ignore_eos"]}
    return lambda: EngineSender(llm, **options)


def _steps(times: array[float]) -> dict[str, Any]:
    from dsv4_trt.runtime.bench.report import summarize

    return {"steps": len(times), **summarize("step", times)}


def _publish(given: dict[str, Any], bundle: Bundle, measured: list[Measured]) -> None:
    from dsv4_trt.cli.bench_result import arguments_of, publish, requests_of
    from dsv4_trt.runtime.bench.machine import circumstances

    runs = [dict(one.report) for one in measured]
    if given["save_requests"]:
        for report, one in zip(runs, measured, strict=True):
            report["requests"] = requests_of(one.run)
    result = {
        **circumstances(),
        "benchmark": "engine",
        "engine": bundle.build.engine,
        "arguments": arguments_of(given),
        "runs": runs,
    }
    publish(given, f"{given['engine_dir']}, {given['mode']}", measured, result)
