"""What `dsv4-trt build` suggests next works with what it built."""

from __future__ import annotations

import pytest

from tests.workshop import run_cli


@pytest.mark.parametrize(("with_tokenizer", "prompt"), [(True, "--prompt"), (False, "--token_ids")])
def test_the_next_command_fits_the_bundle(tmp_path, with_tokenizer, prompt):
    source, checkpoint, engine = (tmp_path / name for name in ("hf", "checkpoint", "engine"))
    made = ("--preset", "tiny", "--vocab_size", 64, "--no-tokenizer", "--output_dir", source)
    run_cli("make-checkpoint", *made)
    if with_tokenizer:
        (source / "tokenizer.json").write_text("{}")
    run_cli("convert", "--model_dir", source, "--output_dir", checkpoint)
    shown = run_cli("build", "--checkpoint_dir", checkpoint, "--output_dir", engine)
    assert f"next: dsv4-trt generate --engine_dir {engine} {prompt} " in shown
