"""The examples of docs/serving.md, run as they stand against a live server."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dsv4_trt.runtime.server.serve_config import read_config

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs/serving.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(bash|python|yaml)\n(.*?)^```", TEXT, re.M | re.S)
RUN = [(kind, code) for kind, code in BLOCKS if kind != "yaml"]


def test_there_are_examples():
    assert {kind for kind, _ in BLOCKS} == {"bash", "python", "yaml"}
    assert len(RUN) >= 9


@pytest.mark.parametrize(("kind", "code"), RUN, ids=[f"{k}-{i}" for i, (k, _) in enumerate(RUN)])
def test_an_example_runs(server, kind, code):
    code = code.replace("http://localhost:8000", server.url).replace("deepseek-v4", "tiny")
    program = ["bash", "-euo", "pipefail", "-c"] if kind == "bash" else [sys.executable, "-c"]
    found = subprocess.run([*program, code], capture_output=True, text=True, timeout=200)
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip()
    assert '{"error"' not in found.stdout


def test_the_configuration_is_one(tmp_path):
    (code,) = (code for kind, code in BLOCKS if kind == "yaml")
    path = tmp_path / "serve.yaml"
    path.write_text(code, encoding="utf-8")
    config = read_config(path, {})
    assert config.kv_cache_config.max_tokens == 20000
    assert config.host == "0.0.0.0"
