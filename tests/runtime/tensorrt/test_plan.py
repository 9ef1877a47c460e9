"""Loading plans: what is refused, and why; which profile a step gets."""

import json
import shutil
from dataclasses import replace

import pytest

pytest.importorskip("cuda.bindings")
from dsv4_trt.contract import engine_file
from dsv4_trt.errors import (
    BundleMismatch,
    CapacityError,
    ConfigError,
    EngineFault,
    MissingDependency,
    PluginError,
)
from dsv4_trt.runtime import open as runtime_open
from dsv4_trt.runtime.bundle import open_bundle
from dsv4_trt.runtime.cuda.step_size import StepSize
from dsv4_trt.runtime.tensorrt import bindings
from dsv4_trt.runtime.tensorrt.plan import load_plan
from tests.runtime.tensorrt.host import FakeLibrary, Host
from tests.runtime.tensorrt.plans import rewrite, write


@pytest.fixture
def bundle(plan_dir):
    return open_bundle(plan_dir)


def load(host, bundle, **record):
    """The trunk's plan, with another record."""
    return load_plan(
        replace(bundle, record=replace(bundle.record, **record)), bundle.trunk, host.library
    )


def changed_plan(plan_dir, tmp_path, change):
    """A bundle whose trunk's plan differs."""
    path = shutil.copytree(plan_dir, tmp_path / "changed")
    rewrite(path, engine_file(0, "trunk"), change)
    return open_bundle(path)


def test_plans_of_twins_are_refused(bundle, host):
    with pytest.raises(
        BundleMismatch, match=r"built without the plugin library.* can not run; compile"
    ):
        load(host, bundle, plugins="")


def test_plans_for_another_gpu_are_refused(bundle, host, monkeypatch):
    with pytest.raises(BundleMismatch, match="for sm_121a, this machine's GPU is sm_120a"):
        load(host, bundle, target="sm_121a")
    monkeypatch.setattr(runtime_open, "device_architecture", lambda: "sm_90a")
    with pytest.raises(
        BundleMismatch, match=r"sm_120a, .* sm_90a; build for it with --target sm_90a"
    ):
        load(host, bundle)


def test_plans_of_another_version_are_refused(bundle, host):
    with pytest.raises(BundleMismatch, match=r"by tensorrt 11\.2\.0\.1, and 11\.1\.0\.106 is inst"):
        load(host, bundle, tensorrt_version="11.2.0.1")


@pytest.mark.parametrize("version", ["10.13.2.6", "12.0.0.1"])
def test_versions_that_were_never_tried_are_refused(bundle, host, version):
    host.trt.__version__ = version
    with pytest.raises(ConfigError, match=rf"tensorrt has version {version}; .* needs >=11\.1,<12"):
        load(host, bundle)


def test_a_missing_tensorrt_is_named(bundle, host, monkeypatch):
    def missing(module):
        raise ImportError("libnvinfer.so.11: cannot open shared object file")

    monkeypatch.setattr(bindings, "import_module", missing)
    with pytest.raises(
        MissingDependency, match=r"engine 'tensorrt' \(libnvinfer.so.11.*dsv4-trt\["
    ):
        load(host, bundle)


def test_a_runtime_that_does_not_start_is_said(bundle, host):
    host.trt.is_broken = True
    with pytest.raises(EngineFault, match="can not start: CUDA initialization failure"):
        load(host, bundle)


def test_a_library_without_plugins_is_refused(bundle, host):
    host.library.tensorrt_version = ""
    with pytest.raises(PluginError, match=r"without TensorRT's headers.*TENSORRT_INCLUDE_DIR"):
        load(host, bundle)
    host.library.tensorrt_version = "11.1.0"
    assert load(host, bundle)


def test_a_library_that_tensorrt_can_not_load_is_refused(bundle, host):
    host.library = FakeLibrary("other.so")
    with pytest.raises(
        PluginError, match=r"plugins of other\.so: Unable to load library: other\.so"
    ):
        load(host, bundle)


def test_plugins_are_registered_once(bundle, host):
    """TensorRT refuses a second time."""
    for graph in (*bundle.graphs, *bundle.graphs):
        assert load_plan(bundle, graph, host.library)
    assert host.trt.registry._libraries == [str(host.library.path)]
    assert len(host.trt.loggers) == 1


def test_a_damaged_plan_is_refused(plan_dir, tmp_path, host):
    path = shutil.copytree(plan_dir, tmp_path / "changed")
    write(path, engine_file(0, "trunk"), "no plan")
    with pytest.raises(
        BundleMismatch, match=r"can not load .*rank0\.engine: Magic tag .*; build the"
    ):
        load(host, open_bundle(path))


def test_code_in_a_plan_is_never_run(plan_dir, tmp_path, host):
    found = changed_plan(plan_dir, tmp_path, lambda plan: plan.update(host_code=True))
    with pytest.raises(BundleMismatch, match="holds host code, which is not allowed"):
        load(host, found)


def test_what_is_kept_of_errors_is_told_once(bundle, host):
    log = bindings.load_bindings("tensorrt").log
    host.trt.error("one\n  thing")
    host.trt.error("another")
    host.trt.error("another")
    assert log.take_errors() == "one thing; another"
    assert log.take_errors() == "TensorRT gives no reason"


@pytest.mark.parametrize(
    ("size", "profile"),
    [
        ((1, 1, 1, 1), 0),
        ((4, 4, 4, 4), 0),
        ((4, 2, 1, 2), 0),
        ((4, 1, 0, 1), 1),
        ((96, 4, 4, 0), 1),
    ],
)
def test_a_step_gets_the_first_profile_that_holds_it(bundle, host, size, profile):
    assert load(host, bundle).profile_of(StepSize(*size)) == profile


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ((97, 4, 4, 4), r"num_tokens is 97, .* for 1 to 96; build with a larger --max_num_tokens"),
        ((96, 9, 4, 4), r"num_seqs is 9, .* for 1 to 8; build with a larger --max_batch_size"),
        ((96, 8, 5, 4), r"num_decodes is 5, .* for 0 to 4; build with a larger --max_batch_size"),
        ((96, 8, 4, 97), r"num_logits is 97, .* for 0 to 96; build with a larger --max_num_tokens"),
    ],
)
def test_a_step_that_no_profile_holds_is_refused(bundle, host, size, message):
    with pytest.raises(CapacityError, match=message):
        load(host, bundle).profile_of(StepSize(*size))


def test_tables_wider_than_profiles_are_refused(bundle, host):
    plan = load(host, bundle)
    tensor = plan.inputs["block_table.swa"]
    plan.check_sizes(tensor, (4, 3, tensor.shape[2]))
    with pytest.raises(CapacityError, match=r"num_table_rows is 5, .*--max_batch_size"):
        plan.check_sizes(tensor, (5, 3, tensor.shape[2]))
    with pytest.raises(CapacityError, match=r"pages\.swa is 99,999, .*--max_seq_len"):
        plan.check_sizes(tensor, (4, 99999, tensor.shape[2]))


def test_rtx_contexts_are_made_without_a_compiler_at_run_time(native_dir, tmp_path, monkeypatch):
    from tests.runtime.tensorrt.plans import plan_bundle

    host = Host(monkeypatch, "tensorrt-rtx")
    opened = open_bundle(plan_bundle(native_dir, tmp_path / "engine", "tensorrt-rtx"))
    assert load_plan(opened, opened.trunk, host.library).new_context()  # the fake asserts it


def test_plans_are_as_large_as_their_widest_profile(bundle, host):
    assert load(host, bundle).arena_bytes == 1 << 20


def test_records_survive_their_file(bundle):
    data = json.loads((bundle.path / "plan.json").read_text())
    assert bundle.record.to_json() == type(bundle.record).from_json(data).to_json()
