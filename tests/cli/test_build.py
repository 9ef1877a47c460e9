"""What `dsv4-trt build` suggests next works; what it refuses, it refuses before anything is written."""

import json

import pytest

from dsv4_trt.builder import plans
from dsv4_trt.errors import ConfigError, MissingDependency
from dsv4_trt.presets import PRO, TINY
from dsv4_trt.targets import ARCHITECTURES, TENSORRT
from tests.cli.builds import DUMMY, RTX, build
from tests.workshop import run_cli

ILLEGAL = [
    (engine, target)
    for engine, flavour in TENSORRT.items()
    for target in ARCHITECTURES
    if target not in flavour.targets
]


@pytest.mark.parametrize(("with_tokenizer", "prompt"), [(True, "--prompt"), (False, "--token_ids")])
def test_the_next_command_fits_the_bundle(tmp_path, with_tokenizer, prompt):
    source, checkpoint, engine = (tmp_path / name for name in ("hf", "checkpoint", "engine"))
    made = ("--preset", "tiny", "--vocab_size", 64, "--no-tokenizer", "--output_dir", source)
    run_cli("make-checkpoint", *made)
    if with_tokenizer:
        (source / "tokenizer.json").write_text("{}")
    run_cli("convert", "--model_dir", source, "--output_dir", checkpoint)
    shown = run_cli("build", "--checkpoint_dir", checkpoint, "--output_dir", engine)
    assert f"next: dsv4-trt generate --engine_dir {engine} {prompt} " in shown


@pytest.fixture
def refused(tmp_path):
    """Builds into a folder that has to stay empty."""
    place = tmp_path / "place"
    place.mkdir()

    def attempt(*arguments, **options):
        output = place / "engine"
        try:
            return build(*DUMMY, "--output_dir", output, *arguments, cache=tmp_path, **options)
        finally:
            assert [*place.iterdir()] == []

    return attempt


def test_there_are_illegal_pairs():
    assert ILLEGAL == [
        ("tensorrt-rtx", "sm_90a"),
        ("tensorrt-rtx", "sm_100a"),
        ("tensorrt-rtx", "sm_103a"),
    ]


@pytest.mark.parametrize(("engine", "target"), ILLEGAL)
@pytest.mark.parametrize("more", [(), ("--dry-run",), ("--checkpoint_dir", "nowhere")])
def test_an_illegal_pair_is_refused_with_the_reason(refused, engine, target, more):
    reason = f"engine '{engine}' can not be built for {target}: .*compute capability 12"
    with pytest.raises(ConfigError, match=reason):
        refused("--engine", engine, "--target", target, *more)


@pytest.mark.parametrize("choice", [("--target", "sm_80"), ("--engine", "onnx")])
def test_an_unknown_target_or_engine_is_a_usage_error(refused, choice):
    result = refused(*choice)
    assert result.exit_code == 2
    assert f"'{choice[1]}' is not one of" in result.stderr


@pytest.mark.parametrize("engine", ["native", "tensorrt-rtx"])
@pytest.mark.parametrize("option", ["--input_timing_cache", "--output_timing_cache"])
def test_only_tensorrt_has_a_timing_cache(refused, tmp_path, engine, option):
    with pytest.raises(ConfigError, match=f"engine '{engine}' has no timing cache"):
        refused("--engine", engine, option, tmp_path / "timings")


def test_paths_are_looked_at_before_the_build(refused, tmp_path):
    engine, missing = ("--engine", "tensorrt"), tmp_path / "missing"
    with pytest.raises(ConfigError, match=f"timing cache {missing} is no file"):
        refused(*engine, "--input_timing_cache", missing)
    with pytest.raises(ConfigError, match="name a file in a folder that is there"):
        refused(*engine, "--output_timing_cache", missing / "timings")
    with pytest.raises(ConfigError, match=f"plugin library {missing} is no file"):
        refused(*RTX, "--plugin_library", missing)
    with pytest.raises(ConfigError, match="--plugin_library is for --engine tensorrt or"):
        refused("--plugin_library", missing)


def test_a_place_that_can_not_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    place = tmp_path / "file" / "engine"
    with pytest.raises(ConfigError, match=f"output_dir {place} can not be made: Not a directory"):
        build(*DUMMY, "--output_dir", place, cache=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("engine", "module"),
    [("tensorrt-rtx", "tensorrt_rtx"), ("tensorrt-rtx", "onnx"), ("tensorrt", "tensorrt")],
)
def test_a_missing_package_is_named_with_its_extra(refused, monkeypatch, engine, module):
    there = {name for name in ("tensorrt_rtx", "onnx", "tensorrt") if name != module}
    monkeypatch.setattr(plans, "find_spec", lambda name: name if name in there else None)
    with pytest.raises(MissingDependency, match=rf"'{module}'.*dsv4-trt\[{engine}\]"):
        refused("--engine", engine)


def test_a_dry_run_refuses_sizes_that_do_not_fit(refused):
    with pytest.raises(ConfigError, match="max_num_tokens 8 is below max_batch_size 64"):
        refused(*RTX, "--max_num_tokens", 8, "--dry-run")


def looked_at(refused, *arguments):
    """What a dry run prints as JSON."""
    return json.loads(refused(*arguments, "--dry-run", "--json").stdout)


def test_a_dry_run_writes_nothing_and_needs_no_tensorrt(refused, monkeypatch):
    monkeypatch.setattr(plans, "find_spec", lambda name: None)
    found = looked_at(refused, *RTX)
    assert (found["engine"], found["target"]) == ("tensorrt-rtx", "sm_120a")
    assert found["plugin_library"] is None
    assert found["is_runnable"] is False
    assert found["files"] == [
        *("config.json", "graph.json", "manifest.json", "rank0.engine", "rank0.mtp.engine"),
        *("plan.json", "build.log"),
    ]
    trunk = found["graphs"]["trunk"]
    assert trunk["num_nodes"] == sum(trunk["ops"].values())
    assert trunk["native_layers"] == {"gather": 1, "unsqueeze": 1, "concat": 1}
    assert trunk["plugins"]["sparse_attention"] == TINY.num_hidden_layers
    assert trunk["pools"] == {"large": 9, "middle": 4, "small": 1}
    assert found["page_bytes"] == {"large": 37440, "middle": 4608, "small": 1728}
    assert found["profiles"]["decode"]["num_tokens"] == [1, 64, 64]
    assert found["profiles"]["prefill"]["num_tokens"] == [1, 8192, 8192]
    assert found["max_aux_streams"] == 2


def test_a_dry_run_as_text(refused):
    text = refused(*RTX, "--dry-run").stdout
    assert "engine tensorrt-rtx for sm_120a; nothing is written" in text
    assert "  rank0.mtp.engine\n" in text
    assert "KV pools          14: 9 in pages of 37,440 B" in text
    assert "Python twins instead of the plugin library" in text
    assert "plugins build --arch sm_120a --tensorrt_include DIR" in text
    for part in ("sparse_attention", "unsqueeze", "num_pages.large", "prefill", "at most 2 beside"):
        assert part in text


def test_a_dry_run_of_the_native_engine(refused):
    found = looked_at(refused)
    assert found["files"] == ["config.json", "graph.json", "manifest.json"]
    assert found["profiles"] == {}
    assert found["is_runnable"] is True
    assert found["graphs"]["mtp"]["ops"]["add_streams"] == 1
    text = refused("--dry-run").stdout
    assert "engine native for any GPU; nothing is written" in text
    assert "twins" not in text


def test_a_dry_run_for_tensorrt_on_a_machine_without_it(refused):
    found = looked_at(refused, "--engine", "tensorrt", "--target", "sm_90a", "--no-mtp")
    assert found["target"] == "sm_90a"
    assert [*found["graphs"]] == ["trunk"]
    text = refused("--engine", "tensorrt", "--dry-run").stdout
    assert "for the GPU of the machine that builds it" in text or "for sm_" in text


def test_a_dry_run_refuses_a_folder_that_is_taken(tmp_path):
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "file").touch()
    with pytest.raises(ConfigError, match=r"taken already exists"):
        build(*DUMMY, "--output_dir", taken, "--dry-run", cache=tmp_path)


def test_whole_releases_are_presets(tmp_path):
    output = ("--output_dir", tmp_path / "pro")
    shown = build(
        "--preset", "pro", "--dummy-weights", *output, *RTX, "--dry-run", "--json", cache=tmp_path
    )
    trunk = json.loads(shown.stdout)["graphs"]["trunk"]
    assert trunk["plugins"]["experts"] == PRO.num_hidden_layers == 61
    assert trunk["weight_bytes"] > 800e9


def test_the_library_of_the_target_is_used_unless_one_is_named(refused, monkeypatch, tmp_path):
    library = tmp_path / "libdsv4_plugins.so"
    library.touch()
    asked = []

    def find_library(target, *, plugins):
        asked.append((target, plugins))
        return library

    monkeypatch.setattr("dsv4_trt.plugins.library_build.find_library", find_library)
    assert looked_at(refused, *RTX)["plugin_library"] == str(library)
    assert looked_at(refused, *RTX, "--target", "sm_121a")["is_runnable"] is True
    assert asked == [("sm_120a", True), ("sm_121a", True)]
    named = tmp_path / "named.so"
    named.touch()
    assert looked_at(refused, *RTX, "--plugin_library", named)["plugin_library"] == str(named)
    assert looked_at(refused)["plugin_library"] is None
    assert len(asked) == 2
