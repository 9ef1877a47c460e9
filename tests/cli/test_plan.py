"""`dsv4-trt plan`: its numbers are those of the leaves, its refusals name what works."""

import re
import shutil
import sys
from dataclasses import replace

import pytest
from click.testing import CliRunner

from dsv4_trt.builder.bundle import build_bundle
from dsv4_trt.cli.main import cli
from dsv4_trt.contract import BuildSpec
from dsv4_trt.convert.conversion import ConvertOptions, prepare
from dsv4_trt.convert.pipeline import convert
from dsv4_trt.convert.random_checkpoint import write_random_checkpoint
from dsv4_trt.errors import BundleMismatch, CapacityError, ConfigError
from dsv4_trt.kv_layout import CacheClass, solve
from dsv4_trt.kv_mix import DEFAULT_MIX, Load
from dsv4_trt.kv_plan import concurrency, largest_sequence, plan_pools
from dsv4_trt.kv_report import payload_bytes, window_bytes_by_class
from dsv4_trt.mapping import Mapping
from dsv4_trt.presets import FLASH, PRO, TINY
from dsv4_trt.rank_checkpoint import load_rank_checkpoint
from dsv4_trt.rank_tensors import rank_tensors
from dsv4_trt.safetensors_file import read_header
from tests.cli.plans import FLASH_2, plan, report

GIB = 1 << 30
MILLION = 1 << 20
BUILD = BuildSpec(
    max_batch_size=4,
    max_num_tokens=512,
    max_seq_len=4096,
    kv_cache_dtype="bf16",
    indexer_cache_dtype="fp8",
    mtp=False,
)


def usage_error(*arguments):
    result = CliRunner().invoke(cli, ["plan", *map(str, arguments)])
    assert result.exit_code == 2
    return result.output


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """A bundle for two ranks with options that are no defaults."""
    home = tmp_path_factory.mktemp("plan")
    write_random_checkpoint(replace(TINY, vocab_size=1024), home / "hf", seed=0)
    mapping = Mapping(tp_size=2, moe_ep_size=2)
    convert(prepare(ConvertOptions(model_dir=home / "hf", output_dir=home / "ck", mapping=mapping)))
    build_bundle(load_rank_checkpoint(home / "ck"), home / "engine", BUILD)
    return home / "engine"


def weights_of(spec, mtp=True, **sizes):
    return sum(t.nbytes for t in rank_tensors(spec, Mapping(**sizes), mtp=mtp))


def test_numbers_are_those_of_the_leaves():
    found = report(*FLASH_2, "--memory", "100GiB", "--indexer_cache_dtype", "fp8")
    layout = solve(FLASH, "fp8", "fp8", mtp=True)
    weights = weights_of(FLASH, tp_size=2)
    expected = plan_pools(
        layout, int((100 * GIB - weights) * 0.9), DEFAULT_MIX, max_seq_len=MILLION
    )
    assert found["memory"] == {
        "device_bytes": 100 * GIB,
        "weight_bytes": weights,
        "free_fraction": 0.9,
        "kv_bytes": int((100 * GIB - weights) * 0.9),
        "pool_bytes": expected.total_bytes,
    }
    assert {p["bucket"]: p["num_pages"] for p in found["pools"]} == expected.num_pages
    assert sum(p["num_bytes"] for p in found["pools"]) == expected.total_bytes
    assert sum(p["share"] for p in found["pools"]) == pytest.approx(1)
    assert found["bytes_per_token"] == 3915
    assert found["window_bytes"] == sum(window_bytes_by_class(layout).values())
    assert found["largest_context"] == largest_sequence(expected) >= MILLION
    rooms = {n: concurrency(expected, n) for n in (8 << 10, 32 << 10, 128 << 10, 1 << 20)}
    assert found["concurrency"] == [
        {
            "length": length,
            "num_fit": room.sequences,
            "num_run": min(room.sequences, 64),
            "limited_by": "max_batch_size" if room.sequences > 64 else room.limited_by,
        }
        for length, room in rooms.items()
    ]
    assert [(row["length"], row["payload_bytes"]) for row in found["contexts"]] == [
        (8192 << i, payload_bytes(layout, 8192 << i)) for i in range(8)
    ]


def test_every_class_has_its_row():
    found = report(*FLASH_2, "--no-mtp", "--indexer_cache_dtype", "fp8")["classes"]
    pages = {
        row["cache_class"]: (row["bucket"], row["page_bytes"], row["waste_bytes"]) for row in found
    }
    assert pages == {
        "swa": ("large", 37440, 64),
        "csa": ("large", 37440, 64),
        "csa_state": ("large", 37440, 4672),
        "indexer": ("middle", 8640, 192),
        "indexer_state": ("middle", 8640, 448),
        "hca": ("small", 1728, 560),
        "hca_state": ("large", 37440, 4672),
    }
    assert sum(row["bytes_per_token"] for row in found) == 3915
    with_mtp = report(*FLASH_2)["classes"]
    assert with_mtp[-1]["cache_class"] == "mtp_swa"


def test_formats_are_compared_in_the_same_memory():
    found = report("--preset", "pro", "--tp", 8, "--memory", "110GiB")
    rows = {(row["kv_cache_dtype"], row["indexer_cache_dtype"]): row for row in found["formats"]}
    assert len(rows) == 6
    assert rows["fp8", "fp8"]["bytes_per_token"] == 5609.25
    assert rows["bf16", "bf16"]["bytes_per_token"] == 9848
    chosen = rows["fp8", "fp4"]
    assert chosen["largest_context"] == found["largest_context"]
    assert chosen["num_fit"] == found["concurrency"][2]["num_fit"]
    assert chosen["holds_max_seq_len"]
    assert not rows["bf16", "bf16"]["holds_max_seq_len"]
    assert 0 < rows["bf16", "bf16"]["largest_context"] < MILLION


def test_formats_that_hold_not_one_token():
    need = {
        kv: sum(
            pages * layout.page_bytes[bucket]
            for bucket, pages in layout.peak_pages_per_sequence(1).items()
        )
        for kv, layout in ((kv, solve(PRO, kv, "fp4", mtp=True)) for kv in ("fp8", "bf16"))
    }
    assert need["fp8"] < need["bf16"]
    found = report(
        *("--preset", "pro", "--tp_size", 8, "--max_seq_len", 1),
        *("--memory", f"{weights_of(PRO, tp_size=8) + need['fp8']}B"),
        *("--kv_cache_free_gpu_memory_fraction", 1),
    )
    rows = {(row["kv_cache_dtype"], row["indexer_cache_dtype"]): row for row in found["formats"]}
    assert rows["fp8", "fp4"]["largest_context"] == 256
    assert rows["fp8", "fp4"]["num_fit"] == 0
    none = {"largest_context": 0, "num_fit": 0, "limited_by": None, "holds_max_seq_len": False}
    assert none.items() <= rows["bf16", "fp4"].items()
    assert "│ -" in plan(
        *("--preset", "pro", "--tp_size", 8, "--max_seq_len", 1),
        *("--memory", f"{weights_of(PRO, tp_size=8) + need['fp8']}B"),
        *("--kv_cache_free_gpu_memory_fraction", 1),
    )


def test_options_reach_the_plan():
    found = report(
        *("--preset", "pro", "--tp_size", 16, "--moe_ep_size", 4, "--memory", "80GB"),
        *("--kv_cache_dtype", "bf16", "--indexer_cache_dtype", "bf16", "--no-mtp"),
        *("--max_seq_len", 65536, "--max_batch_size", 7, "--mix", "3x1K,1x64K"),
        *("--kv_cache_free_gpu_memory_fraction", 0.5),
    )
    weights = weights_of(PRO, mtp=False, tp_size=16, moe_ep_size=4)
    assert found["memory"]["kv_bytes"] == int((80 * 10**9 - weights) * 0.5)
    mix = [Load(3, 1024), Load(1, 65536)]
    expected = plan_pools(
        solve(PRO, "bf16", "bf16"), found["memory"]["kv_bytes"], mix, max_seq_len=65536
    )
    assert {p["bucket"]: p["num_pages"] for p in found["pools"]} == expected.num_pages
    assert found["mix"] == [{"count": 3, "length": 1024}, {"count": 1, "length": 65536}]
    runs = {row["length"]: (row["num_run"], row["limited_by"]) for row in found["concurrency"]}
    ran, longer = (7, "max_batch_size"), (0, "max_seq_len")
    assert runs == {8 << 10: ran, 32 << 10: ran, 64 << 10: ran, 128 << 10: longer, 1 << 20: longer}


def test_the_default_mix_is_cut_to_max_seq_len():
    found = report(*FLASH_2, "--max_seq_len", 10_000)
    assert found["mix"] == [{"count": 64, "length": 8192}, {"count": 8, "length": 10_000}]


def test_text_shows_the_same_numbers():
    text, found = plan(*FLASH_2), report(*FLASH_2)
    for row in found["classes"]:
        line = next(line for line in text.splitlines() if f"│ {row['cache_class']} " in line)
        assert f" {row['page_bytes']:,} " in line
        assert f" {row['raw_bytes']:,} " in line
        assert f" {row['bytes_per_token'] or row['window_bytes']:,}" in line
    for row in found["pools"]:
        assert f" {row['num_pages']:,} " in text
    for row in found["formats"]:
        assert f" {row['largest_context']:,} " in text
    assert f"one sequence of {found['largest_context']:,} tokens" in text
    assert "flash, KV fp8, indexer fp4, with MTP, tp_size 2, moe_ep_size 1" in text
    assert "pools solved for 64x8K,8x128K and one sequence of max_seq_len 1,048,576" in text


def test_a_bundle_says_what_it_was_built_with(bundle):
    found = report("--engine_dir", bundle, "--memory", "1GiB")
    recorded = {key: found[key] for key in BUILD.to_json() if key in found}
    assert recorded.items() <= BUILD.to_json().items()
    assert len(recorded) == 5
    assert (found["tp_size"], found["moe_ep_size"]) == (2, 2)
    rank_file = read_header(bundle / "weights" / "rank0.safetensors")
    stored = sum(t.nbytes for t in rank_file.tensors if not t.name.startswith("mtp."))
    assert found["memory"]["weight_bytes"] == stored
    assert found["mix"] == [{"count": 64, "length": 4096}, {"count": 8, "length": 4096}]
    assert {row["cache_class"] for row in found["classes"]} == set(CacheClass) - {"mtp_swa"}
    assert str(bundle) in plan("--engine_dir", bundle, "--memory", "1GiB")


def test_a_bundle_needs_no_weights(bundle, tmp_path):
    shutil.copytree(bundle, tmp_path / "engine")
    shutil.rmtree(tmp_path / "engine" / "weights")
    assert report("--engine_dir", tmp_path / "engine")["max_seq_len"] == 4096


@pytest.mark.parametrize(
    ("option", "same", "other"),
    [
        ("tp_size", 2, 1),
        ("moe_ep_size", 2, 1),
        ("kv_cache_dtype", "bf16", "fp8"),
        ("indexer_cache_dtype", "fp8", "fp4"),
        ("max_seq_len", 4096, 2048),
        ("max_batch_size", 4, 8),
    ],
)
def test_options_that_contradict_the_bundle_are_refused(bundle, option, same, other):
    assert report("--engine_dir", bundle, f"--{option}", same)[option] == same
    with pytest.raises(ConfigError, match=rf"--{option} is {other}, but .* with {option} {same};"):
        plan("--engine_dir", bundle, f"--{option}", other)


def test_mtp_of_the_bundle(bundle):
    assert report("--engine_dir", bundle, "--no-mtp")["mtp"] is False
    with pytest.raises(ConfigError, match="--mtp is True, but"):
        plan("--engine_dir", bundle, "--mtp")


def test_what_is_no_bundle(bundle, tmp_path):
    with pytest.raises(ConfigError, match="'rank checkpoint'; expected an engine bundle"):
        plan("--engine_dir", bundle.parent / "ck")
    with pytest.raises(ConfigError, match="expected an engine bundle"):
        plan("--engine_dir", tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"format_version": 1', '"format_version": 99'),
        ('"build_config"', '"oops"'),
        ('"moe_intermediate_size": 128', '"moe_intermediate_size": []'),
        ('"max_seq_len": 4096', '"max_seq_len": "4096"'),
    ],
)
def test_damaged_bundles(bundle, tmp_path, old, new):
    shutil.copytree(bundle, tmp_path / "engine")
    path = tmp_path / "engine" / "config.json"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(BundleMismatch, match=r"format version 99|damaged"):
        plan("--engine_dir", tmp_path / "engine")


@pytest.mark.parametrize("preset", ["flash", "pro"])
def test_weights_that_do_not_fit_name_a_mapping_that_does(preset):
    with pytest.raises(CapacityError) as refusal:
        plan("--preset", preset, "--memory", "141GiB")
    message = str(refusal.value)
    named = re.search(r"use (--tp_size (\d+) --moe_ep_size (\d+))", message)
    assert f"{weights_of(FLASH if preset == 'flash' else PRO):,} B" in message
    found = report("--preset", preset, "--memory", "141GiB", *named[1].split())
    assert found["tp_size"] == int(named[2]) > 1
    with pytest.raises(CapacityError):
        plan("--preset", preset, "--memory", "141GiB", "--tp_size", int(named[2]) // 2)


def test_weights_that_fit_nowhere(bundle):
    with pytest.raises(CapacityError, match="no legal tp_size fits, the least that a rank needs"):
        plan("--preset", "pro", "--memory", "1GiB")
    whole = report("--engine_dir", bundle)["memory"]["weight_bytes"]
    with pytest.raises(CapacityError, match=r"no legal tp_size fits"):
        plan("--engine_dir", bundle, "--memory", f"{whole}B")


def test_a_length_that_does_not_fit_names_the_one_that_does():
    arguments = (*FLASH_2, "--memory", "78GiB")
    with pytest.raises(CapacityError) as refusal:
        plan(*arguments)
    largest = int(re.search(r"largest max_seq_len that fits is (\d+)", str(refusal.value))[1])
    assert report(*arguments, "--max_seq_len", largest)["largest_context"] >= largest
    with pytest.raises(CapacityError):
        plan(*arguments, "--max_seq_len", largest + 256)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--tp", 3), "Legal combinations"),
        (("--tp", 2, "--max_seq_len", MILLION + 1), "above the model's max_position_embeddings"),
        (("--tp", 2, "--mix", "8K"), "expected COUNTxTOKENS"),
        (("--tp", 2, "--mix", "1x2M"), "lengths of 1 to max_seq_len, 1048576"),
        (("--tp", 2, "--kv_cache_free_gpu_memory_fraction", "nan"), "is nan; expected above 0"),
        (("--tp", 2, "--kv_cache_free_gpu_memory_fraction", "0"), "is 0; expected above 0"),
        (("--tp", 2, "--kv_cache_free_gpu_memory_fraction", "1.5"), "is 1.5; expected above 0"),
        (("--tp", 2, "--plot", "x.pdf"), r"--plot x.pdf does not end in .png or .svg"),
        (("--tp", 2, "--plot", "nowhere/x.png"), "can not be written: No such file"),
    ],
)
def test_refusals(arguments, named):
    with pytest.raises(ConfigError, match=named):
        plan("--preset", "flash", *arguments)


def test_usage_errors(bundle):
    either = "name either --engine_dir or --preset"
    assert either in usage_error()
    assert either in usage_error("--engine_dir", bundle, "--preset", "flash")
    for size in ("0", "0.0GiB", "many", "4 parsecs", "-1GB", "1e3GB"):
        assert "is no size" in usage_error(*FLASH_2, "--memory", size)
    assert report(*FLASH_2, "--memory", "140.5GiB")["memory"]["device_bytes"] == 281 << 29


def test_an_error_is_one_line_and_exit_code_1(monkeypatch, capsys):
    from dsv4_trt.cli.main import main

    monkeypatch.setattr(sys, "argv", ["dsv4-trt", "plan", "--preset", "flash"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: the weights of one rank at tp_size 1 take 148.64 GiB")
    assert err.count("\n") == 1
