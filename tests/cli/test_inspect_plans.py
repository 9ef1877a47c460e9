"""`dsv4-trt inspect` of bundles with TensorRT plans, where TensorRT need not be."""

import hashlib
import json
import shutil
import sys

import pytest
from click.testing import CliRunner

from dsv4_trt.builder.lowering.layers import Kind, lower
from dsv4_trt.cli.inspect import command
from dsv4_trt.errors import BundleMismatch, ConfigError
from dsv4_trt.graph import Graph
from tests.cli.builds import DUMMY, build


def inspect(path, *arguments):
    result = CliRunner().invoke(command, [str(path), *arguments])
    if result.exception is not None:
        raise result.exception
    return result.output


def report(path, *arguments):
    return json.loads(inspect(path, "--json", *arguments))


@pytest.fixture
def engine(plans_home, tmp_path):
    """A copy that a test may damage."""
    shutil.copytree(plans_home / "one", tmp_path / "engine")
    return tmp_path / "engine"


def recorded(folder):
    return json.loads((folder / "plan.json").read_text())


def graph_of(folder, part):
    graphs = json.loads((folder / "graph.json").read_text())["graphs"]
    return Graph.from_json(graphs["serving"][part])


def test_what_the_build_recorded(plans_home):
    folder = plans_home / "one"
    found, data = report(folder)["plans"], recorded(folder)
    for key in ("engine", "target", "tensorrt_version", "plugins"):
        assert found[key] == data[key]
    assert found["is_runnable"] is False
    assert found["log_file"] == str(folder / "build.log")
    assert found["plan_files"] == [
        {"file": name, "num_bytes": (folder / name).stat().st_size, "state": "as built"}
        for name in ("rank0.engine", "rank0.mtp.engine")
    ]
    for name, plan in data["plans"].items():
        graph = found["graphs"][name]
        assert graph["num_bytes"] == plan["nbytes"]
        assert graph["num_inputs"] == len(plan["inputs"])
        assert graph["profiles"] == {p["name"]: p["sizes"] for p in plan["profiles"]}
        for key in ("num_streams", "device_code", "seconds", "peak_bytes"):
            assert graph[key] == plan[key]
        lowered = lower(graph_of(folder, name))
        assert sum(graph["plugins"].values()) == sum(x.kind is Kind.PLUGIN for x in lowered.layers)
        assert graph["num_aliases"] == sum(len(x.aliases) for x in lowered.layers)


def test_the_same_as_text(plans_home):
    folder = plans_home / "one"
    text, data = inspect(folder), recorded(folder)
    assert f"plans of tensorrt-rtx {data['tensorrt_version']} for sm_120a" in text
    assert "Python twins instead of the plugin library" in text
    assert f"log: {folder / 'build.log'}" in text
    for part in (
        "sparse_attention",
        "num_pages.large",
        "prefill",
        "layers of plans",
        f"{data['plans']['trunk']['nbytes']:,}",
    ):
        assert part in text
    assert "layers.1.attn.compressor" not in text
    assert "Searching for plugin" not in text


def test_every_layer(plans_home):
    folder = plans_home / "one"
    assert "plan_layers" not in report(folder)
    found = report(folder, "--layers")["plan_layers"]
    for name in ("trunk", "mtp"):
        expected = {x.name: x for x in lower(graph_of(folder, name)).layers if x.op is not None}
        plugins = {x["name"]: x for x in found[name]["layers"] if x["op"] is not None}
        assert plugins.keys() == expected.keys()
        for key, layer in plugins.items():
            outputs = [tensor.name for tensor in expected[key].outputs]
            aliases = {
                outputs[to]: expected[key].inputs[source]
                for to, source in expected[key].aliases.items()
            }
            assert layer["aliases"] == aliases
            assert layer["inputs"] == [*expected[key].inputs]
            assert layer["attrs"].keys() == expected[key].attrs.keys()
        assert [t["name"] for t in found[name]["outputs"]] == [
            *graph_of(folder, name).outputs.values()
        ]


def test_streams_of_layers_are_those_of_the_log(plans_home):
    """TensorRT's list of what a plan runs, read here in another way."""
    folder = plans_home / "one"
    trunk = (folder / "build.log").read_text().split("=== mtp")[0]
    listed = [
        line for line in trunk.splitlines() if line.startswith("Name: ") and "StreamId: " in line
    ]
    layers = report(folder, "--layers")["plan_layers"]["trunk"]["layers"]
    plugins = [layer for layer in layers if layer["op"] is not None]
    for layer in plugins:
        for profile, mark in (("decode", ""), ("prefill", " [profile 1]")):
            starts = (f"Name: {layer['name']}{mark},", f"Name: {layer['name']}{mark}_")
            (line,) = [line for line in listed if line.startswith(starts)]
            assert layer["streams"][profile] == int(line.split("StreamId: ")[1].split(",")[0])
    assert {s for layer in plugins for s in layer["streams"].values()} == {0, 1, 2}
    assert layers[0]["streams"] == {"decode": None, "prefill": None}  # the gather


def test_every_layer_as_text(plans_home):
    text = inspect(plans_home / "one", "--layers")
    assert " kv.csa.1.1 = kv.csa.1 " in text
    assert " num_heads=8 " in text
    assert " eps=1e-06 " in text
    assert " sm_scale=0.044194173 " in text
    assert " decode=fused " in text
    assert "layers of mtp" in text
    row = next(line for line in text.splitlines() if " layers.1.attn.compressor " in line)
    assert " compress " in row


def test_the_log(plans_home):
    folder = plans_home / "one"
    log = (folder / "build.log").read_text()
    assert report(folder, "--log")["log"] == log
    text = inspect(folder, "--log")
    assert all(line in text for line in log.splitlines()[:40])


def test_all_ranks_are_looked_at(plans_home):
    files = report(plans_home / "two")["plans"]["plan_files"]
    assert [f["file"] for f in files] == ["rank0.engine", "rank1.engine"]


def test_tensorrt_is_not_needed(plans_home, monkeypatch):
    for name in ("tensorrt_rtx", "tensorrt", "onnx", "torch"):
        monkeypatch.setitem(sys.modules, name, None)
    assert report(plans_home / "one", "--layers", "--log")["plans"]["engine"] == "tensorrt-rtx"


def test_a_plan_that_is_missing_or_changed_is_said(engine):
    (engine / "rank0.mtp.engine").unlink()
    with (engine / "rank0.engine").open("r+b") as file:
        file.seek(100)
        file.write(b"x")
    states = {f["file"]: f for f in report(engine)["plans"]["plan_files"]}
    assert states["rank0.engine"]["state"] == "was changed after it was built"
    assert states["rank0.mtp.engine"] == {
        "file": "rank0.mtp.engine",
        "num_bytes": None,
        "state": "is missing",
    }
    text = inspect(engine)
    assert "plan rank0.engine was changed after it was built; build the bundle again" in text
    assert "plan rank0.mtp.engine is missing; build the bundle again" in text


def rewrite_record(folder, change):
    """Another plan.json, which the manifest takes for its own."""
    data = recorded(folder)
    change(data)
    (folder / "plan.json").write_text(json.dumps(data))
    manifest = json.loads((folder / "manifest.json").read_text())
    digest = hashlib.sha256((folder / "plan.json").read_bytes()).hexdigest()
    manifest["files"]["plan.json"] = digest
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.update(format_version=99), "format version 99"),
        (lambda data: data.pop("plans"), "damaged"),
        (lambda data: data["plans"]["trunk"].pop("layers"), "damaged"),
        (lambda data: data["plans"]["trunk"].update(profiles=7), "damaged"),
        (lambda data: data["plans"]["trunk"]["profiles"][0]["sizes"].update(x=[1]), "damaged"),
    ],
)
def test_a_record_that_can_not_be_read(engine, change, message):
    rewrite_record(engine, change)
    with pytest.raises(BundleMismatch, match=message):
        inspect(engine)


def test_a_record_that_was_changed_or_is_missing(engine):
    whole = (engine / "plan.json").read_text()
    (engine / "plan.json").write_text(whole.replace("sm_120a", "sm_121a"))
    with pytest.raises(BundleMismatch, match=r"plan\.json was changed after the bundle was built"):
        inspect(engine)
    (engine / "plan.json").unlink()
    with pytest.raises(BundleMismatch, match=r"plan\.json is missing"):
        inspect(engine)


def test_a_log_that_is_missing(engine):
    (engine / "build.log").unlink()
    assert report(engine)["plans"]["engine"] == "tensorrt-rtx"
    with pytest.raises(BundleMismatch, match=r"build\.log is missing"):
        inspect(engine, "--log")


def test_what_has_no_plans(tmp_path):
    build(*DUMMY, "--output_dir", tmp_path / "engine", cache=tmp_path)
    assert "plans" not in report(tmp_path / "engine")
    for option in ("--layers", "--log"):
        with pytest.raises(ConfigError, match="has no TensorRT plans"):
            inspect(tmp_path / "engine", option)
