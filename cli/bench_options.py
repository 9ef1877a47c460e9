"""Options that `bench serve` and `bench engine` share: prompts, and what becomes of the result."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dsv4_trt.cli.options import PATH, json_option, option

if TYPE_CHECKING:
    from dsv4_trt.runtime.bench.random_asks import Lengths

F = TypeVar("F", bound=Callable[..., Any])

OUTPUT_LEN = 128  # of random prompts, unless it is given
POSITIVE = click.IntRange(min=1)

_PROMPTS = (
    option(
        "--dataset",
        default="random",
        metavar="random|FILE",
        help="JSON lines with prompt or messages and max_tokens, or conversations as ShareGPT's.",
    ),
    option("--input_len", type=POSITIVE, default=1024, help="Tokens of a random prompt."),
    option(
        "--output_len",
        type=POSITIVE,
        help=f"Most tokens of an answer [default: random {OUTPUT_LEN}, else as FILE says].",
    ),
    option(
        "--range_ratio",
        type=click.FloatRange(0, 1, max_open=True),
        default=0.0,
        help="Random lengths are between length * (1 - R) and length * (1 + R).",
    ),
    option(
        "--prefix_len",
        type=click.IntRange(min=0),
        default=0,
        help="Tokens that all random prompts begin with, on top of their own.",
    ),
    option("--seed", type=click.IntRange(0, 2**63 - 1), default=0, help="Of prompts and arrivals."),
    option("--ignore_eos", is_flag=True, help="Go on past the end-of-sentence token."),
    option(
        "--warmup",
        type=click.IntRange(min=0),
        default=2,
        help="Requests before the load; they do not count.",
    ),
)

_RESULTS = (
    option(
        "--goodput",
        metavar="LIMITS",
        help="Count requests that keep these limits in ms: ttft:500,tpot:50,e2el:9000.",
    ),
    option("--output", type=PATH, metavar="FILE", help="Write the result as JSON."),
    option("--save_requests", is_flag=True, help="With a record of each request in it."),
    option("--plot", type=PATH, metavar="FILE", help="Draw the latencies, as .png or .svg."),
    json_option,
)


def prompt_options(function: F) -> F:
    """Which prompts, how many tokens, and how they are sampled."""
    return functools.reduce(lambda wrapped, add: add(wrapped), reversed(_PROMPTS), function)


def result_options(function: F) -> F:
    """Limits, files and the form of the report."""
    return functools.reduce(lambda wrapped, add: add(wrapped), reversed(_RESULTS), function)


def lengths_of(given: dict[str, Any]) -> Lengths:
    """Lengths of random prompts and answers, as the options say."""
    from dsv4_trt.runtime.bench.random_asks import Lengths

    return Lengths(
        input_len=given["input_len"],
        output_len=given["output_len"] or OUTPUT_LEN,
        range_ratio=given["range_ratio"],
        prefix_len=given["prefix_len"],
    )
