"""Opens the engine that a server serves, inside the executor's process."""

from __future__ import annotations

import hashlib

from dsv4_trt.contract import ENCODER_REVISION, MANIFEST_FILE
from dsv4_trt.errors import BundleMismatch, ConfigError
from dsv4_trt.runtime.bundle import Bundle
from dsv4_trt.runtime.llm_open import choose_bundle, choose_tokenizer, limit_sizes, open_executor
from dsv4_trt.runtime.open import device_for
from dsv4_trt.runtime.server.executor_messages import EngineInfo
from dsv4_trt.runtime.server.executor_process import Opened
from dsv4_trt.runtime.server.serve_config import ServeConfig


def open_served(config: ServeConfig) -> Opened:
    """The engine of a bundle with an executor on it, as `LLM` opens it.

    Raises what `LLM` does, `ConfigError` for a `tp_size` that the bundle has not, and `BundleMismatch` for
    one whose chat format is not the one that this version writes.
    """
    bundle = choose_bundle(config.engine_dir, config.precision, config.checkpoint_dir)
    _check_ranks(bundle, config.tp_size)
    if bundle.encoder_revision != ENCODER_REVISION:
        raise BundleMismatch(
            f"{bundle.path} was built for the chat encoder '{bundle.encoder_revision}'; this version has "
            f"'{ENCODER_REVISION}' alone, build the bundle again with it"
        )
    bundle = limit_sizes(bundle, config.max_batch_size, config.max_num_tokens, config.max_seq_len)
    tokenizer = choose_tokenizer(config.tokenizer, bundle)
    device = device_for(bundle, config.device)
    executor = open_executor(
        bundle, tokenizer, config.kv_cache_config, device, config.max_queue_size
    )
    manifest = (bundle.path / MANIFEST_FILE).read_bytes()
    info = EngineInfo(
        spec=bundle.spec,
        build=bundle.build,
        engine=bundle.build.engine,
        device=device,
        precision=config.precision,
        identity=hashlib.sha256(manifest).hexdigest()[:12],
        encoder_revision=bundle.encoder_revision,
        pool_pages={str(b): count for b, count in executor.engine.plan.num_pages.items()},
    )
    return Opened(executor, info)


def _check_ranks(bundle: Bundle, tp_size: int | None) -> None:
    """Raise `ConfigError` for another number of ranks than the bundle was converted for."""
    built = bundle.mapping.tp_size
    if tp_size not in (None, built):
        raise ConfigError(
            f"tp_size is {tp_size}, the bundle {bundle.path} was converted for {built}; the number of "
            "ranks is fixed when a checkpoint is converted: leave --tp_size out, or convert with "
            f"--tp_size {tp_size}"
        )
