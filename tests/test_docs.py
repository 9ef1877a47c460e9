"""Documentation names only what exists: files, commands, options, dependencies."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import click
import pytest

from dsv4_trt.cli.main import COMMANDS, cli

ROOT = Path(__file__).parent.parent
DOCS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
ROOMS = ("dsv4_trt", "convert", "plugins", "builder", "runtime", "cli")
FOLDERS = (*ROOMS, "tests", "docs", "scripts", "benchmarks", ".ci")
IDS = [str(path.relative_to(ROOT)) for path in DOCS]


def code_spans(text):
    """Inline code, and the lines of fenced code with continuation lines joined."""
    blocks = re.findall(r"^```.*?\n(.*?)^```", text, re.M | re.S)
    for block in blocks:
        yield from block.replace("\\\n", " ").splitlines()
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))


def options_of(command):
    with click.Context(cli) as context:
        found = cli.get_command(context, command)
    assert found is not None
    parts = found.commands.values() if isinstance(found, click.Group) else ()
    params = [param for part in (found, *parts) for param in part.params]
    names = {name for p in params for name in (*p.opts, *p.secondary_opts)}
    return names | {"-h", "--help"}


@pytest.mark.parametrize("path", DOCS, ids=IDS)
def test_links_lead_somewhere(path):
    text = path.read_text("utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        assert (path.parent / target).exists(), f"{target} does not exist"
    headings = {
        re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-")
        for line in text.splitlines()
        if line.startswith("#")
    }
    for anchor in re.findall(r"\]\(#([^)]+)\)", text):
        assert anchor in headings, f"no heading for #{anchor}"


@pytest.mark.parametrize("path", DOCS, ids=IDS)
def test_named_files_exist(path):
    for span in code_spans(path.read_text("utf-8")):
        for word in span.split():
            if re.fullmatch(r"[\w.-]+(/[\w.*-]+)+/?", word) and word.split("/")[0] in FOLDERS:
                assert list(ROOT.glob(word.rstrip("/"))), f"{word} does not exist"
            elif re.fullmatch(r"[\w-]+\.(toml|yaml)|Makefile|Dockerfile", word):
                assert (ROOT / word).exists(), f"{word} does not exist"


@pytest.mark.parametrize("path", DOCS, ids=IDS)
def test_named_commands_and_options_exist(path):
    for span in code_spans(path.read_text("utf-8")):
        for call in re.findall(r"(?<![\w/.'])dsv4-trt ([a-zA-Z-].*)", span):
            name, *words = call.split()
            if name in ("COMMAND", "--help", "--version"):
                continue
            assert name in COMMANDS, f"dsv4-trt {name} is no command"
            used = {word.split("=")[0] for word in words if re.match(r"--?[a-zA-Z]", word)}
            unknown = used - options_of(name)
            assert not unknown, f"dsv4-trt {name} has no options {sorted(unknown)}"


def test_every_command_is_in_the_readme():
    text = (ROOT / "README.md").read_text("utf-8")
    missing = [name for name in COMMANDS if f"dsv4-trt {name}" not in text]
    assert not missing


def test_every_option_has_help_and_every_command_an_example():
    for name in COMMANDS:
        with click.Context(cli) as context:
            command = cli.get_command(context, name)
        assert command is not None
        assert "Example:" in (command.help or ""), f"{name} has no example"
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{name} {parameter.opts[0]} has no help"


def test_every_dependency_is_explained():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    text = (ROOT / "docs" / "dependencies.md").read_text("utf-8")
    always = [("", requirement) for requirement in project["dependencies"]]
    optional = [
        (extra, requirement)
        for extra, requirements in project["optional-dependencies"].items()
        for requirement in requirements
    ]
    for extra, requirement in always + optional:
        name = re.split(r"[<>=!~ \[]", requirement)[0]
        row = rf"^\| `{extra}` \|.*`{name}`.*\|" if extra else rf"^\| `{name}` \|"
        assert re.search(row, text, re.M), f"{name} of {extra or 'dependencies'} is not explained"


def test_decisions_are_short():
    for path in (ROOT / "docs" / "adr").glob("*.md"):
        assert len(path.read_text("utf-8").splitlines()) <= 60, path.name
