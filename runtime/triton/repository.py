"""Writes a model into a Triton model repository. It appears whole or not at all.

REPOSITORY/NAME/config.pbtxt   tensors, and the engine's options as parameters
REPOSITORY/NAME/1/model.py     imports this package's model
"""

from __future__ import annotations

import re
import secrets
import shutil
from pathlib import Path

from dsv4_trt.errors import ConfigError
from dsv4_trt.runtime.triton.engine_options import EngineOptions
from dsv4_trt.runtime.triton.model_config import model_config

DEFAULT_NAME = "tensorrt_llm"
MAX_BATCH_SIZE = 1 << 16
MODEL_FILE = '''"""DeepSeek-V4 by dsv4-trt, which has to be installed in the Python of Triton's backend."""

from dsv4_trt.runtime.triton.model import TritonPythonModel

__all__ = ["TritonPythonModel"]
'''


def export_model(
    repository: Path, options: EngineOptions, *, name: str = DEFAULT_NAME, max_batch_size: int = 0
) -> Path:
    """Write the model `name` into the repository, which may hold others; returns its folder.

    `max_batch_size` is Triton's: above 0 every tensor has a batch dimension in front. Raises
    `ConfigError` for an illegal name or size, and for a model that exists.
    """
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name):
        raise ConfigError(
            f"model_name is '{name}'; expected letters, digits, '_', '-' and '.', the first no '-' or '.'"
        )
    if not 0 <= max_batch_size <= MAX_BATCH_SIZE:
        raise ConfigError(
            f"triton_max_batch_size is {max_batch_size}; expected 0 to {MAX_BATCH_SIZE}"
        )
    place = repository / name
    if place.exists() or place.is_symlink():
        raise ConfigError(f"{place} already exists; remove it, or name another model")
    config = model_config(name, max_batch_size, options.to_parameters())
    repository.mkdir(parents=True, exist_ok=True)
    partial = repository / f".{name}.{secrets.token_hex(4)}.partial"
    try:
        (partial / "1").mkdir(parents=True)
        (partial / "config.pbtxt").write_text(config, encoding="utf-8")
        (partial / "1" / "model.py").write_text(MODEL_FILE, encoding="utf-8")
        partial.rename(place)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return place
