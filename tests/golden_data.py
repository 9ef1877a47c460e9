"""Where golden data is: the folder that DSV4_GOLDEN_DIR names, else the subset under tests/golden."""

import os
from pathlib import Path

import pytest
from safetensors.torch import load_file

MODELS = ("tiny-a", "tiny-b", "tiny-base")


def golden_file(model, name):
    """The path of a golden file; skips the test where it is in neither place."""
    roots = [Path(__file__).parent / "golden"]
    if given := os.environ.get("DSV4_GOLDEN_DIR"):
        roots.insert(0, Path(given))
    for root in roots:
        if (root / model / name).exists():
            return root / model / name
    where = "DSV4_GOLDEN_DIR" if given else "tests/golden, and DSV4_GOLDEN_DIR is not set"
    pytest.skip(f"no {model}/{name} in {where}")


def golden_tensors(model, name):
    """The tensors of a golden safetensors file."""
    return load_file(golden_file(model, name))
