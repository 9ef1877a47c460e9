"""`dsv4-trt plugins`: where the library is copied to, and what stops before anything is compiled."""

import pytest
from click.testing import CliRunner

from dsv4_trt.cli.plugins import command
from dsv4_trt.plugins import library_build


@pytest.fixture
def built(tmp_path, monkeypatch):
    """A cache that has a library; the list of what was asked for."""
    asked = []
    library = tmp_path / "cache" / "libdsv4_plugins.so"
    library.parent.mkdir()
    library.write_bytes(b"a library")

    def build_library(architectures, **_):
        asked.append(architectures)
        return library

    monkeypatch.setattr(library_build, "build_library", build_library)
    return asked


def run(*arguments):
    return CliRunner().invoke(command, ["build", *map(str, arguments)])


def test_the_copy_replaces_what_was_there(tmp_path, built):
    output = tmp_path / "image" / "lib.so"
    output.parent.mkdir()
    output.write_bytes(b"an older and longer library")
    result = run("--arch", "sm_90a, sm_120a", "--output", output)
    assert result.exit_code == 0, result.output
    assert built == [("sm_90a", "sm_120a")]
    assert [(file.name, file.read_bytes()) for file in output.parent.iterdir()] == [
        ("lib.so", b"a library")
    ]


def test_a_copy_that_fails_leaves_what_was_there(tmp_path, built, monkeypatch):
    def half(source, target):
        target.write_bytes(b"a li")
        raise OSError(28, "No space left on device", str(target))

    monkeypatch.setattr("shutil.copy", half)
    output = tmp_path / "lib.so"
    output.write_bytes(b"older")
    assert isinstance(run("--arch", "sm_90a", "--output", output).exception, OSError)
    assert output.read_bytes() == b"older"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "lib.so"]


def test_a_folder_as_output_is_refused_before_the_work(tmp_path, built):
    result = run("--arch", "sm_90a", "--output", tmp_path)
    assert result.exit_code == 2
    assert "is a directory" in result.output
    assert built == []
