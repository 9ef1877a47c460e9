"""What an `LLM` opens: bundle, tokenizer, pools, engine and executor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dsv4_trt.errors import ConfigError
from dsv4_trt.runtime.bundle import Bundle, open_bundle
from dsv4_trt.runtime.executor import Executor
from dsv4_trt.runtime.executor_config import ExecutorConfig
from dsv4_trt.runtime.guided.compiler import GrammarCompiler
from dsv4_trt.runtime.kv_cache_config import KvCacheConfig, check_whole
from dsv4_trt.runtime.open import device_for, open_engine
from dsv4_trt.runtime.pool_plan import plan_for_device
from dsv4_trt.runtime.sampling.sampling_params import SamplingParams
from dsv4_trt.runtime.text.text_stream import TextStream
from dsv4_trt.runtime.text.tokenizer import TOKENIZER_FILE, Tokenizer


def choose_bundle(
    model: str | Path | Bundle, precision: str | None, checkpoint_dir: str | Path | None
) -> Bundle:
    """The bundle of a folder, or the one that is opened already."""
    if not isinstance(model, Bundle | str | Path):
        raise ConfigError(f"model is {model!r}; expected the folder of an engine bundle")
    if not isinstance(model, Bundle):
        weights = None if checkpoint_dir is None else Path(checkpoint_dir)
        return open_bundle(Path(model), precision=precision or "serving", checkpoint_dir=weights)
    if precision is not None or checkpoint_dir is not None:
        raise ConfigError(
            "precision and checkpoint_dir are chosen when a bundle is opened; give them to "
            "open_bundle, or give the bundle's folder"
        )
    return model


def limit_sizes(
    bundle: Bundle,
    max_batch_size: int | None,
    max_num_tokens: int | None,
    max_seq_len: int | None,
) -> Bundle:
    """The bundle as of an engine built for these sizes; None = as it was built.

    Raises `ConfigError` for a size above that: tables and shapes were made for it.
    """
    sizes = {
        "max_batch_size": max_batch_size,
        "max_num_tokens": max_num_tokens,
        "max_seq_len": max_seq_len,
    }
    build = bundle.build
    for name, size in sizes.items():
        if size is None:
            continue
        check_whole(name, size, 1)
        built = getattr(bundle.build, name)
        if size > built:
            raise ConfigError(
                f"{name} is {size}, the engine was built for {built}; ask for {built} at most, or "
                f"build with --{name} {size}"
            )
        build = replace(build, **{name: size})  # type: ignore[arg-type]
    build.check()
    return replace(bundle, build=build)


def choose_tokenizer(given: str | Path | Tokenizer | None, bundle: Bundle) -> Tokenizer | None:
    """The tokenizer that was given, the one of a folder, or the bundle's if it has one.

    Raises `CheckpointError` or `BundleMismatch` for one that can not be used with this model.
    """
    if isinstance(given, Tokenizer):
        tokenizer = given
    elif given is not None:
        tokenizer = Tokenizer.load(Path(given))
    elif (bundle.path / TOKENIZER_FILE).exists():
        tokenizer = Tokenizer.load(bundle.path)
    else:
        return None
    tokenizer.check_covers(bundle.spec.vocab_size)
    return tokenizer


def grammars_for(tokenizer: Tokenizer, bundle: Bundle) -> GrammarCompiler:
    """What compiles the grammars of requests; loads nothing yet."""
    return GrammarCompiler(tokenizer, bundle.spec.vocab_size, bundle.spec.eos_token_id)


def open_executor(
    bundle: Bundle,
    tokenizer: Tokenizer | None,
    config: KvCacheConfig,
    device: str,
    max_queue_size: int,
) -> Executor:
    """Plan the pools, load the engine, and put an executor on it."""
    device = device_for(bundle, device)
    plan = plan_for_device(bundle, config, device)
    engine = open_engine(bundle, plan, device=device)

    from dsv4_trt.runtime.sampling.sampler import Sampler, sample_op  # loads torch, in seconds

    def new_text(params: SamplingParams) -> TextStream:
        assert tokenizer is not None
        return TextStream(tokenizer, params, bundle.spec.eos_token_id)

    executor = Executor(
        engine,
        Sampler(bundle.spec.vocab_size, sample_op(device)),
        ExecutorConfig(
            max_num_seqs=bundle.build.max_batch_size,
            max_num_tokens=bundle.build.max_num_tokens,
            max_queue_size=max_queue_size,
            retention=config.retention,
        ),
        new_text=None if tokenizer is None else new_text,
        grammars=None if tokenizer is None else grammars_for(tokenizer, bundle),
    )
    for _ in executor.stepper.warm_up():
        pass
    return executor
