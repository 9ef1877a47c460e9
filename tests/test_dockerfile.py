"""The Dockerfile as far as it can be held without Docker: what it copies, installs and starts is there.

That the wheel builds from what the build gets to see, scripts/check_wheel.sh shows.
"""

import fnmatch
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "Dockerfile").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
IGNORED = (ROOT / ".dockerignore").read_text("utf-8").split()


def instructions():
    """(name, arguments) of each instruction, continued lines joined, comments left out."""
    lines = [line for line in TEXT.splitlines() if not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if line.strip():
            name, _, rest = line.strip().partition(" ")
            yield name, rest.strip()


def arguments(name):
    return [rest for found, rest in instructions() if found == name]


def is_ignored(path):
    return any(fnmatch.fnmatch(path, pattern) for pattern in IGNORED)


def test_stages_are_named_before_they_are_copied_from():
    stages = set()
    for name, rest in instructions():
        if name == "FROM" and " AS " in rest:
            stages.add(rest.split(" AS ")[1])
        elif name == "COPY" and (found := re.match(r"--from=(\S+)", rest)):
            assert found[1] in stages


def test_what_is_copied_is_there():
    copied = [rest.split() for rest in arguments("COPY") if not rest.startswith("--from")]
    assert copied
    for *sources, _ in copied:
        for source in sources:
            assert (ROOT / source).exists()
            assert source == "." or not is_ignored(source)


@pytest.mark.parametrize("script", arguments("RUN"))
def test_commands_are_shell(script):
    subprocess.run(["sh", "-n", "-c", script], check=True)


def test_extras_exist():
    (extras,) = re.findall(r"\.whl\)\[([\w,-]+)\]", TEXT)
    assert {"cuda", "serve"} <= set(extras.split(",")) <= set(PROJECT["optional-dependencies"])


def test_the_program_is_the_wheels():
    (entry,) = arguments("ENTRYPOINT")
    assert entry == '["dsv4-trt"]'
    assert "dsv4-trt" in PROJECT["scripts"]
    assert "/opt/dsv4-trt/bin:$PATH" in TEXT


def test_variables_are_read_somewhere():
    names = re.findall(r"\b(DSV4_[A-Z_]+)=", TEXT)
    source = "".join(p.read_text("utf-8") for p in (ROOT / "plugins").glob("*.py"))
    assert names
    assert all(name in source for name in names)


def test_the_port_is_the_servers():
    from dsv4_trt.runtime.server.serve_config import ServeConfig

    assert arguments("EXPOSE") == [str(ServeConfig(engine_dir=ROOT).port)]
