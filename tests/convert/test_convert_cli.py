import json
import subprocess
import sys
from dataclasses import replace

import pytest
from click.testing import CliRunner

from dsv4_trt.cli.main import cli
from dsv4_trt.convert.hub_config import hub_config
from dsv4_trt.convert.names import official_tensors
from dsv4_trt.dtypes import DType
from dsv4_trt.errors import ConfigError
from dsv4_trt.mapping import Mapping
from dsv4_trt.presets import PRO
from dsv4_trt.rank_checkpoint import load_rank_checkpoint
from dsv4_trt.rank_tensors import rank_tensors
from tests.convert.checkpoints import MICRO, header_bytes, left_behind, make


@pytest.fixture(scope="module")
def official(tmp_path_factory):
    return make(tmp_path_factory.mktemp("official") / "hf")


def invoke(*arguments):
    return CliRunner().invoke(cli, ["convert", *map(str, arguments)])


def test_help_has_one_example_and_both_spellings_work(official, tmp_path):
    text = invoke("--help").output
    assert text.count("dsv4-trt convert --model_dir") == 1
    for option in (
        "--tp_size",
        "--moe_ep_size",
        "--workers",
        "--experts",
        "--mtp",
        "--resume",
        "--verify",
        "--dry-run",
        "--json",
    ):
        assert option in text
    result = invoke("--model-dir", official, "--output-dir", tmp_path / "out", "--tp-size", 2)
    assert result.exit_code == 0, result.output
    assert load_rank_checkpoint(tmp_path / "out").mapping == Mapping(tp_size=2)


def test_a_full_command_line(official, tmp_path):
    where = ["--model_dir", official, "--output_dir", tmp_path / "out"]
    split = ["--tp_size", 4, "--moe_ep_size", 2, "--workers", 3]
    result = invoke(*where, *split, "--experts", "fp8", "--mtp", "skip", "--verify", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    checkpoint = load_rank_checkpoint(tmp_path / "out")
    assert checkpoint.mapping == Mapping(tp_size=4, moe_ep_size=2)
    assert (checkpoint.spec.expert_dtype, checkpoint.mtp) == ("fp8", False)
    assert report["rank_bytes"] == [path.stat().st_size for path in checkpoint.rank_files]
    assert report["verified_bytes"] > 0
    assert report["resumed_tensors"] == 0


def test_text_says_what_was_made_and_what_to_run_next(official, tmp_path):
    result = invoke("--model_dir", official, "--output_dir", tmp_path / "out", "--verify")
    assert "1 rank file(s)" in result.output
    assert "all equal" in result.output
    assert f"dsv4-trt build --checkpoint_dir {tmp_path / 'out'}" in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["--experts", "int4"],
        ["--mtp", "maybe"],
        ["--tp_size", "0"],
        ["--workers", "0"],
        ["--tp_size", "two"],
        ["--unknown"],
    ],
)
def test_usage_errors_exit_with_2(official, tmp_path, arguments):
    result = invoke("--model_dir", official, "--output_dir", tmp_path / "out", *arguments)
    assert result.exit_code == 2
    assert left_behind(tmp_path) == []


def test_our_errors_are_one_line_and_exit_with_1(tmp_path):
    code = "from dsv4_trt.cli.main import main; main()"
    command = [sys.executable, "-c", code, "convert"]
    command += ["--model_dir", str(tmp_path / "no"), "--output_dir", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr
        == f"error: {tmp_path / 'no'} is not a folder; expected a Hugging Face checkpoint\n"
    )


def sparse(folder, spec, shard_bytes):
    """An official checkpoint of holes: real headers, index and config, no bytes."""
    folder.mkdir()
    groups, size = [[]], 0
    for tensor in official_tensors(spec, scale_dtype=DType.F8_E8M0, mtp=True):
        if size + tensor.nbytes > shard_bytes:
            groups.append([])
            size = 0
        groups[-1].append(tensor)
        size += tensor.nbytes
    weight_map = {}
    for number, group in enumerate(groups):
        name, entries, at = f"model-{number:05d}.safetensors", {}, 0
        for tensor in group:
            entries[tensor.name] = {
                "dtype": str(tensor.dtype),
                "shape": list(tensor.shape),
                "data_offsets": [at, at + tensor.nbytes],
            }
            at += tensor.nbytes
        weight_map |= dict.fromkeys(entries, name)
        header = header_bytes(entries)
        with (folder / name).open("wb") as file:
            file.write(header)
            file.truncate(len(header) + at)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (folder / "config.json").write_text(json.dumps(hub_config(spec)))
    return folder


def test_dry_run_of_the_largest_release(tmp_path):
    """Pro is 145,116 tensors and 805.3 GiB, which headers, index and config alone must tell."""
    source = sparse(tmp_path / "hf", PRO, 13 << 30)
    where = ["--model_dir", source, "--output_dir", tmp_path / "out"]
    result = invoke(*where, "--tp_size", 8, "--moe_ep_size", 8, "--dry-run", "--json")
    assert result.exit_code == 0, result.output
    plan = json.loads(result.output)
    assert plan["source_tensors"] == 145116
    assert plan["source_bytes"] == pytest.approx(805.3 * 2**30, rel=1e-4)
    mapping = Mapping(tp_size=8, moe_ep_size=8)
    tensors = sum(t.nbytes for t in rank_tensors(PRO, mapping, mtp=True))
    assert len(plan["rank_files"]) == 8
    for size in plan["rank_files"].values():
        assert 0 < size - tensors < 1e6  # the header
    assert plan["total_bytes"] == sum(plan["rank_files"].values())
    assert 0 < plan["peak_bytes"] - plan["total_bytes"] < 20e6
    assert plan["fits"] == (plan["peak_bytes"] <= plan["free_bytes"])
    assert left_behind(tmp_path) == ["hf"]


def test_dry_run_tells_the_truth(official, tmp_path):
    arguments = ["--model_dir", official, "--output_dir", tmp_path / "out", "--tp_size", "2"]
    plan = json.loads(invoke(*arguments, "--dry-run", "--json").output)
    text = invoke(*arguments, "--dry-run").output
    assert left_behind(tmp_path) == []
    assert invoke(*arguments).exit_code == 0
    for name, size in plan["rank_files"].items():
        assert (tmp_path / "out" / name).stat().st_size == size
        assert f"{size:,} B" in text
    for word in ("peak disk", "free", "it fits", "generation_config.json"):
        assert word in text
    used = sum(path.stat().st_size for path in (tmp_path / "out").iterdir())
    assert plan["total_bytes"] < used <= plan["peak_bytes"]


def test_dry_run_refuses_what_a_run_would_refuse(official, tmp_path):
    result = invoke(
        "--model_dir", official, "--output_dir", tmp_path / "o", "--tp_size", 3, "--dry-run"
    )
    assert isinstance(result.exception, ConfigError)


def test_memory_does_not_grow_with_the_checkpoint(tmp_path):
    """550 MB of weights, 268 MB of them one tensor, pass through less than 150 MB of memory."""
    spec = replace(MICRO, vocab_size=1 << 20, compress_ratios=(0,), num_hidden_layers=1)
    source = sparse(tmp_path / "hf", spec, 1 << 30)
    code = (
        "import resource, sys\n"
        "from click.testing import CliRunner\n"
        "from dsv4_trt.cli.convert import command\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "result = CliRunner().invoke(command, sys.argv[1:])\n"
        "assert result.exit_code == 0, (result.output, result.exception)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    arguments = ["--model_dir", source, "--output_dir", tmp_path / "out", "--workers", "2"]
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    written = (tmp_path / "out" / "rank0.safetensors").stat().st_size
    assert written > 540e6
    assert int(done.stdout) * 1024 < 150e6
