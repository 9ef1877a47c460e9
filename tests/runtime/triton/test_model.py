"""What Triton's stub calls: the exported model.py with the exported config."""

import faulthandler
import importlib.util
import json
import sys

import pytest
from google.protobuf import json_format, text_format
from tritonclient.grpc import model_config_pb2

from dsv4_trt.errors import ConfigError
from dsv4_trt.runtime.triton.engine_options import EngineOptions
from dsv4_trt.runtime.triton.model_config import model_config
from dsv4_trt.runtime.triton.repository import export_model
from dsv4_trt.runtime.triton.tensors import INPUT_TYPES, OUTPUTS
from tests.runtime.llm.llms import BUILD
from tests.runtime.triton import backends
from tests.workshop import run_cli


def read_config(text):
    """As Triton reads config.pbtxt, and as it gives it to the stub."""
    message = text_format.Parse(text, model_config_pb2.ModelConfig())
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def open_model(place, monkeypatch):
    config = read_config((place / "config.pbtxt").read_text("utf-8"))
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", backends)
    monkeypatch.delitem(sys.modules, "dsv4_trt.runtime.triton.model", raising=False)
    spec = importlib.util.spec_from_file_location("exported", place / "1" / "model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.TritonPythonModel()
    model.initialize(
        {
            "model_config": json.dumps({"max_batch_size": 0, **config}),
            "model_repository": str(place),
            "model_name": config["name"],
            "model_version": "1",
        }
    )
    return model


def finalize(model):
    """End the model, and not this process, which it gives seconds to end."""
    model.finalize()
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def engine_dir(workshop, tiny_a):
    return workshop.bundle_dir(tiny_a, build=BUILD)


def test_the_config_is_one_that_triton_reads():
    options = EngineOptions(
        **{"engine_dir": '/a "b" \\ü', "device": "cpu", "max_seq_len": 64},
        **{"kv_cache_free_gpu_memory_fraction": 0.5, "enable_kv_cache_reuse": False},
    )
    config = read_config(model_config("ensemble", 8, options.to_parameters()))
    assert (config["name"], config["backend"], config["max_batch_size"]) == (
        "ensemble",
        "python",
        8,
    )
    assert config["model_transaction_policy"] == {"decoupled": True}
    assert {i["name"]: i["data_type"] for i in config["input"]} == INPUT_TYPES
    assert all(i["optional"] for i in config["input"])
    assert {o["name"]: o["data_type"] for o in config["output"]} == {
        name: output.data_type for name, output in OUTPUTS.items()
    }
    assert EngineOptions.from_parameters(config["parameters"]) == options


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, "no parameter 'engine_dir'"),
        ({"engine_dir": "x", "tokeniser_dir": "y"}, "the parameter 'tokeniser_dir'; expected"),
        ({"engine_dir": "x", "max_seq_len": "1k"}, "'max_seq_len' of config.pbtxt is '1k'"),
        ({"engine_dir": "x", "enable_kv_cache_reuse": "1"}, "expected true or false"),
    ],
)
def test_parameters_that_can_not_be(parameters, message):
    with pytest.raises(ConfigError, match=message):
        EngineOptions.from_parameters({k: {"string_value": v} for k, v in parameters.items()})


def test_parameters_of_the_python_backend_are_left_alone():
    texts = {"engine_dir": "x", "FORCE_CPU_ONLY_INPUT_TENSORS": "yes", "max_seq_len": ""}
    found = EngineOptions.from_parameters({k: {"string_value": v} for k, v in texts.items()})
    assert found == EngineOptions(engine_dir="x")


def test_an_exported_model_serves(engine_dir, small_tokenizer_dir, tmp_path, monkeypatch):
    said = run_cli(
        *("triton", "export", "--engine_dir", engine_dir, "--output_dir", tmp_path / "repo"),
        *("--tokenizer_dir", small_tokenizer_dir, "--device", "cpu", "--precision", "exact"),
        *("--max_batch_size", 4, "--max_seq_len", 64, "--max_queue_size", 7),
    )
    place = tmp_path / "repo" / "tensorrt_llm"
    assert said == f"wrote {place}\nnext: tritonserver --model-repository {tmp_path / 'repo'}\n"
    model = open_model(place, monkeypatch)
    llm = model._service._llm
    assert (llm.build.max_seq_len, llm.build.max_batch_size) == (64, 4)
    asked = [backends.Request(text_input="The sky", max_tokens=3) for _ in range(3)]
    model.execute(asked)
    assert [len(request.answers) for request in asked] == [1, 1, 1]
    slow = backends.Request(text_input="x", max_tokens=60, ignore_eos=True, stream=True)
    model.execute([slow])
    finalize(model)
    assert slow.answers[-1]["finish_reason"] in (["cancelled"], ["length"])


def test_relative_folders_begin_at_the_model(engine_dir, tmp_path, monkeypatch):
    place = export_model(tmp_path, EngineOptions(engine_dir="engine", device="cpu"))
    with pytest.raises(backends.TritonModelException, match="engine is not a folder"):
        open_model(place, monkeypatch)
    (place / "engine").symlink_to(engine_dir)
    finalize(open_model(place, monkeypatch))


def test_a_repository_holds_several_models_and_overwrites_none(tmp_path):
    options = EngineOptions(engine_dir="x")
    for name in ("a", "b"):
        export_model(tmp_path / "new" / "repo", options, name=name)
    with pytest.raises(ConfigError, match="already exists; remove it, or name another model"):
        export_model(tmp_path / "new" / "repo", options, name="a")
    assert sorted(p.name for p in (tmp_path / "new" / "repo").iterdir()) == ["a", "b"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "../a"}, r"model_name is '\.\./a'"),
        ({"name": ""}, "model_name is ''"),
        ({"name": ".a"}, r"model_name is '\.a'"),
        ({"max_batch_size": -1}, "triton_max_batch_size is -1"),
    ],
)
def test_illegal_models_leave_nothing(tmp_path, options, message):
    with pytest.raises(ConfigError, match=message):
        export_model(tmp_path / "repo", EngineOptions(engine_dir="x"), **options)
    with pytest.raises(ConfigError, match=r"config\.pbtxt can not hold"):
        export_model(tmp_path / "repo", EngineOptions(engine_dir="a\nb"))
    assert not (tmp_path / "repo").exists()


def test_a_disk_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("no space")

    monkeypatch.setattr("pathlib.Path.rename", fail)
    with pytest.raises(OSError, match="no space"):
        export_model(tmp_path / "repo", EngineOptions(engine_dir="x"))
    assert list((tmp_path / "repo").iterdir()) == []


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--max_seq_len", 5000), "max_seq_len is 5000, the engine was built for 1024"),
        (("--kv_cache_free_gpu_memory_fraction", 2.0), "free_gpu_memory_fraction is 2.0"),
        (("--max_queue_size", 0), "max_queue_size is 0"),
        (("--tokenizer_dir", "/nowhere"), "tokenizer.json is missing"),
        (("--checkpoint_dir", "/nowhere"), "are not at /nowhere"),
    ],
)
def test_an_export_checks_what_the_server_would_refuse(engine_dir, tmp_path, args, message):
    from dsv4_trt.errors import Dsv4Error

    with pytest.raises(Dsv4Error, match=message):
        run_cli(
            *("triton", "export", "--engine_dir", engine_dir, "--output_dir", tmp_path / "r"), *args
        )
    assert not (tmp_path / "r").exists()
