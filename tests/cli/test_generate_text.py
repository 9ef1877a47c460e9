"""`dsv4-trt generate --prompt`: text through the real tokenizer, from a made checkpoint."""

import json
import os
import subprocess
import sys

import pytest

from tests.workshop import run_cli

SEED = ("--seed", 1, "--max_tokens", 12, "--ignore_eos")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A function that runs the command on one bundle."""
    root = tmp_path_factory.mktemp("text")
    run_cli("make-checkpoint", "--preset", "tiny", "--no-mtp", "--output_dir", root / "hf")
    run_cli("convert", "--model_dir", root / "hf", "--output_dir", root / "ckpt")
    run_cli("build", "--checkpoint_dir", root / "ckpt", "--output_dir", root / "engine")
    args = ("generate", "--engine_dir", root / "engine", "--prompt", "The sky is", *SEED)
    return lambda *more, program=run_cli: program(*args, *more)


@pytest.fixture(scope="module")
def whole(run):
    return run("--json")


def test_a_stop_string_cuts_the_text_wherever_tokens_end(run, whole):
    text = json.loads(whole)["text"]
    stop = text[len(text) // 2 - 2 : len(text) // 2 + 2]
    found = json.loads(run("--json", "--stop", stop, "--stop", "not there"))
    assert found["text"] == text[: text.index(stop)]
    assert found["finish_reason"] == "stop"


def test_streamed_text_is_the_whole_text_in_what_the_terminal_can_show(run, whole):
    """JSON is ASCII: what Python puts for a character that an encoding lacks is no escape of JSON."""

    def program(*args):
        command = [sys.executable, "-m", "dsv4_trt.cli", *map(str, args)]
        environment = os.environ | {"PYTHONIOENCODING": "latin-1"}
        return subprocess.run(command, env=environment, capture_output=True, check=True).stdout

    text = json.loads(whole)["text"]
    assert run(program=program) == (text + "\n").encode("latin-1", errors="backslashreplace")
    assert whole.isascii()
    assert not text.isascii()
