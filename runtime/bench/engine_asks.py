"""Prompts for an engine without a server: token ids, each checked before weights are loaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dsv4_trt.errors import ConfigError
from dsv4_trt.runtime.bench.ask import Ask
from dsv4_trt.runtime.bench.dataset import pick, read_dataset
from dsv4_trt.runtime.bench.random_asks import Lengths, random_asks
from dsv4_trt.runtime.bench.vocabulary import Vocabulary
from dsv4_trt.runtime.bundle import Bundle
from dsv4_trt.runtime.request import check_request
from dsv4_trt.runtime.sampling.sampling_params import SamplingParams
from dsv4_trt.runtime.text.prompt import encode_text
from dsv4_trt.runtime.text.tokenizer import TOKENIZER_FILE, Tokenizer


def random_engine_asks(bundle: Bundle, lengths: Lengths, count: int, seed: int) -> list[Ask]:
    """Random token ids of the model; needs no tokenizer."""
    special = {bundle.spec.bos_token_id, bundle.spec.eos_token_id}
    ids = [i for i in range(bundle.spec.vocab_size) if i not in special]
    asks = random_asks(count, lengths, Vocabulary(ids), seed, as_text=False)
    return [_checked(bundle, ask) for ask in asks]


def dataset_asks(
    bundle: Bundle, path: Path, output_len: int | None, count: int, seed: int
) -> list[Ask]:
    """Prompts of a file as token ids; `RequestError` for one that the engine can not serve."""
    has_tokenizer = (bundle.path / TOKENIZER_FILE).exists()
    tokenizer = Tokenizer.load(bundle.path) if has_tokenizer else None
    asks = read_dataset(path, output_len, tokenizer)
    return [_checked(bundle, _as_ids(bundle, ask, tokenizer)) for ask in pick(asks, count, seed)]


def _as_ids(bundle: Bundle, ask: Ask, tokenizer: Tokenizer | None) -> Ask:
    if ask.token_ids is not None:
        return ask
    if ask.text is None:
        raise ConfigError(
            "the dataset has messages, which are chat; an engine without a server takes prompts: use "
            "lines with 'prompt', or bench serve"
        )
    if tokenizer is None:
        raise ConfigError(
            f"the dataset has text and {bundle.path} no tokenizer.json; use prompts of token ids"
        )
    return replace(ask, text=None, token_ids=encode_text(ask.text, bundle.spec, tokenizer))


def _checked(bundle: Bundle, ask: Ask) -> Ask:
    assert ask.token_ids is not None
    check_request(bundle, ask.token_ids, SamplingParams(max_tokens=ask.max_tokens))
    return ask
