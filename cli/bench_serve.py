"""`dsv4-trt bench serve`: any OpenAI-compatible server under load."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dsv4_trt.cli.bench_options import POSITIVE, lengths_of, prompt_options, result_options
from dsv4_trt.cli.options import PATH, option
from dsv4_trt.cli.progress import progress
from dsv4_trt.errors import MissingDependency, RequestError

if TYPE_CHECKING:
    from dsv4_trt.runtime.bench.ask import Ask
    from dsv4_trt.runtime.bench.http_sender import Target
    from dsv4_trt.runtime.bench.load import Load
    from dsv4_trt.runtime.bench.vocabulary import Encoder, Vocabulary

DISTINCT = 1000  # prompts of a load without num_requests; after them the first ones come again
NUM_REQUESTS = 100
KEY_VARIABLE = "OPENAI_API_KEY"


def _json_object(_: click.Context, __: click.Parameter, value: str | None) -> dict[str, Any]:
    if value is None:
        return {}
    try:
        found = json.loads(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise click.BadParameter(f"{value!r} is no JSON object")
    return found


@click.command()
@option("--base_url", default="http://127.0.0.1:8000", help="The server; /v1 may be left out.")
@option("--model", help="As the server names it [default: the first that it lists].")
@option(
    "--endpoint",
    type=click.Choice(["chat", "completions"]),
    default="chat",
    help="Random prompts are texts for chat, token ids for completions.",
)
@option("--api_key", envvar=KEY_VARIABLE, help=f"Sent as a bearer token [default: {KEY_VARIABLE}].")
@option("--concurrency", type=POSITIVE, help="Requests at once; with a rate, the most of them.")
@option(
    "--request_rate",
    type=click.FloatRange(0, min_open=True),
    help="Arrivals a second, in a Poisson process; inf = all at once.",
)
@option(
    "--burstiness",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    help="Shape of the gaps between arrivals: below 1 burstier than Poisson, above more even.",
)
@option(
    "--num_requests", "--num_prompts", type=POSITIVE,
    help=f"How many requests [default: {NUM_REQUESTS}, or as many as begin within the duration].",
)  # fmt: skip
@option("--duration", type=click.FloatRange(0, min_open=True), help="Seconds to begin requests in.")
@prompt_options
@option("--engine_dir", type=PATH, help="A bundle whose tokenizer counts [default: /tokenize].")
@option("--temperature", type=float, help="Sent with each request [default: the server's].")
@option("--extra_body", callback=_json_object, metavar="JSON", help="More fields of each request.")
@option(
    "--timeout", type=click.FloatRange(0, min_open=True), default=600.0, help="Of a request, s."
)
@option(
    "--count_by",
    type=click.Choice(["token_ids", "logprobs", "chunks"]),
    default="token_ids",
    help="What is asked for so that streamed tokens can be held against usage.",
)
@result_options
@click.pass_context
def serve(context: click.Context, /, **given: Any) -> None:
    """Measure an OpenAI-compatible server.

    Latencies count from when a request was due, also where the client could not send it then. Exits
    with 1 if no request was completed, or if tokens were lost or came twice.

    \b
    Example:
      dsv4-trt bench serve --concurrency 64 --num_requests 500 --input_len 1024 --output_len 128
      dsv4-trt bench serve --request_rate 4 --duration 60 --goodput ttft:500,tpot:50 --output r.json
    """
    for package in ("httptools", "httpx"):
        if find_spec(package) is None:
            raise MissingDependency(package, "bench", "dsv4-trt bench serve")
    from dsv4_trt.cli.bench_result import check_outputs, parse_goodput
    from dsv4_trt.runtime.bench.http_sender import Target, base_of
    from dsv4_trt.runtime.bench.remote_server import served_model

    check_outputs(given["output"], given["save_requests"], given["plot"])
    objectives = parse_goodput(given["goodput"])
    load = _load(given)
    load.check()
    base_url = base_of(given["base_url"])
    target = Target(
        base_url=base_url,
        endpoint=given["endpoint"],
        model=given["model"] or served_model(base_url, given["api_key"]),
        api_key=given["api_key"],
        timeout=given["timeout"],
        count_by=given["count_by"],
        more=_more(given),
    )
    asks = _asks(given, load, target)
    _warm_up(target, asks[: given["warmup"]])
    context.exit(_measure(given, load, target, asks[given["warmup"] :], objectives))


def _load(given: dict[str, Any]) -> Load:
    from dsv4_trt.runtime.bench.load import Load

    concurrency, num_requests = given["concurrency"], given["num_requests"]
    if concurrency is None and given["request_rate"] is None:
        concurrency = 1
    if num_requests is None and given["duration"] is None:
        num_requests = NUM_REQUESTS
    return Load(
        concurrency=concurrency,
        request_rate=given["request_rate"],
        burstiness=given["burstiness"],
        num_requests=num_requests,
        duration=given["duration"],
        seed=given["seed"],
    )


def _more(given: dict[str, Any]) -> dict[str, Any]:
    more: dict[str, Any] = {"ignore_eos": True} if given["ignore_eos"] else {}
    if given["temperature"] is not None:
        more["temperature"] = given["temperature"]
    return {**more, **given["extra_body"]}


def _asks(given: dict[str, Any], load: Load, target: Target) -> list[Ask]:
    """Prompts of the warm-up, and then those of the load."""
    from dsv4_trt.runtime.bench.dataset import pick, read_dataset
    from dsv4_trt.runtime.bench.random_asks import random_asks

    count = given["warmup"] + (load.num_requests or DISTINCT)
    if given["dataset"] != "random":
        with _encoder(given, target) as encoder:
            asks = read_dataset(Path(given["dataset"]), given["output_len"], encoder)
        return pick(asks, count, given["seed"])
    as_text = target.endpoint == "chat"
    with _encoder(given, target) as encoder:
        words = _vocabulary(given, encoder)
        found: list[Ask] = []
        with progress("prompts", count, unit="prompts") as advance:
            for ask in random_asks(count, lengths_of(given), words, given["seed"], as_text=as_text):
                found.append(ask)
                advance(1)
        return found


@contextmanager
def _encoder(given: dict[str, Any], target: Target) -> Iterator[Encoder]:
    from dsv4_trt.runtime.bench.remote_server import RemoteEncoder
    from dsv4_trt.runtime.text.tokenizer import Tokenizer

    if given["engine_dir"] is not None:
        yield Tokenizer.load(given["engine_dir"])
        return
    with RemoteEncoder(target.base_url, target.model, target.api_key) as encoder:
        yield encoder


def _vocabulary(given: dict[str, Any], encoder: Encoder) -> Vocabulary:
    from dsv4_trt.cli.plan_source import bundle_source
    from dsv4_trt.runtime.bench.vocabulary import vocabulary_behind, vocabulary_of
    from dsv4_trt.runtime.text.tokenizer import Tokenizer

    if not isinstance(encoder, Tokenizer):
        return vocabulary_behind(encoder)
    vocab_size = bundle_source(given["engine_dir"], {}).spec.vocab_size
    return vocabulary_of(encoder, vocab_size, given["seed"])


def _warm_up(target: Target, asks: list[Ask]) -> None:
    """Send some requests; raises `RequestError` with what the server says if one fails."""
    from dsv4_trt.cli.bench_run import run_load
    from dsv4_trt.runtime.bench.http_sender import new_senders
    from dsv4_trt.runtime.bench.load import Load, Run

    if not asks:
        return
    run = Run(Load(concurrency=len(asks), num_requests=len(asks)), asks, new_senders(target, asks))
    signum = run_load(run, "warm-up")
    if signum is not None:
        raise SystemExit(128 + signum)
    for record in run.records:
        if record.error is not None:
            raise RequestError(
                f"the warm-up at {target.url} failed with {record.error}: "
                f"{' '.join(record.message.split())}; nothing was measured"
            )


def _measure(
    given: dict[str, Any],
    load: Load,
    target: Target,
    asks: list[Ask],
    objectives: dict[str, float],
) -> int:
    """Run the load and report it; the exit code."""
    from dsv4_trt.cli.bench_result import arguments_of, exit_code, measure, publish, requests_of
    from dsv4_trt.runtime.bench.http_sender import new_senders
    from dsv4_trt.runtime.bench.load import Run
    from dsv4_trt.runtime.bench.machine import circumstances

    about = circumstances() | {"benchmark": "serve", "model": target.model, "url": target.url}
    run = Run(load, asks, new_senders(target, asks))
    measured, signum = measure(run, "", objectives, "load")
    measured.report["client_cpu"] = run.cpu_seconds / max(run.seconds, 1e-9)
    result = {**about, "arguments": arguments_of(given), **measured.report}
    if given["save_requests"]:
        result["requests"] = requests_of(run)
    publish(given, f"{target.model} at {target.url}", [measured], result)
    return exit_code([measured.report], signum)
