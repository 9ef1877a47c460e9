"""What the program does about the place its output goes to."""

import json
import os
import subprocess
import sys

import pytest

from tests.cli.builds import DUMMY, RTX


def run_program(*args, stdout=subprocess.PIPE, **environment):
    command = [sys.executable, "-m", "dsv4_trt.cli", *map(str, args)]
    return subprocess.run(
        command, stdout=stdout, stderr=subprocess.PIPE, env=os.environ | environment, check=False
    )


def test_what_an_encoding_lacks_is_escaped(tmp_path, tiny_a):
    (tmp_path / "雪").symlink_to(tiny_a)
    run = run_program("inspect", tmp_path / "雪", PYTHONIOENCODING="latin-1")
    assert (run.returncode, run.stderr) == (0, b"")
    assert run.stdout.splitlines()[0].endswith(b"\\u96ea")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("args", [(), ("--json",)])
def test_a_full_disk_under_the_output_is_one_line(tiny_a, args, unbuffered):
    with open("/dev/full", "wb") as full:
        run = run_program("inspect", tiny_a, *args, stdout=full, PYTHONUNBUFFERED=unbuffered)
    assert run.returncode == 1
    assert run.stderr == b"error: No space left on device\n"


def test_a_reader_that_leaves_ends_the_program_without_a_word(tiny_a):
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as pipe:
        run = run_program("inspect", tiny_a, "--tensors", stdout=pipe)
    assert (run.returncode, run.stderr) == (1, b"")


def test_a_program_without_stderr_works(tmp_path):
    command = [sys.executable, "-m", "dsv4_trt.cli", "build", *DUMMY, *RTX, "--no-mtp", "--json"]
    shell = ["sh", "-c", 'exec "$@" 2>&-', "sh", *command, "--output_dir", tmp_path / "engine"]
    run = subprocess.run(shell, stdout=subprocess.PIPE, check=True)
    assert set(json.loads(run.stdout)["plans"]["graphs"]) == {"trunk"}
