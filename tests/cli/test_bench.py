"""`dsv4-trt bench` as a user calls it: reports, files, exit codes, Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import time
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from dsv4_trt.cli.bench_text import warnings
from dsv4_trt.cli.main import cli
from dsv4_trt.errors import ConfigError, MissingDependency, RequestError
from tests.runtime.bench.fake_openai import MODEL, fake_openai
from tests.runtime.llm.llms import write_tokenizer

BUILD = ("--max_seq_len", "400")
SMALL = ("--input_len", 12, "--output_len", 5)


@pytest.fixture(scope="module")
def server():
    with fake_openai() as (fake, url):
        yield fake, url


@pytest.fixture(scope="module")
def engine_dir(workshop, tiny_a):
    return workshop.bundle_dir(tiny_a, build=BUILD)


def bench(*args):
    found = CliRunner().invoke(cli, ["bench", *map(str, args)], catch_exceptions=False)
    return found.exit_code, found.output


def serve(url, *args, fake=None):
    more = () if fake is None else ("--extra_body", json.dumps({"fake": fake}))
    return bench("serve", "--base_url", url, *SMALL, *more, *args)


def result_of(url, *args, fake=None):
    code, output = serve(url, "--json", *args, fake=fake)
    return code, json.loads(output)


def test_a_report(server):
    code, output = serve(
        server[1],
        "--concurrency",
        4,
        "--num_requests",
        20,
        "--goodput",
        "ttft:9000",
        fake={"gap": 0.03},
    )
    assert code == 0
    for part in (
        f"{MODEL} at {server[1]}/v1/chat/completions", "20 completed, 0 failed", "100 out",
        "good: 20 requests", "time to first token", "end-to-end latency", "p99",
    ):  # fmt: skip
        assert part in output


def test_files_of_a_load(server, tmp_path):
    files = ("--output", tmp_path / "r.json", "--plot", tmp_path / "p.svg", "--save_requests")
    code, _ = serve(
        server[1], "--request_rate", 200, "--num_requests", 9, "--api_key", "hidden", *files
    )
    assert code == 0
    text = (tmp_path / "r.json").read_text()
    found = json.loads(text)
    assert found["completed"] == len(found["requests"]) == 9
    assert found["arguments"]["request_rate"] == 200
    assert found["arguments"]["output"] == str(tmp_path / "r.json")
    assert {"cpu", "cores"} <= set(found["machine"])
    assert found["total_output_tokens"] == sum(r["output_tokens"] for r in found["requests"]) == 45
    assert "hidden" not in text
    picture = (tmp_path / "p.svg").read_bytes()
    assert ElementTree.fromstring(picture).tag == "{http://www.w3.org/2000/svg}svg"
    assert b"time to first token" in picture
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.svg", "r.json"]


def test_what_is_sent(server, tmp_path):
    fake, url = server
    fake.bodies.clear()
    args = ("--num_requests", 2, "--warmup", 1, "--ignore_eos", "--temperature", 0)
    assert serve(url, *args)[0] == 0
    assert len(fake.bodies) == 3
    assert len({body["messages"][0]["content"] for body in fake.bodies}) == 3
    for body in fake.bodies:
        assert len(body["messages"][0]["content"].split()) == 12  # words are tokens here
        assert (body["max_tokens"], body["ignore_eos"], body["temperature"]) == (5, True, 0)
        assert body["return_token_ids"] is True
    fake.bodies.clear()
    path = tmp_path / "d.jsonl"
    path.write_text('{"prompt": [1, 2, 3], "max_tokens": 4}')
    dataset = ("--dataset", path, "--endpoint", "completions", "--output_len", 6)
    assert bench("serve", "--base_url", url, "--num_requests", 3, *dataset)[0] == 0
    assert [(body["prompt"], body["max_tokens"]) for body in fake.bodies] == [([1, 2, 3], 6)] * 5


def test_the_tokenizer_of_a_bundle_counts(server, workshop, tiny_a, tmp_path):
    fake, url = server
    bundle = tmp_path / "engine"
    bundle.mkdir()
    for path in workshop.bundle_dir(tiny_a, build=BUILD).iterdir():
        (bundle / path.name).symlink_to(path)
    write_tokenizer(bundle)
    fake.bodies.clear()
    endpoint = ("--endpoint", "completions", "--engine_dir", bundle)
    code, found = result_of(url, "--num_requests", 5, "--prefix_len", 3, *endpoint)
    assert (code, found["total_input_tokens"]) == (0, 5 * 15)
    assert all(2 <= token < 512 for body in fake.bodies for token in body["prompt"])


def test_lost_tokens_and_failures_are_told(server):
    warm = ("--warmup", 0, "--num_requests", 3)
    code, found = result_of(server[1], *warm, fake={"lose": 1})
    assert (code, found["errors"], found["completed"]) == (1, {"tokens": 3}, 0)
    code, output = serve(server[1], *warm, fake={"status": 429})
    assert code == 1
    assert "failed with http 429: 3, the first: " in output
    code, found = result_of(server[1], *warm, fake={"no_ids": True})
    assert (code, found["unchecked"]) == (0, 3)


def test_a_warm_up_that_fails_ends_the_command(server, tmp_path):
    with pytest.raises(RequestError, match=r"warm-up at .* failed with http 500: .*as told"):
        serve(server[1], "--output", tmp_path / "r.json", fake={"status": 500})
    assert not list(tmp_path.iterdir())


def test_a_duration(server):
    code, found = result_of(server[1], "--duration", 0.3, "--concurrency", 2, fake={"gap": 0.01})
    assert code == 0
    assert found["completed"] > 4
    assert 0.3 <= found["duration"] < 3


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        (("--goodput", "ttft"), ConfigError, "goodput has 'ttft'"),
        (("--base_url", "x"), ConfigError, "base_url is 'x'"),
        (("--dataset", "/none"), ConfigError, "/none can not be read"),
        (("--plot", "x.pdf"), ConfigError, "--plot x.pdf does not end in .png or .svg"),
        (("--output", "/none/x"), ConfigError, "--output /none/x can not be written"),
        (("--request_rate", "inf", "--duration", 1), ConfigError, "all requests begin at once"),
    ],
)
def test_what_is_refused_before_anything_is_sent(server, args, error, message):
    fake, url = server
    before = len(fake.bodies)
    with pytest.raises(error, match=message):
        bench("serve", "--base_url", url, *args)
    assert len(fake.bodies) == before


@pytest.mark.parametrize(
    "args",
    [
        ("--save_requests",), ("--extra_body", "{"), ("--extra_body", "[]"), ("--concurrency", 0),
        ("--range_ratio", 1), ("--request_rate", 0),
    ],
)  # fmt: skip
def test_usage(server, args):
    assert serve(server[1], *args)[0] == 2


def test_a_missing_package_names_the_extra(server, monkeypatch):
    monkeypatch.setattr("dsv4_trt.cli.bench_serve.find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match=r"dsv4-trt\[bench\]"):
        serve(server[1])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_gives_the_report_so_far(server, tmp_path, signals_as_usual, number):
    fake = json.dumps({"fake": {"gap": 0.05}})
    command = [
        sys.executable, "-m", "dsv4_trt.cli", "bench", "serve", "--base_url", server[1],
        "--input_len", "4", "--output_len", "5", "--concurrency", "3", "--num_requests", "2000",
        "--extra_body", fake, "--output", str(tmp_path / "r.json"),
    ]  # fmt: skip
    before = len(server[0].bodies)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while len(server[0].bodies) < before + 12 and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(process.pid, number)
        output, errors = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert b"the load was interrupted" in output
    assert errors == b""
    found = json.loads((tmp_path / "r.json").read_text())
    assert found["interrupted"]
    assert found["completed"] >= 3
    assert 1 <= found["cancelled"] <= 3


def test_throughput_of_an_engine(engine_dir, tmp_path):
    code, output = bench(
        "engine", "--engine_dir", engine_dir, *SMALL, "--num_requests", 6, "--ignore_eos",
        "--device", "cpu", "--precision", "exact", "--output", tmp_path / "r.json",
        "--plot", tmp_path / "p.png", "--save_requests",
    )  # fmt: skip
    assert code == 0
    assert "engine step" in output
    found = json.loads((tmp_path / "r.json").read_text())
    (run,) = found["runs"]
    assert (run["completed"], run["total_input_tokens"], run["total_output_tokens"]) == (6, 72, 30)
    assert len(run["requests"]) == 6
    assert run["steps"] >= 5
    assert 0 < run["median_step_ms"] <= run["p99_step_ms"] <= 1e3 * run["duration"]
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_latency_of_an_engine_by_batch_size(engine_dir):
    code, output = bench(
        "engine", "--engine_dir", engine_dir, *SMALL, "--mode", "latency", "--batch_sizes", "1,3",
        "--num_requests", 3, "--ignore_eos", "--device", "cpu", "--precision", "exact", "--json",
    )  # fmt: skip
    found = json.loads(output)
    assert code == 0
    assert [run["batch_size"] for run in found["runs"]] == [1, 3]
    assert [run["max_concurrency"] for run in found["runs"]] == [1, 3]
    assert [run["completed"] for run in found["runs"]] == [3, 3]
    assert found["runs"][0]["steps"] > found["runs"][1]["steps"]


def test_engines_refuse_before_weights_are_loaded(engine_dir, monkeypatch):
    monkeypatch.setattr("dsv4_trt.cli.bench_engine._open", None)
    with pytest.raises(RequestError, match="max_seq_len 400"):
        bench("engine", "--engine_dir", engine_dir, "--input_len", 396, "--output_len", 5)
    with pytest.raises(ConfigError, match="batch size 100000 is above max_batch_size"):
        bench("engine", "--engine_dir", engine_dir, "--mode", "latency", "--batch_sizes", "100000")
    args = ("--mode", "latency", "--batch_sizes", "2,4", "--num_requests", 6)
    with pytest.raises(ConfigError, match="num_requests 6 makes no whole batches of 4"):
        bench("engine", "--engine_dir", engine_dir, *args)
    for args in (
        ("--batch_sizes", "0"),
        ("--batch_sizes", "x"),
        ("--mode", "latency", "--concurrency", 2),
    ):
        assert bench("engine", "--engine_dir", engine_dir, *args)[0] == 2


def test_warnings():
    fine = {"client_cpu": 0.2, "p99_delay_ms": 1.0, "unchecked": 0, "interrupted": False}
    assert warnings(fine) == []
    for name, value, part in (
        ("client_cpu", 0.97, "took 0.97 cores"),
        ("p99_delay_ms", 250.0, "250 ms"),
        ("unchecked", 3, "3 answers came without token ids"),
        ("interrupted", True, "interrupted"),
    ):
        (warning,) = warnings({**fine, name: value})
        assert part in warning
