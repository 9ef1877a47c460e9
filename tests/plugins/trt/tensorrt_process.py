"""Processes that load one of TensorRT's runtimes: no process has two of them."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = ["tensorrt_rtx", "tensorrt_lean"]


def run_with(package, module, library):
    """What a module of these tests says, given a package and the plugin library; it must end well."""
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    command = [sys.executable, "-m", module, package, library]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done
