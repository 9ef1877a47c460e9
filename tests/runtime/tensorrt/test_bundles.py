"""Bundles with plans: what is read of them, and what they can not be used for."""

import json
import shutil

import pytest

from dsv4_trt.cli import kernels
from dsv4_trt.contract import CONFIG_FILE, MANIFEST_FILE, PLAN_FILE
from dsv4_trt.errors import BundleMismatch, ConfigError
from dsv4_trt.kv_plan import plan_for_sequences
from dsv4_trt.runtime import llm_open
from dsv4_trt.runtime import open as runtime_open
from dsv4_trt.runtime.bundle import open_bundle
from dsv4_trt.runtime.llm import LLM
from tests.runtime.tensorrt.plans import TARGET, rewrite, write
from tests.workshop import run_cli


@pytest.fixture
def copy(plan_dir, tmp_path):
    return shutil.copytree(plan_dir, tmp_path / "engine")


def test_a_bundle_has_the_record_of_its_plans(plan_dir, native_dir):
    bundle = open_bundle(plan_dir)
    assert bundle.record.target == TARGET
    assert {*bundle.record.plans} == {"trunk", "mtp"}
    assert bundle.record.is_runnable
    files = [bundle.plan_file(graph.name) for graph in bundle.graphs]
    assert [file.name for file in files] == ["rank0.engine", "rank0.mtp.engine"]
    assert all(file.is_file() for file in files)
    assert open_bundle(native_dir).record is None


def test_a_missing_record_is_refused(copy):
    (copy / PLAN_FILE).unlink()
    with pytest.raises(BundleMismatch, match=r"plan\.json is missing; build the bundle again"):
        open_bundle(copy)


@pytest.mark.parametrize("name", [PLAN_FILE, "rank0.engine", "rank0.mtp.engine"])
def test_a_file_that_the_manifest_does_not_know_is_refused(copy, name):
    manifest = json.loads((copy / MANIFEST_FILE).read_text())
    del manifest["files"][name]
    (copy / MANIFEST_FILE).write_text(json.dumps(manifest))
    with pytest.raises(BundleMismatch, match=rf"engine 'tensorrt' and its manifest has no {name}"):
        open_bundle(copy)


def test_a_changed_plan_is_refused(copy):
    (copy / "rank0.engine").write_bytes(b"another")
    with pytest.raises(BundleMismatch, match=r"rank0\.engine was changed after"):
        open_bundle(copy)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(format_version=9), r"plan\.json of .* has format version 9; .* reads"),
        (lambda d: d.pop("plans"), r"a file of .* is damaged \(KeyError: 'plans'\)"),
        (lambda d: d["plans"]["trunk"].pop("inputs"), r"is damaged \(KeyError: 'inputs'\)"),
        (lambda d: d["plans"]["trunk"].update(more=1), r"is damaged \(TypeError"),
        (
            lambda d: d["plans"]["trunk"]["profiles"][0]["sizes"].update(x=[1]),
            r"is damaged \(Index",
        ),
        (lambda d: d.update(engine="tensorrt-rtx"), r"is of engine tensorrt-rtx, .* of tensorrt;"),
        (lambda d: d.update(target="sm_121a"), r"is of target sm_121a, the bundle of sm_120a"),
        (lambda d: d["plans"].pop("mtp"), r"is of graphs \['trunk'\], .* of \['mtp', 'trunk'\]"),
    ],
)
def test_a_record_that_is_not_the_bundle_s_is_refused(copy, change, message):
    rewrite(copy, PLAN_FILE, change)
    with pytest.raises(BundleMismatch, match=message):
        open_bundle(copy)


def test_a_folder_in_place_of_a_plan_is_refused(copy):
    (copy / "rank0.engine").unlink()
    (copy / "rank0.engine").mkdir()
    with pytest.raises(BundleMismatch, match=r"rank0\.engine is missing; build"):
        open_bundle(copy)


def test_a_record_that_is_nested_too_deeply_is_refused(copy):
    write(copy, PLAN_FILE, "[" * 100_000)
    with pytest.raises(BundleMismatch, match=r"plan\.json is not JSON \(maximum recursion"):
        open_bundle(copy)


def test_plans_are_for_serving_alone(plan_dir):
    with pytest.raises(
        ConfigError, match=r"for precision 'serving', not 'exact'; .*--engine native"
    ):
        open_bundle(plan_dir, precision="exact")


def test_plans_need_a_gpu(plan_dir):
    bundle = open_bundle(plan_dir)
    message = r"built for engine 'tensorrt', .* GPU of sm_120a; .*--engine native to run on a CPU"
    with pytest.raises(ConfigError, match=message):
        runtime_open.open_engine(bundle, plan_for_sequences(bundle.layout, [9]), device="cpu")
    with pytest.raises(ConfigError, match=message):
        LLM(bundle, skip_tokenizer_init=True, device="cpu")


def test_commands_say_so_before_anything_is_loaded(plan_dir, tmp_path):
    ids = ("--engine_dir", plan_dir, "--token_ids", "1,2", "--device", "cpu")
    with pytest.raises(ConfigError, match="native to run on a CPU"):
        run_cli("generate", *ids)
    with pytest.raises(
        ConfigError, match="has plans of engine 'tensorrt'; build one with --engine n"
    ):
        run_cli("generate", *ids, "--profile")
    prompts = tmp_path / "prompts.json"
    prompts.write_text('[{"id": "a", "token_ids": [1, 2]}]')
    paths = ("--prompts", prompts, "--output", tmp_path / "out.safetensors")
    with pytest.raises(ConfigError, match="native to run on a CPU"):
        run_cli("logits", "--engine_dir", plan_dir, *paths, "--device", "cpu")
    assert [file.name for file in tmp_path.iterdir()] == ["prompts.json"]


def test_the_engine_of_a_bundle_is_the_one_that_it_was_built_for(plan_dir, native_dir, monkeypatch):
    pytest.importorskip("cuda.bindings")
    monkeypatch.setattr(runtime_open, "resolve_device", lambda device: "cuda")
    monkeypatch.setattr(runtime_open, "device_architecture", lambda: TARGET)
    monkeypatch.setattr("dsv4_trt.runtime.cuda.open.open_cuda_engine", lambda *_: "kernels")
    monkeypatch.setattr("dsv4_trt.runtime.tensorrt.open.open_tensorrt_engine", lambda *_: "plans")
    for path, engine in ((native_dir, "kernels"), (plan_dir, "plans")):
        bundle = open_bundle(path)
        assert runtime_open.open_engine(bundle, plan_for_sequences(bundle.layout, [9])) == engine


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_plans_of_twins_run_on_no_device(copy, monkeypatch, device):
    rewrite(copy, PLAN_FILE, lambda d: d.update(plugins=""))
    monkeypatch.setattr(runtime_open, "resolve_device", lambda _: device)
    with pytest.raises(BundleMismatch, match=r"built without the plugin library.* can not run"):
        run_cli("generate", "--engine_dir", copy, "--token_ids", "1,2")


def test_no_kernels_are_compiled_for_plans_of_another_gpu(plan_dir, monkeypatch):
    monkeypatch.setattr(runtime_open, "resolve_device", lambda device: "cuda")
    monkeypatch.setattr(runtime_open, "device_architecture", lambda: "sm_90a")
    monkeypatch.setattr(kernels, "compile_kernels", lambda *_, **__: pytest.fail("compiles"))
    with pytest.raises(BundleMismatch, match=r"are for sm_120a, this machine's GPU is sm_90a"):
        kernels.prepare_kernels(open_bundle(plan_dir), "cuda")


def test_several_ranks_are_refused(plan_dir, monkeypatch):
    from dataclasses import replace

    from dsv4_trt.mapping import Mapping
    from dsv4_trt.runtime.kv_cache_config import KvCacheConfig

    monkeypatch.setattr(runtime_open, "resolve_device", lambda device: "cuda")
    several = replace(open_bundle(plan_dir), mapping=Mapping(tp_size=2))
    with pytest.raises(ConfigError, match=r"2 ranks; .* on a GPU: convert with --tp_size 1"):
        llm_open.open_executor(several, None, KvCacheConfig(), "cuda", 1)


def test_native_bundles_need_no_record(copy):
    rewrite(copy, CONFIG_FILE, lambda d: d["build_config"].update(engine="native", target=None))
    assert open_bundle(copy).record is None
