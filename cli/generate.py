"""`dsv4-trt generate`: text or token ids from an engine bundle, streamed to the terminal."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dsv4_trt.cli.options import (
    checkpoint_dir_option,
    device_option,
    engine_dir_option,
    json_option,
    option,
    precision_option,
)
from dsv4_trt.errors import BundleMismatch, CheckpointError, RequestError

if TYPE_CHECKING:
    from dsv4_trt.runtime.bundle import Bundle
    from dsv4_trt.runtime.generate import GeneratedToken
    from dsv4_trt.runtime.tokenizer import Tokenizer


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
@option("--max_tokens", type=int, default=32, help="Most tokens to generate.")
@option("--temperature", type=float, default=1.0, help="0 = greedy.")
@option("--top_p", type=float, default=1.0, help="Smallest set of tokens reaching this share.")
@option("--top_k", type=int, default=0, help="Only the K best tokens; 0 = off.")
@option("--min_p", type=float, default=0.0, help="Drop tokens below this share of the best one.")
@option("--seed", type=int, help="Makes sampling repeatable.")
@option("--stop", multiple=True, help="Text that ends generation; may be given several times.")
@option("--logprobs", type=int, help="Print log-probabilities of the N best tokens of each step.")
@option("--ignore_eos", is_flag=True, help="Go on past the end-of-sentence token.")
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
    **sampling: Any,
) -> None:
    """Generate from a prompt.

    \b
    Example:
      dsv4-trt generate --engine_dir ENGINE --prompt "The sky is" --max_tokens 16 --temperature 0
    """
    from dsv4_trt.kv_plan import plan_for_sequences
    from dsv4_trt.runtime.bundle import open_bundle
    from dsv4_trt.runtime.request import check_request
    from dsv4_trt.runtime.sampling_params import SamplingParams
    from dsv4_trt.runtime.text_stream import TextStream

    if (prompt is None) == (token_ids is None):
        raise click.UsageError("give either --prompt or --token_ids")
    params = SamplingParams(**sampling)
    bundle = open_bundle(engine_dir, precision=precision, checkpoint_dir=checkpoint_dir)
    text = None
    if prompt is not None:
        tokenizer = load_tokenizer(bundle)
        token_ids = with_bos(bundle, tokenizer.encode(prompt))
        text = TextStream(tokenizer, params, bundle.spec.eos_token_id)
    elif params.stop:
        raise RequestError("--stop needs text; give the prompt with --prompt")
    assert token_ids is not None
    check_request(bundle, token_ids, params)

    from dsv4_trt.runtime.generate import (
        generate,  # torch takes seconds; requests are checked first
    )
    from dsv4_trt.runtime.open import open_engine
    from dsv4_trt.runtime.stepper import Stepper

    plan = plan_for_sequences(bundle.layout, [len(token_ids) + params.max_tokens])
    engine = open_engine(bundle, plan, device=device)
    tokens = []
    for token in generate(Stepper(engine), token_ids, params, text):
        tokens.append(token)
        if not as_json:
            show(token, as_text=text is not None, with_logprobs=params.logprobs is not None)
    if as_json:
        click.echo(json.dumps(summary(token_ids, tokens)))
    elif params.logprobs is None:
        click.echo()


def load_tokenizer(bundle: Bundle) -> Tokenizer:
    """The bundle's tokenizer; the error says what works without one."""
    from dsv4_trt.runtime.tokenizer import Tokenizer

    try:
        tokenizer = Tokenizer.load(bundle.path)
        tokenizer.check_covers(bundle.spec.vocab_size)
    except (CheckpointError, BundleMismatch) as error:
        raise type(error)(f"{error}; or give the prompt as --token_ids") from error
    return tokenizer


def with_bos(bundle: Bundle, token_ids: list[int]) -> list[int]:
    """Put the begin-of-sentence token in front unless the text already wrote it."""
    bos = bundle.spec.bos_token_id
    return token_ids if token_ids[:1] == [bos] else [bos, *token_ids]


def show(token: GeneratedToken, *, as_text: bool, with_logprobs: bool) -> None:
    """Print one token as it comes: its text or its id, or a line with log-probabilities."""
    sampled = token.token
    if not with_logprobs:
        click.echo(token.text if as_text else f"{sampled.token_id} ", nl=False)
        return
    best = "  ".join(f"{token_id}:{logprob:.4f}" for token_id, logprob in sampled.top)
    top = f"  [{best}]" if best else ""
    shown = f"  {token.text!r}" if as_text else ""
    click.echo(f"{sampled.token_id:>7} {sampled.logprob:9.4f}{top}{shown}")


def summary(prompt_ids: list[int], tokens: list[GeneratedToken]) -> dict[str, Any]:
    """The whole run as data."""
    return {
        "prompt_token_ids": prompt_ids,
        "token_ids": [t.token.token_id for t in tokens],
        "text": "".join(t.text for t in tokens),
        "finish_reason": tokens[-1].finish_reason,
        "tokens": [asdict(t.token) for t in tokens],
    }
