"""The process that builds a plan, in surroundings that are not as it would like them."""

import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from dsv4_trt.builder.lowering import process
from dsv4_trt.builder.lowering.process import run_job
from dsv4_trt.contract import engine_file
from dsv4_trt.errors import BuildError, ConfigError
from tests.builder.networks import graphs, job

ROOT = Path(__file__).parents[2]


def mtp_job():
    found, layout = graphs("tiny")
    return job(found["mtp"], layout)


def build(folder, monkeypatch, **environment):
    """The plan, with these variables set."""
    for name, value in environment.items():
        monkeypatch.setenv(name, str(value))
    folder.mkdir()
    run_job(mtp_job(), folder)
    return (folder / engine_file(0, "mtp")).read_bytes()


def test_the_same_job_gives_the_same_plan_in_any_environment(tmp_path, monkeypatch):
    """TensorRT promises nothing of the kind, so one may differ from two that agree."""
    longer = tmp_path / "a longer name for a folder of temporary files"
    longer.mkdir()
    plans = [
        build(tmp_path / "1", monkeypatch),
        build(tmp_path / "2", monkeypatch, TMPDIR=longer, ANOTHER="x" * 50_000),
        build(tmp_path / "3", monkeypatch, LC_ALL="C", PYTHONOPTIMIZE="1", PYTHONHASHSEED="7"),
    ]
    assert len(set(plans)) < 3
    assert plans[0][:4] == b"vtrt"


def test_what_python_prints_at_its_start_is_no_message(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text("print('hello ' * 50_000)\n")
    monkeypatch.syspath_prepend(tmp_path)
    said = []
    run_job(mtp_job(), tmp_path, said.append)
    assert [line.partition(":")[0] for line in said] == ["mtp"]


def test_standard_streams_may_be_closed(tmp_path):
    program = (
        "from pathlib import Path; from tests.builder.test_process import mtp_job, run_job\n"
        f"run_job(mtp_job(), Path({str(tmp_path)!r}))\n"
    )
    command = ["sh", "-c", '"$0" -c "$1" <&- >&- 2>&-', sys.executable, program]
    subprocess.run(command, cwd=ROOT, check=True)
    assert (tmp_path / engine_file(0, "mtp")).is_file()


def test_no_place_for_temporary_files_is_said(tmp_path, monkeypatch):
    def nowhere():
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    with pytest.raises(ConfigError, match=r"temporary files \(No usable .*name one by TMPDIR"):
        run_job(mtp_job(), tmp_path)


def test_no_room_for_temporary_files_is_said(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(BuildError, match=r"/dsv4-trt-.*: File too large; TMPDIR names another"):
            run_job(mtp_job(), tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.glob("*.engine"))


def test_a_python_that_does_not_know_where_it_is_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(BuildError, match="does not know its own path"):
        run_job(mtp_job(), tmp_path)


def test_a_process_without_a_word_is_said(tmp_path, monkeypatch):
    (tmp_path / "silent.py").write_text("import sys; sys.exit(9)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(process, "_MODULE", "silent")
    with pytest.raises(BuildError, match="ended with status 9; it said nothing"):
        run_job(mtp_job(), tmp_path)


def test_it_ends_with_a_parent_that_is_killed(tmp_path):
    (tmp_path / "hanging.py").write_text(
        "import os, time\n"
        "from pathlib import Path\n"
        "from dsv4_trt.builder.lowering.process_state import end_with_parent\n"
        "end_with_parent()\n"
        f"Path({str(tmp_path)!r}, 'pid.new').write_text(str(os.getpid()))\n"
        f"os.rename({str(tmp_path / 'pid.new')!r}, {str(tmp_path / 'pid')!r})\n"
        "time.sleep(120)\n"
    )
    program = (
        "import sys; from pathlib import Path\n"
        "from dsv4_trt.builder.lowering import process; process._MODULE = 'hanging'\n"
        "from tests.builder.test_process import mtp_job\n"
        "process.run_job(mtp_job(), Path(sys.argv[1]))\n"
    )
    paths = os.pathsep.join([str(ROOT), str(tmp_path)])
    environment = {**os.environ, "PYTHONPATH": paths, "TMPDIR": str(tmp_path)}
    parent = subprocess.Popen([sys.executable, "-c", program, tmp_path], env=environment)
    try:
        assert _soon(lambda: (tmp_path / "pid").exists())
        child = int((tmp_path / "pid").read_text())
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    assert _soon(lambda: not _is_running(child))


def test_the_process_that_builds_asks_to_end_with_its_parent():
    """`main` does so before anything else: `settle` would replace the process."""
    text = "from dsv4_trt.builder.lowering import child, process_state\n"
    text += "calls = []\n"
    text += "child.end_with_parent = lambda: calls.append('end')\n"
    text += "child.settle = lambda module: (print(*calls), exit())\n"
    text += "child.__spec__ = type('Spec', (), {'name': 'x'})\n"
    text += "child.main()\n"
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["end"]


def _soon(holds):
    deadline = time.monotonic() + 30
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds()


def _is_running(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
