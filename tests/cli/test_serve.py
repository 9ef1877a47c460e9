"""`dsv4-trt serve` and `dsv4-trt triton export` up to where an engine would be opened."""

import pytest
from click.testing import CliRunner

from dsv4_trt.cli.main import cli
from dsv4_trt.errors import ConfigError
from dsv4_trt.runtime.server import serve as server


def run(*args, env=()):
    runner = CliRunner(env=dict(env))
    return runner.invoke(cli, [str(arg) for arg in args], catch_exceptions=False)


@pytest.fixture
def served(monkeypatch):
    """The configuration that the command would serve."""
    found = []
    monkeypatch.setattr(server, "serve", lambda config, **_: found.append(config))
    return found


def test_options_reach_the_server(served, tmp_path):
    config = tmp_path / "serve.yml"
    config.write_text("engine_dir: /e\nport: 1\nbody_timeout: 5\n")
    args = ("--config", config, "--port", 2, "--max-batch-size", 3, "--tp_size", 1)
    assert run("serve", *args, env={"DSV4_API_KEY": "k"}).exit_code == 0
    (found,) = served
    assert (found.port, found.max_batch_size, found.tp_size) == (2, 3, 1)
    assert (found.body_timeout, found.api_key) == (5, "k")


def test_an_empty_key_is_not_no_key(served):
    with pytest.raises(ConfigError, match="api_key is ''"):
        run("serve", "--engine_dir", "e", env={"DSV4_API_KEY": ""})
    assert not served


def test_a_key_on_the_command_line_wins(served):
    run("serve", "--engine_dir", "e", "--api_key", "a", env={"DSV4_API_KEY": "b"})
    assert served[0].api_key == "a"


def test_a_folder_that_is_no_bundle_is_said_first(tmp_path):
    with pytest.raises(Exception, match="is not a folder; expected an engine bundle"):
        run("serve", "--engine_dir", tmp_path / "nothing", "--port", 0)


def test_export_refuses_a_cache_that_holds_no_sequence(workshop, tiny_a, tmp_path):
    engine = workshop.bundle_dir(tiny_a)
    args = ("--engine_dir", engine, "--output_dir", tmp_path / "r", "--kv_cache_max_tokens", 100)
    with pytest.raises(ConfigError, match="kv_cache_max_tokens is 100, one sequence of"):
        run("triton", "export", *args)
    assert not (tmp_path / "r").exists()
