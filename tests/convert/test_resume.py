import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

from dsv4_trt.convert import rank_file
from dsv4_trt.convert import staging as staging_module
from dsv4_trt.convert.conversion import prepare
from dsv4_trt.convert.pipeline import convert
from dsv4_trt.convert.staging import JOURNAL_FILE, open_staging, partial_dir
from dsv4_trt.errors import CapacityError, CheckpointError, ConfigError
from dsv4_trt.rank_checkpoint import load_rank_checkpoint
from tests.convert.checkpoints import Loose, left_behind, make, options, run

PARTIAL = ".out.partial"


@pytest.fixture(scope="module")
def official(tmp_path_factory):
    return make(tmp_path_factory.mktemp("official") / "hf")


@pytest.fixture(scope="module")
def whole(official, tmp_path_factory):
    """What an undisturbed conversion gives."""
    output = tmp_path_factory.mktemp("whole") / "out"
    run(official, output, tp=2)
    return output


def same(one, other):
    assert left_behind(one) == left_behind(other)
    for path in one.iterdir():
        assert path.read_bytes() == (other / path.name).read_bytes(), path.name


def journal(tmp_path):
    lines = (tmp_path / PARTIAL / JOURNAL_FILE).read_text().splitlines()
    return [json.loads(line) for line in lines[1:]]


class Fails:
    """An `advance` that raises after so many bytes; convert then stops as if interrupted."""

    def __init__(self, error, after):
        self.error, self.left, self.lock = error, after, threading.Lock()

    def __call__(self, nbytes):
        with self.lock:
            self.left -= nbytes
            if self.left < 0:
                raise self.error


def fail(official, tmp_path, error, after=2_000_000, expected=None, **choices):
    conversion = prepare(options(official, tmp_path / "out", tp=2, **choices))
    with pytest.raises(expected or type(error)) as raised:
        convert(conversion, Fails(error, after))
    assert not (tmp_path / "out").exists()
    return raised.value


def test_an_interrupted_run_is_resumed(official, whole, tmp_path):
    fail(official, tmp_path, KeyboardInterrupt())
    finished = len(journal(tmp_path))
    assert finished > 0
    report = run(official, tmp_path / "out", tp=2, resume=True)
    assert report.resumed_tensors == finished
    assert left_behind(tmp_path) == ["out"]
    same(whole, tmp_path / "out")


def test_an_interrupt_before_anything_is_finished_leaves_nothing(official, tmp_path):
    fail(official, tmp_path, KeyboardInterrupt(), after=0, workers=1)
    assert left_behind(tmp_path) == []


def test_a_run_without_resume_starts_over(official, whole, tmp_path):
    fail(official, tmp_path, KeyboardInterrupt())
    report = run(official, tmp_path / "out", tp=2)
    assert report.resumed_tensors == 0
    assert left_behind(tmp_path) == ["out"]
    same(whole, tmp_path / "out")


def test_resume_with_nothing_to_resume_is_a_fresh_run(official, whole, tmp_path):
    assert run(official, tmp_path / "out", tp=2, resume=True).resumed_tensors == 0
    same(whole, tmp_path / "out")


def test_a_finished_tensor_whose_bytes_changed_is_done_again(official, whole, tmp_path):
    fail(official, tmp_path, KeyboardInterrupt())
    entries = journal(tmp_path)
    path = tmp_path / PARTIAL / "checkpoint" / f"rank{entries[0]['rank']}.safetensors"
    layout = prepare(options(official, tmp_path / "out", tp=2)).layouts[entries[0]["rank"]]
    with path.open("r+b") as file:
        file.seek(layout.offsets[entries[0]["tensor"]])
        first = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([first[0] ^ 1]))
    report = run(official, tmp_path / "out", tp=2, resume=True)
    assert report.resumed_tensors == len(entries) - 1
    same(whole, tmp_path / "out")


def test_a_rank_file_that_is_gone_is_done_again(official, whole, tmp_path):
    fail(official, tmp_path, KeyboardInterrupt())
    intact = sum(entry["rank"] == 0 for entry in journal(tmp_path))
    (tmp_path / PARTIAL / "checkpoint" / "rank1.safetensors").unlink()
    report = run(official, tmp_path / "out", tp=2, resume=True)
    assert report.resumed_tensors == intact
    same(whole, tmp_path / "out")


@pytest.mark.parametrize("cut", [1, 20])
def test_a_journal_line_cut_by_a_crash_does_not_count(official, whole, tmp_path, cut):
    fail(official, tmp_path, KeyboardInterrupt())
    path = tmp_path / PARTIAL / JOURNAL_FILE
    finished = len(journal(tmp_path))
    path.write_bytes(path.read_bytes()[:-cut])
    report = run(official, tmp_path / "out", tp=2, resume=True)
    assert report.resumed_tensors == finished - (cut > 1)
    same(whole, tmp_path / "out")


@pytest.mark.parametrize(
    "line",
    [
        b"5",
        b'{"rank":[],"tensor":"x","sha256":"y"}',
        b'{"rank":7,"tensor":"x","sha256":"y"}',
        b"\xff",
        b"[" * 100_000,
        b"{}",
    ],
)
def test_a_damaged_journal_line_counts_for_nothing(official, whole, tmp_path, line):
    fail(official, tmp_path, KeyboardInterrupt())
    finished = len(journal(tmp_path))
    with (tmp_path / PARTIAL / JOURNAL_FILE).open("ab") as file:
        file.write(line + b"\n")
    report = run(official, tmp_path / "out", tp=2, resume=True)
    assert report.resumed_tensors == finished
    same(whole, tmp_path / "out")


def test_files_that_a_stopped_run_copied_do_not_stay(official, whole, tmp_path):
    fail(official, tmp_path, KeyboardInterrupt())
    (tmp_path / PARTIAL / "checkpoint" / "tokenizer.json").write_text("{}")
    run(official, tmp_path / "out", tp=2, resume=True)
    same(whole, tmp_path / "out")


def test_a_journal_that_another_run_removed_in_between_is_not_used(tmp_path, monkeypatch):
    flock = staging_module.fcntl.flock

    def late(descriptor, operation):
        shutil.rmtree(tmp_path / PARTIAL)
        flock(descriptor, operation)

    monkeypatch.setattr(staging_module.fcntl, "flock", late)
    with pytest.raises(ConfigError, match="another conversion is writing"):
        open_staging(tmp_path / "out", "plan", resume=False)


def test_a_disk_that_is_full_at_the_last_files_is_a_capacity_error(official, tmp_path, monkeypatch):
    monkeypatch.setattr("dsv4_trt.convert.pipeline._write_json", no_space)
    with pytest.raises(CapacityError, match=r"is full .*free some space.*--resume"):
        run(official, tmp_path / "out")
    assert left_behind(tmp_path) == [PARTIAL]


@pytest.mark.parametrize("change", ["options", "mtp", "source"])
def test_another_conversion_is_not_resumed(official, tmp_path, change):
    source = shutil.copytree(official, tmp_path / "hf")
    fail(source, tmp_path, KeyboardInterrupt())
    choices = {"tp": 2, "resume": True}
    if change == "options":
        choices["experts"] = "fp8"
    elif change == "mtp":
        choices["mtp"] = "skip"
    else:
        shard = sorted(source.glob("*.safetensors"))[0]
        os.utime(shard, (1, 1))
    with pytest.raises(ConfigError, match=r"other options or from another checkpoint.*start over"):
        run(source, tmp_path / "out", **choices)
    assert left_behind(tmp_path) == [PARTIAL, "hf"]  # still there for the right command
    del choices["resume"]
    run(source, tmp_path / "out", **choices)  # what the message says helps


def test_two_runs_do_not_share_a_folder(official, tmp_path):
    staging = open_staging(tmp_path / "out", "plan", resume=False)
    try:
        for resume in (False, True):
            with pytest.raises(ConfigError, match="another conversion is writing"):
                run(official, tmp_path / "out", resume=resume)
        assert partial_dir(tmp_path / "out").exists()
    finally:
        staging.discard()
    run(official, tmp_path / "out")


def test_a_disk_that_is_too_small_is_refused_before_writing(official, tmp_path, monkeypatch):
    monkeypatch.setattr("dsv4_trt.convert.disk_space.free_bytes", lambda folder: 1000)
    with pytest.raises(CapacityError, match=r"needs \d+ bytes .* 1000 are free; free \d+ more"):
        run(official, tmp_path / "out")
    assert left_behind(tmp_path) == []


def no_space(*arguments):
    raise OSError(28, "No space left on device")


def test_a_disk_that_is_full_at_allocation_leaves_nothing(official, tmp_path, monkeypatch):
    monkeypatch.setattr(rank_file.os, "posix_fallocate", no_space)
    with pytest.raises(CapacityError, match=r"rank0.safetensors needs \d+ bytes .* full"):
        run(official, tmp_path / "out")
    assert left_behind(tmp_path) == []


def test_a_disk_that_fills_up_while_writing_keeps_what_is_finished(
    official, whole, tmp_path, monkeypatch
):
    """Where the file system can not allocate ahead, writes may still fail."""
    left = [40]
    pwrite = os.pwrite

    def runs_full(descriptor, data, offset):
        left[0] -= 1
        return no_space() if left[0] < 0 else pwrite(descriptor, data, offset)

    monkeypatch.setattr(rank_file.os, "pwrite", runs_full)
    with pytest.raises(CapacityError, match=r"full.*finished tensors are kept.*--resume"):
        run(official, tmp_path / "out", tp=2)
    assert left_behind(tmp_path) == [PARTIAL]
    monkeypatch.undo()
    assert run(official, tmp_path / "out", tp=2, resume=True).resumed_tensors > 0
    same(whole, tmp_path / "out")


def test_a_disk_without_allocation_works(official, whole, tmp_path, monkeypatch):
    def unsupported(*arguments):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(rank_file.os, "posix_fallocate", unsupported)
    run(official, tmp_path / "out", tp=2)
    same(whole, tmp_path / "out")


def test_a_disk_error_is_one_line_and_resumable(official, tmp_path):
    error = fail(official, tmp_path, OSError(5, "Input/output error"), expected=CheckpointError)
    assert "Input/output error" in str(error)
    assert "--resume" in str(error)
    assert left_behind(tmp_path) == [PARTIAL]


def test_bad_input_found_late_leaves_nothing(official, tmp_path):
    loose = Loose.load(official)
    name = "layers.0.attn.wkv.scale"
    dtype, shape, data = loose.tensors[name]
    loose.tensors[name] = (dtype, shape, b"\xff" * len(data))  # small, so it comes last
    source = loose.write(tmp_path / "hf")
    with pytest.raises(CheckpointError, match="holds NaN"):
        run(source, tmp_path / "out", workers=1)
    assert left_behind(tmp_path) == ["hf"]


def start(official, output, *more):
    """The command in a process of its own, slowed down so that it can be caught at work."""
    code = (
        "import signal, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a parent may ignore it
        "from dsv4_trt.convert import tensor_jobs\n"
        "plain = tensor_jobs.Worker.convert\n"
        "def slow(*a):\n    time.sleep(0.05)\n    return plain(*a)\n"
        "tensor_jobs.Worker.convert = slow\n"
        "from dsv4_trt.cli.main import main\nmain()\n"
    )
    command = [sys.executable, "-c", code, "convert", "--model_dir", str(official)]
    command += ["--output_dir", str(output), "--tp_size", "2", *more]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


@pytest.mark.usefixtures("signals_as_usual")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL])
def test_a_signal_leaves_a_run_that_can_be_resumed(official, whole, tmp_path, number):
    process = start(official, tmp_path / "out")
    path = tmp_path / PARTIAL / JOURNAL_FILE
    deadline = time.monotonic() + 60
    while not (path.exists() and path.read_text().count("\n") > 5):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(number)
    _, message = process.communicate(timeout=30)
    expected = {signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGINT: 1, signal.SIGKILL: -9}
    assert process.returncode == expected[number]
    if number != signal.SIGKILL:
        assert "--resume" in message
        assert "Traceback" not in message
    assert left_behind(tmp_path) == [PARTIAL]
    assert run(official, tmp_path / "out", tp=2, resume=True).resumed_tensors > 0
    assert left_behind(tmp_path) == ["out"]
    same(whole, tmp_path / "out")
    assert load_rank_checkpoint(tmp_path / "out").mapping.tp_size == 2
