"""Options of the command line, of a YAML file, and their refusals."""

from pathlib import Path

import pytest

from dsv4_trt.errors import ConfigError
from dsv4_trt.runtime.server.serve_config import read_config


def write(tmp_path, text):
    path = tmp_path / "serve.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_command_line_wins_over_the_file(tmp_path):
    path = write(
        tmp_path,
        "engine_dir: /models/flash\nport: 9000\nmax_batch_size: 8\n"
        "kv_cache_config:\n  enable_block_reuse: false\n  free_gpu_memory_fraction: 0.5\n",
    )
    config = read_config(path, {"port": 9001, "kv_cache_free_gpu_memory_fraction": 0.7})
    assert config.engine_dir == Path("/models/flash")
    assert (config.port, config.max_batch_size) == (9001, 8)
    assert config.kv_cache_config.free_gpu_memory_fraction == 0.7
    assert config.kv_cache_config.enable_block_reuse is False
    assert config.model_name == "flash"


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("engine_dir: e\nprot: 1\n", "unknown key 'prot'; expected any of .*port"),
        ("engine_dir: e\nkv_cache_config: {max_tokns: 3}\n", "kv_cache_config has the unknown key"),
        ("engine_dir: e\nkv_cache_config: 3\n", "kv_cache_config is 3"),
        ("engine_dir: e\nport: 70000\n", "port is 70000; expected a whole number from 0 to 65535"),
        ("engine_dir: e\nport: '80'\n", "port is '80'"),
        ("engine_dir: e\nmax_batch_size: 0\n", "max_batch_size is 0"),
        ("engine_dir: e\nrequest_timeout: .nan\n", "request_timeout is nan"),
        ("engine_dir: e\ntool_parser: hermes\n", "tool_parser is 'hermes'; expected deepseek_v4"),
        ("engine_dir: e\nlog_level: loud\n", "log_level is 'loud'"),
        ("engine_dir: e\nhost: ''\n", "host is ''"),
        ("port: 1\n", "engine_dir is missing"),
        ("engine_dir: e\nport: 1\nport: 2\n", "the key 'port' stands there twice"),
        ("engine_dir: e\nkv_cache_config: {max_tokens: 1, max_tokens: 2}\n", "'max_tokens' stands"),
        ("- a\n", "holds a list"),
        ("a: [\n", "can not be read as YAML"),
        ("", "engine_dir is missing"),
    ],
)
def test_refusals_name_the_option(tmp_path, text, match):
    with pytest.raises(ConfigError, match=match):
        read_config(write(tmp_path, text), {})


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.yaml can not be read: No such file"):
        read_config(tmp_path / "none.yaml", {})
