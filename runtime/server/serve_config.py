"""How a server serves: options of the command line over those of a YAML file over defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from dsv4_trt.errors import ConfigError
from dsv4_trt.runtime.kv_cache_config import KvCacheConfig

PARSER = "deepseek_v4"  # the only tool and reasoning parser; TensorRT-LLM's name for it
LOG_LEVELS = ("debug", "info", "warning", "error")
_CHOICES = {
    "tool_parser": (PARSER,),
    "reasoning_parser": (PARSER,),
    "device": ("auto", "cpu", "cuda"),
    "precision": ("serving", "exact"),
    "log_level": LOG_LEVELS,
    "log_format": ("text", "json"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """Everything `dsv4-trt serve` can be told, in TensorRT-LLM's names where it has them."""

    engine_dir: Path
    tokenizer: Path | None = None  # a folder with tokenizer.json; None = the bundle's
    checkpoint_dir: Path | None = None
    served_model_name: str | None = None  # None = the name of the bundle's folder
    host: str = "localhost"
    port: int = 8000  # 0 = a free one
    api_key: str | None = None  # None = open to everybody who reaches the port
    max_batch_size: int | None = None  # None = as built, as are the next two
    max_num_tokens: int | None = None
    max_seq_len: int | None = None
    tp_size: int | None = None  # None = as the bundle was converted; nothing else runs
    kv_cache_config: KvCacheConfig = field(default_factory=KvCacheConfig)
    max_queue_size: int = 1024  # sequences that may wait; above, requests get 429
    max_request_bytes: int = (
        16 << 20
    )  # of a request's body; above, 413. 1M tokens take 10 MB at most
    request_timeout: float = 3600.0  # seconds a request may run, waiting included
    body_timeout: float = 30.0  # seconds a client may take to send its body
    drain_timeout: float = 60.0  # seconds that running requests get after SIGTERM
    tool_parser: str = PARSER
    reasoning_parser: str = PARSER
    device: str = "auto"
    precision: str = "serving"
    log_level: str = "info"
    log_format: str = "text"

    def check(self) -> None:
        """Raise `ConfigError` naming the first option with an illegal value."""
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise _refusal(name, getattr(self, name), " or ".join(choices))
        for name in ("max_batch_size", "max_num_tokens", "max_seq_len", "tp_size"):
            if getattr(self, name) is not None:
                _whole(name, getattr(self, name), 1)
        _whole("max_queue_size", self.max_queue_size, 1)
        _whole("max_request_bytes", self.max_request_bytes, 1)
        _whole("port", self.port, 0, 65535)
        for name in ("request_timeout", "body_timeout", "drain_timeout"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not 0 < value <= 1e9:
                raise _refusal(name, value, "seconds above 0")
        for name in ("host", "served_model_name", "api_key"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value):
                raise _refusal(name, value, "a text that is not empty")
        self.kv_cache_config.check()

    @property
    def model_name(self) -> str:
        """What clients call the model."""
        return self.served_model_name or self.engine_dir.resolve().name


def read_config(path: Path | None, given: Mapping[str, Any]) -> ServeConfig:
    """The options of a YAML file (None = no file) under those that were `given` on the command line.

    Raises `ConfigError` for a file that can not be read, an unknown key and an illegal value.
    """
    options = {} if path is None else _read_yaml(path)
    options |= given
    kv = options.pop("kv_cache_config", {})
    if fraction := options.pop("kv_cache_free_gpu_memory_fraction", None):
        kv = {**kv, "free_gpu_memory_fraction": fraction}
    for name in ("engine_dir", "tokenizer", "checkpoint_dir"):
        if isinstance(options.get(name), str):
            options[name] = Path(options[name])
    if not isinstance(options.get("engine_dir"), Path):
        raise ConfigError("engine_dir is missing; give --engine_dir, the folder of a bundle")
    config = ServeConfig(**options)
    config = replace(config, kv_cache_config=replace(KvCacheConfig(), **kv))
    config.check()
    return config


def _read_yaml(path: Path) -> dict[str, Any]:
    import yaml

    try:
        data = yaml.load(path.read_text(encoding="utf-8"), _unique_keys())
    except OSError as error:
        raise ConfigError(f"{path} can not be read: {error.strerror}") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} can not be read as YAML: {error}") from error
    data = {} if data is None else data
    if not isinstance(data, dict):
        raise ConfigError(f"{path} holds a {type(data).__name__}; expected options and values")
    legal = {each.name for each in fields(ServeConfig)} | {"kv_cache_free_gpu_memory_fraction"}
    _only_known(str(path), data, legal)
    kv = data.get("kv_cache_config", {})
    if not isinstance(kv, dict):
        raise ConfigError(f"{path}: kv_cache_config is {kv!r}; expected options and values")
    _only_known(f"{path}: kv_cache_config", kv, {each.name for each in fields(KvCacheConfig)})
    return data


def _unique_keys() -> Any:
    """YAML's safe loader, to which a key that stands twice is an error and not the last one's value."""
    import yaml

    class UniqueKeys(yaml.SafeLoader):
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys = [self.construct_object(key, deep=True) for key, _ in node.value]
            twice = next((key for at, key in enumerate(keys) if key in keys[:at]), None)
            if twice is not None:
                raise yaml.YAMLError(f"the key {twice!r} stands there twice")
            return super().construct_mapping(node, deep)

    return UniqueKeys


def _only_known(where: str, data: dict[Any, Any], legal: set[str]) -> None:
    unknown = [key for key in data if key not in legal]
    if unknown:
        raise ConfigError(
            f"{where} has the unknown key {unknown[0]!r}; expected any of {', '.join(sorted(legal))}"
        )


def _whole(name: str, value: object, low: int, high: int = 2**63 - 1) -> None:
    if type(value) is not int or not low <= value <= high:
        raise _refusal(name, value, f"a whole number from {low} to {high}")


def _refusal(name: str, value: object, expected: str) -> ConfigError:
    return ConfigError(f"{name} is {value!r}; expected {expected}")
