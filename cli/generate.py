"""`dsv4-trt generate`: text or token ids from an engine bundle, streamed to the terminal."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dsv4_trt.cli.kernels import prepare_kernels
from dsv4_trt.cli.options import (
    checkpoint_dir_option,
    device_option,
    engine_dir_option,
    json_option,
    option,
    precision_option,
)
from dsv4_trt.cli.profile_text import profile_text
from dsv4_trt.errors import BundleMismatch, CheckpointError, ConfigError, RequestError

if TYPE_CHECKING:
    from dsv4_trt.runtime.bundle import Bundle
    from dsv4_trt.runtime.completion_output import CompletionOutput
    from dsv4_trt.runtime.llm import LLM
    from dsv4_trt.runtime.request_output import RequestOutput
    from dsv4_trt.runtime.sampling.row_state import SampledToken
    from dsv4_trt.runtime.sampling.sampling_params import SamplingParams
    from dsv4_trt.runtime.text.tokenizer import Tokenizer


def parse_token_ids(_: click.Context, __: click.Parameter, value: str | None) -> list[int] | None:
    """`"0, 17 5"` to a list of ids."""
    if value is None:
        return None
    try:
        return [int(part) for part in value.replace(",", " ").split()]
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a list of whole numbers like 0,17,5") from None


@click.command()
@engine_dir_option
@option("--prompt", help="Text to continue, as it stands after a begin-of-sentence token.")
@option("--token_ids", callback=parse_token_ids, help="Prompt as token ids, '0,17,5'; prints ids.")
@option("--n", type=int, default=1, help="Sequences to generate; several are shown at the end.")
@option("--max_tokens", type=int, default=32, help="Most tokens to generate.")
@option("--temperature", type=float, default=1.0, help="0 = greedy.")
@option("--top_p", type=float, default=1.0, help="Smallest set of tokens reaching this share.")
@option("--top_k", type=int, default=0, help="Only the K best tokens; 0 = off.")
@option("--min_p", type=float, default=0.0, help="Drop tokens below this share of the best one.")
@option("--repetition_penalty", type=float, default=1.0, help="Above 1: repeat less; 1 = off.")
@option("--presence_penalty", type=float, default=0.0, help="Off each token that was put out.")
@option("--frequency_penalty", type=float, default=0.0, help="The same, each time it was.")
@option("--seed", type=int, help="Makes sampling repeatable.")
@option("--stop", multiple=True, help="Text that ends generation; may be given several times.")
@option("--logprobs", type=int, help="Print log-probabilities of the N best tokens of each step.")
@option("--ignore_eos", is_flag=True, help="Go on past the end-of-sentence token.")
@click.option("--profile", is_flag=True, help="Print time by op, and an H200's floor; needs a GPU.")
@device_option
@precision_option
@checkpoint_dir_option
@json_option
def command(
    engine_dir: Path,
    prompt: str | None,
    token_ids: list[int] | None,
    device: str,
    precision: str,
    checkpoint_dir: Path | None,
    as_json: bool,
    profile: bool,
    **sampling: Any,
) -> None:
    """Generate from a prompt.

    \b
    Example:
      dsv4-trt generate --engine_dir ENGINE --prompt "The sky is" --max_tokens 16 --temperature 0
    """
    from dsv4_trt.runtime.bundle import open_bundle
    from dsv4_trt.runtime.request import check_request
    from dsv4_trt.runtime.sampling.sampling_params import SamplingParams
    from dsv4_trt.runtime.text.prompt import encode_text

    if (prompt is None) == (token_ids is None):
        raise click.UsageError("give either --prompt or --token_ids")
    params = SamplingParams(**sampling)
    bundle = open_bundle(engine_dir, precision=precision, checkpoint_dir=checkpoint_dir)
    tokenizer = None
    if prompt is not None:
        tokenizer = load_tokenizer(bundle)
        token_ids = encode_text(prompt, bundle.spec, tokenizer)
    elif params.stop:
        raise RequestError("--stop needs text; give the prompt with --prompt")
    assert token_ids is not None
    check_request(bundle, token_ids, params)
    if profile:
        check_can_profile(bundle, device)
    prepare_kernels(bundle, device)
    with open_llm(bundle, tokenizer, len(token_ids), params, device) as llm:
        profiler = llm.profile() if profile else None
        streaming = params.n == 1 and not as_json
        request = llm.generate_async(token_ids, params, streaming=streaming)
        if as_json:
            click.echo(json.dumps(summary(request.result())))
        else:
            show(request, as_text=tokenizer is not None, with_logprobs=params.logprobs is not None)
    if profiler is not None:
        click.echo(profile_text(profiler), err=as_json)


def check_can_profile(bundle: Bundle, device: str) -> None:
    """Refuses `--profile` on a CPU, and of plans, before weights are loaded."""
    from dsv4_trt.runtime.open import resolve_device

    if bundle.record is not None:
        raise ConfigError(
            "--profile times the ops of the native engine, and this bundle has plans of engine "
            f"'{bundle.build.engine}'; build one with --engine native, or leave it out"
        )
    if resolve_device(device) == "cpu":
        raise ConfigError(
            "--profile times ops on a GPU; run it with --device cuda where there is one, or leave it out"
        )


def load_tokenizer(bundle: Bundle) -> Tokenizer:
    """The bundle's tokenizer; the error says what works without one."""
    from dsv4_trt.runtime.text.tokenizer import Tokenizer

    try:
        tokenizer = Tokenizer.load(bundle.path)
        tokenizer.check_covers(bundle.spec.vocab_size)
    except (CheckpointError, BundleMismatch) as error:
        raise type(error)(f"{error}; or give the prompt as --token_ids") from error
    return tokenizer


def open_llm(
    bundle: Bundle,
    tokenizer: Tokenizer | None,
    prompt_length: int,
    params: SamplingParams,
    device: str,
) -> LLM:
    """An engine that holds this one request and no more."""
    from dsv4_trt.kv_plan import plan_for_sequences
    from dsv4_trt.runtime.llm import LLM, KvCacheConfig

    length = prompt_length + params.max_tokens
    num_seqs = min(params.n, bundle.build.max_batch_size)
    plan = plan_for_sequences(bundle.layout.trunk, [length] * num_seqs)
    pages = {str(bucket): count for bucket, count in plan.num_pages.items()}
    return LLM(
        bundle,
        tokenizer=tokenizer,
        skip_tokenizer_init=tokenizer is None,
        device=device,
        kv_cache_config=KvCacheConfig(enable_block_reuse=False, pool_pages=pages),
        max_batch_size=num_seqs,
        max_seq_len=length,
    )


def show(request: RequestOutput, *, as_text: bool, with_logprobs: bool) -> None:
    """Print a request: a single sequence as its tokens come, several in turn, each with its index."""
    several = len(request.outputs) > 1
    for step in request:
        for output in step.outputs:
            if several:
                click.echo(f"[{output.index}]" + ("\n" if with_logprobs else " "), nl=False)
            start = output.num_seen
            for token, text in zip(output.tokens[start:], output.texts[start:], strict=True):
                show_token(token, text, as_text=as_text, with_logprobs=with_logprobs)
            if output.finish_reason is not None and not with_logprobs:
                click.echo()


def show_token(token: SampledToken, text: str, *, as_text: bool, with_logprobs: bool) -> None:
    """Print one token: its text or its id, or a line with log-probabilities."""
    if not with_logprobs:
        click.echo(text if as_text else f"{token.token_id} ", nl=False)
        return
    best = "  ".join(f"{token_id}:{logprob:.4f}" for token_id, logprob in token.top)
    top = f"  [{best}]" if best else ""
    shown = f"  {text!r}" if as_text else ""
    click.echo(f"{token.token_id:>7} {token.logprob:9.4f}{top}{shown}")


def summary(request: RequestOutput) -> dict[str, Any]:
    """The whole run as data: of several sequences a list."""
    prompt = {"prompt_token_ids": request.prompt_token_ids}
    outputs = [sequence(output) for output in request.outputs]
    if len(outputs) == 1:
        return prompt | outputs[0]
    indexed = [{"index": index, **output} for index, output in enumerate(outputs)]
    return prompt | {"sequences": indexed}


def sequence(output: CompletionOutput) -> dict[str, Any]:
    """One sequence as data."""
    return {
        "token_ids": output.token_ids,
        "text": output.text,
        "finish_reason": output.finish_reason,
        "tokens": [asdict(token) for token in output.tokens],
    }
