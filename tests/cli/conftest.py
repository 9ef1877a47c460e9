"""Bundles with real TensorRT-RTX plans, built once through the command line."""

import json

import pytest

from tests.cli.builds import DUMMY, RTX, build
from tests.workshop import run_cli


@pytest.fixture(scope="session")
def plans_home(tmp_path_factory):
    """`one`, a tiny model without weights, and `two`, of two ranks; what was printed beside them."""
    home = tmp_path_factory.mktemp("plans")
    shown = build(*DUMMY, *RTX, "--output_dir", home / "one", cache=home)
    assert shown.exit_code == 0, shown.output
    (home / "one.txt").write_text(shown.stdout)
    (home / "one.err").write_text(shown.stderr)
    made = ("--preset", "tiny", "--vocab_size", 64, "--no-tokenizer", "--no-mtp")
    run_cli("make-checkpoint", *made, "--output_dir", home / "hf")
    sizes = ("--tp_size", 2, "--moe_ep_size", 2)
    run_cli("convert", "--model_dir", home / "hf", "--output_dir", home / "checkpoint", *sizes)
    paths = ("--checkpoint_dir", home / "checkpoint", "--output_dir", home / "two")
    shown = build(*paths, *RTX, "--target", "sm_121a", "--json", cache=home)
    (home / "two.json").write_text(json.dumps(json.loads(shown.stdout)))
    return home
