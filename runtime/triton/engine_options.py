"""What the Triton model's config.pbtxt says about the engine: strings there, checked and typed here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsv4_trt.errors import ConfigError

if TYPE_CHECKING:
    from dsv4_trt.runtime.kv_cache_config import KvCacheConfig
    from dsv4_trt.runtime.llm import LLM


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Options of the engine behind the model; None = the `LLM`'s default."""

    engine_dir: str  # relative: to the model's folder in the repository
    checkpoint_dir: str | None = None
    tokenizer_dir: str | None = None
    device: str | None = None
    precision: str | None = None
    max_batch_size: int | None = None
    max_num_tokens: int | None = None
    max_seq_len: int | None = None
    max_queue_size: int | None = None
    kv_cache_free_gpu_memory_fraction: float | None = None
    kv_cache_max_tokens: int | None = None
    enable_kv_cache_reuse: bool | None = None

    def to_parameters(self) -> dict[str, str]:
        """Those that are given, as config.pbtxt has them."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: _write(value) for name, value in given.items() if value is not None}

    @staticmethod
    def from_parameters(parameters: Mapping[str, Mapping[str, str]]) -> EngineOptions:
        """The `parameters` of a model's config; raises `ConfigError` naming the one at fault.

        Names in capitals belong to Triton's Python backend.
        """
        texts = {
            name: value.get("string_value", "")
            for name, value in parameters.items()
            if not name.isupper()
        }
        unknown = sorted(set(texts) - set(_READ))
        if unknown:
            raise ConfigError(
                f"config.pbtxt has the parameter '{unknown[0]}'; expected {', '.join(_READ)}"
            )
        if not texts.get("engine_dir"):
            raise ConfigError(
                "config.pbtxt has no parameter 'engine_dir', the engine bundle's folder"
            )
        return EngineOptions(**{name: _read(name, text) for name, text in texts.items() if text})

    def check(self) -> None:
        """Raise what `open` would raise for folders and sizes, without loading the engine."""
        from dsv4_trt.runtime.bundle import open_bundle
        from dsv4_trt.runtime.llm_open import choose_tokenizer, limit_sizes

        checkpoint_dir = None if self.checkpoint_dir is None else Path(self.checkpoint_dir)
        bundle = open_bundle(
            Path(self.engine_dir),
            precision=self.precision or "serving",
            checkpoint_dir=checkpoint_dir,
        )
        sizes = (self.max_batch_size, self.max_num_tokens, self.max_seq_len)
        longest = limit_sizes(bundle, *sizes).build.max_seq_len
        choose_tokenizer(self.tokenizer_dir, bundle)
        self._kv_cache_config().check()
        if self.kv_cache_max_tokens is not None and self.kv_cache_max_tokens < longest:
            raise ConfigError(
                f"kv_cache_max_tokens is {self.kv_cache_max_tokens}, one sequence of max_seq_len {longest} "
                "does not fit; give more, or a smaller --max_seq_len"
            )
        if self.max_queue_size is not None and self.max_queue_size < 1:
            raise ConfigError(f"max_queue_size is {self.max_queue_size}; expected at least 1")

    def open(self, model_dir: Path) -> LLM:
        """Open the engine; relative folders begin at `model_dir`. Raises what `LLM` does."""
        from dsv4_trt.runtime.llm import LLM

        def folder(name: str | None) -> Path | None:
            return None if name is None else model_dir / name

        return LLM(
            model_dir / self.engine_dir,
            tokenizer=folder(self.tokenizer_dir),
            checkpoint_dir=folder(self.checkpoint_dir),
            precision=self.precision,
            kv_cache_config=self._kv_cache_config(),
            max_batch_size=self.max_batch_size,
            max_num_tokens=self.max_num_tokens,
            max_seq_len=self.max_seq_len,
            **_given({"device": self.device, "max_queue_size": self.max_queue_size}),
        )

    def _kv_cache_config(self) -> KvCacheConfig:
        from dsv4_trt.runtime.kv_cache_config import KvCacheConfig

        options = {
            "free_gpu_memory_fraction": self.kv_cache_free_gpu_memory_fraction,
            "max_tokens": self.kv_cache_max_tokens,
            "enable_block_reuse": self.enable_kv_cache_reuse,
        }
        return KvCacheConfig(**_given(options))


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _write(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _bool(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


_KINDS: dict[str, tuple[Callable[[str], Any], str]] = {
    "int": (int, "a whole number"),
    "float": (float, "a number"),
    "bool": (_bool, "true or false"),
    "str": (str, "a text"),
}
_READ = {field.name: _KINDS[str(field.type).split(" ")[0]] for field in fields(EngineOptions)}


def _read(name: str, text: str) -> Any:
    read, expected = _READ[name]
    try:
        return read(text)
    except (ValueError, KeyError):
        raise ConfigError(
            f"parameter '{name}' of config.pbtxt is '{text}'; expected {expected}"
        ) from None
