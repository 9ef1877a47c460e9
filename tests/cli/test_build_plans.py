"""`dsv4-trt build --engine tensorrt-rtx` with the real builder, and when that dies."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dsv4_trt.builder.lowering import process
from dsv4_trt.cli import plugins
from dsv4_trt.cli.build_report import build_report
from dsv4_trt.cli.build_text import print_build
from dsv4_trt.contract import BuildSpec
from dsv4_trt.errors import BuildError, PluginError
from dsv4_trt.plan_record import BuildRecord
from dsv4_trt.plugins.library import ABI_VERSION
from dsv4_trt.plugins.ops import OPS
from dsv4_trt.runtime.bundle import open_bundle
from tests.cli.builds import DUMMY, RTX, build

ROOT = Path(__file__).parents[2]


def test_plans_of_a_model(plans_home):
    folder = plans_home / "one"
    names = {file.name for file in folder.iterdir()}
    assert names == {
        *("config.json", "graph.json", "manifest.json", "weights"),
        *("rank0.engine", "rank0.mtp.engine", "plan.json", "build.log"),
    }
    record = BuildRecord.from_json(json.loads((folder / "plan.json").read_text()))
    for name, plan in record.plans.items():
        data = (folder / ("rank0.engine" if name == "trunk" else "rank0.mtp.engine")).read_bytes()
        assert len(data) == plan.nbytes
        assert data[:4] == b"vtrt"
    config = json.loads((folder / "config.json").read_text())
    assert config["build_config"]["engine"] == "tensorrt-rtx"
    assert config["build_config"]["target"] == "sm_120a"
    manifest = json.loads((folder / "manifest.json").read_text())
    assert set(manifest["files"]) == names - {"manifest.json", "weights"}
    assert open_bundle(folder).record == record


def test_the_text_says_what_was_built(plans_home):
    text, files = (plans_home / "one.txt").read_text(), plans_home / "one"
    assert f"{(files / 'rank0.engine').stat().st_size:,} B" in text
    assert "for sm_120a" in text
    for op, count in {"linear": "22", "sparse_attention": "4", "rms_norm": "0"}.items():
        line = next(line for line in text.splitlines() if f" {op} " in line)
        assert count in line.split()
    for part in ("in-place outputs", " 182 ", "streams", "seconds", "MiB", "8,192", "decode"):
        assert part in text


def test_the_text_says_that_twins_do_not_run_and_what_does(plans_home):
    text = (plans_home / "one.txt").read_text()
    assert "Python twins instead of the plugin library" in text
    assert "can not run" in text
    assert "dsv4-trt plugins build --arch sm_120a --tensorrt_include DIR" in text
    assert f"next: dsv4-trt inspect {plans_home / 'one'} --layers" in text
    assert "generate" not in text


def test_the_remedy_for_twins_is_a_command_that_exists(plans_home, tmp_path):
    line = next(x for x in (plans_home / "one.txt").read_text().splitlines() if "twins" in x)
    words = line.partition("build again: ")[2].split()
    assert words[:3] == ["dsv4-trt", "plugins", "build"]
    arguments = [str(tmp_path) if word == "DIR" else word for word in words[3:]]
    chosen = plugins.build.make_context("build", arguments).params
    assert chosen["architectures"] == ("sm_120a",)
    assert chosen["tensorrt_include"] == tmp_path


def test_progress_goes_to_stderr(plans_home):
    assert (plans_home / "one.err").read_text().splitlines() == [
        "trunk: 75 nodes for sm_120a",
        "mtp: 22 nodes for sm_120a",
    ]


def test_two_ranks_have_the_same_plan(plans_home):
    folder = plans_home / "two"
    plans = [(folder / f"rank{rank}.engine").read_bytes() for rank in range(2)]
    assert plans[0] == plans[1]
    assert not (folder / "rank0.mtp.engine").exists()
    manifest = json.loads((folder / "manifest.json").read_text())["files"]
    assert manifest["rank0.engine"] == manifest["rank1.engine"]
    assert len([*(folder / "weights").iterdir()]) == 2


def test_json_has_all_of_it(plans_home):
    found = json.loads((plans_home / "two.json").read_text())
    folder = plans_home / "two"
    assert found["output_dir"] == str(folder)
    assert found["world_size"] == 2
    assert found["files"] == {f.name: f.stat().st_size for f in folder.iterdir() if f.is_file()}
    plans = found["plans"]
    assert (plans["engine"], plans["target"]) == ("tensorrt-rtx", "sm_121a")
    assert plans["plugins"] == ""
    assert plans["is_runnable"] is False
    trunk = plans["graphs"]["trunk"]
    assert trunk["num_bytes"] == found["files"]["rank0.engine"]
    assert trunk["plugins"]["all_reduce"] > 0
    assert trunk["num_layers"] == sum(trunk["plugins"].values()) + sum(
        trunk["native_layers"].values()
    )
    assert trunk["profiles"]["decode"]["num_seqs"] == [1, 64, 64]
    assert trunk["num_aliases"] == 14
    assert 1 <= trunk["num_streams"] <= 3
    assert 0 < trunk["seconds"] < 60
    assert 50e6 < trunk["peak_bytes"] < 4 << 30


def test_plans_of_the_library_are_to_be_run(plans_home, capsys):
    data = json.loads((plans_home / "one" / "plan.json").read_text())
    record = BuildRecord.from_json(data | {"plugins": "11.1.0"})
    print_build(build_report(plans_home / "one", 1, record))
    text = capsys.readouterr().out
    assert "plugins: the library, with headers of TensorRT 11.1.0" in text
    assert "twins" not in text
    following = f"dsv4-trt generate --engine_dir {plans_home / 'one'} --token_ids 0"
    assert f"next, on a GPU of sm_120a: {following}" in text
    print_build(build_report(plans_home / "one", 2, record))
    assert f"next: dsv4-trt inspect {plans_home / 'one'} --layers" in capsys.readouterr().out


def test_the_next_command_is_one_for_any_name(tmp_path):
    path = tmp_path / "it's an engine"
    shown = build(*DUMMY, "--output_dir", path, cache=tmp_path).output
    words = shlex.split(shown.partition("next: ")[2])
    assert words == ["dsv4-trt", "generate", "--engine_dir", str(path), "--token_ids", "0"]


def test_a_native_bundle_has_no_plans(tmp_path):
    build(*DUMMY, "--output_dir", tmp_path / "engine", cache=tmp_path)
    names = {file.name for file in (tmp_path / "engine").iterdir()}
    assert names == {"config.json", "graph.json", "manifest.json", "weights"}
    assert json.loads((tmp_path / "engine" / "config.json").read_text())["build_config"] == {
        **BuildSpec().to_json()
    }


DEATHS = {
    "by SIGSEGV": "import os, signal; print('deep in the builder', file=sys.stderr); "
    "sys.stderr.flush(); os.kill(os.getpid(), signal.SIGSEGV)",
    "by SIGKILL": "import os, signal; open('rank0.engine', 'wb').write(b'half of it'); "
    "os.write(2, b'deep in the builder'); os.kill(os.getpid(), signal.SIGKILL)",
    "with status 3": "print('deep in the builder', file=sys.stderr); sys.exit(3)",
    "with status 0": "print('deep in the builder', file=sys.stderr)",
    "with status 1": "raise RuntimeError('deep in the builder')",
}


@pytest.mark.parametrize("how", DEATHS)
def test_a_builder_that_dies_is_an_error_with_its_last_words(monkeypatch, tmp_path, how):
    (tmp_path / "dying_child.py").write_text(f"import sys; sys.stdin.read(); {DEATHS[how]}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(process, "_MODULE", "dying_child")
    place = tmp_path / "place"
    place.mkdir()
    with pytest.raises(BuildError, match=f"(?s)ended {how};.*deep in the builder"):
        build(*DUMMY, *RTX, "--output_dir", place / "engine", cache=tmp_path)
    assert [*place.iterdir()] == []


@pytest.mark.usefixtures("signals_as_usual")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_takes_the_builder_along_and_leaves_nothing(tmp_path, number):
    (tmp_path / "hanging_child.py").write_text(
        "import os, pathlib, time\n"
        f"pathlib.Path({str(tmp_path)!r}, 'pid.new').write_text(str(os.getpid()))\n"
        f"os.rename({str(tmp_path / 'pid.new')!r}, {str(tmp_path / 'pid')!r})\n"
        "time.sleep(120)\n"
    )
    place = tmp_path / "place"
    program = (
        "from dsv4_trt.builder.lowering import process; process._MODULE = 'hanging_child'\n"
        "from dsv4_trt.cli.main import main; main()"
    )
    command = subprocess.Popen(
        [sys.executable, "-c", program, "build", *DUMMY, *RTX, "--output_dir", place / "engine"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}", "DSV4_TRT_CACHE": str(tmp_path)},
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "pid").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        child = int((tmp_path / "pid").read_text())
        assert len([*place.iterdir()]) == 1
        command.send_signal(number)
        assert command.wait(30) == 128 + number
    finally:
        command.kill()
        command.wait()
    assert [*place.iterdir()] == []
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_what_is_no_library_is_refused(tmp_path):
    library = tmp_path / "library.so"
    library.write_bytes(b"not a library")
    place = tmp_path / "place"
    with pytest.raises(PluginError, match="can not be loaded"):
        build(
            *(*DUMMY, *RTX, "--plugin_library", library, "--output_dir", place / "engine"),
            cache=tmp_path,
        )
    assert [*place.iterdir()] == []


def test_a_library_without_plugins_is_refused(tmp_path):
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    table = json.dumps([op.to_json() for op in OPS.values()]).encode() + b"\0"
    (tmp_path / "library.c").write_text(
        f"static const char table[] = {{{','.join(map(str, table))}}};\n"
        f"int dsv4_abi_version(void) {{ return {ABI_VERSION}; }}\n"
        "const char *dsv4_op_table(void) { return table; }\n"
        'const char *dsv4_last_error(void) { return ""; }\n'
        'const char *dsv4_tensorrt_version(void) { return ""; }\n'
        "int dsv4_find_op(const char *name, int *index) { *index = 0; return 0; }\n"
    )
    library, place = tmp_path / "library.so", tmp_path / "place"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", library, tmp_path / "library.c"], check=True
    )
    with pytest.raises(PluginError, match="compiled without TensorRT's headers and has no plugins"):
        build(
            *(*DUMMY, *RTX, "--plugin_library", library, "--output_dir", place / "engine"),
            cache=tmp_path,
        )
    assert [*place.iterdir()] == []
