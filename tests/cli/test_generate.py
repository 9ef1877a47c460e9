"""`dsv4-trt generate` and `dsv4-trt logits` as a user calls them."""

import dataclasses
import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from dsv4_trt.cli.generate import command
from dsv4_trt.errors import CheckpointError, ConfigError, RequestError
from dsv4_trt.runtime.sampling.sampling_params import SamplingParams
from tests.workshop import logits, random_ids, run_cli

SEEDED = ("--token_ids", "0 5 17", "--seed", 1, "--ignore_eos", "--precision", "exact")


@pytest.fixture(scope="module")
def engine_dir(workshop, tiny_a):
    return workshop.bundle_dir(tiny_a, build=("--max_seq_len", "400"))


def generate(engine_dir, *args):
    return json.loads(run_cli("generate", "--engine_dir", engine_dir, "--json", *args))


def test_greedy_tokens_are_the_best_of_each_row(workshop, tiny_a, engine_dir):
    ids = random_ids(20)
    run = generate(
        engine_dir, "--token_ids", ",".join(map(str, ids)), "--max_tokens", 6,
        "--temperature", 0, "--ignore_eos", "--precision", "exact",
    )  # fmt: skip
    engine = workshop.engine(tiny_a)
    found = logits(engine, ids, decode=run["token_ids"])
    rows = torch.cat([found["prefill"][-1:], found["decode"][:-1]])
    assert run["token_ids"] == rows.argmax(dim=-1).tolist()
    assert run["finish_reason"] == "length"


def test_defaults_are_those_of_the_library():
    given = command.make_context("generate", ["--engine_dir", "x", "--token_ids", "0"]).params
    fields = {f.name for f in dataclasses.fields(SamplingParams)}
    sampling = {name: value for name, value in given.items() if name in fields}
    assert len(sampling) == 13
    assert SamplingParams(**sampling) == SamplingParams()


def test_a_seed_repeats_and_seeds_differ(engine_dir):
    runs = [
        generate(engine_dir, "--token_ids", "0 5 17", "--max_tokens", 8, "--seed", seed)
        for seed in (1, 1, 2)
    ]
    assert runs[0]["token_ids"] == runs[1]["token_ids"] != runs[2]["token_ids"]


def test_several_sequences_are_listed_by_index(engine_dir):
    args = (*SEEDED, "--max_tokens", 4)
    several = generate(engine_dir, *args, "--n", 3)
    sequences = several["sequences"]
    assert [sequence["index"] for sequence in sequences] == [0, 1, 2]
    assert len({tuple(sequence["token_ids"]) for sequence in sequences}) == 3
    one = generate(engine_dir, *args)
    assert one["token_ids"] == sequences[0]["token_ids"]
    assert {"index", *one} == {"prompt_token_ids", *sequences[0]}
    shown = run_cli("generate", "--engine_dir", engine_dir, *args, "--n", 3).splitlines()
    assert shown == [
        f"[{at}] " + "".join(f"{token_id} " for token_id in sequence["token_ids"])
        for at, sequence in enumerate(sequences)
    ]
    lines = run_cli(
        "generate", "--engine_dir", engine_dir, *args, "--n", 2, "--logprobs", 1
    ).splitlines()
    assert [line for line in lines if line.startswith("[")] == ["[0]", "[1]"]
    assert [int(line.split()[0]) for line in lines if not line.startswith("[")] == [
        token_id for sequence in sequences[:2] for token_id in sequence["token_ids"]
    ]


def test_more_sequences_than_an_engine_runs_at_once(workshop, tiny_a):
    """They wait for each other and are the same ones."""
    args = (*SEEDED, "--max_tokens", 3, "--n", 3)
    sizes = (("--max_batch_size", "1"), ())
    runs = [generate(workshop.bundle_dir(tiny_a, build=build), *args) for build in sizes]
    first, second = ([s["token_ids"] for s in run["sequences"]] for run in runs)
    assert first == second


def test_a_stop_token_ends_generation(workshop, tiny_a, engine_dir):
    """The golden prompt `eos` reaches the end-of-sentence token after a few greedy steps."""
    manifest = json.loads((tiny_a.parent / "manifest.json").read_text())
    prompt = next(p for p in manifest["prompts"] if p["name"] == "eos")
    run = generate(
        engine_dir, "--token_ids", " ".join(map(str, prompt["ids"])), "--temperature", 0,
        "--precision", "exact",
    )  # fmt: skip
    step = prompt["exact"]["greedy_tokens"].index(1)
    assert run["token_ids"] == prompt["exact"]["greedy_tokens"][: step + 1]
    assert run["finish_reason"] == "stop"


def test_text_needs_a_tokenizer(engine_dir):
    with pytest.raises(CheckpointError, match=r"tokenizer.json is missing.*--token_ids"):
        generate(engine_dir, "--prompt", "hello")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--token_ids", "0 1 2", "--max_tokens", 398), "above the engine's max_seq_len 400"),
        (("--token_ids", "0 512"), r"token id 512; the vocabulary is 0 to 511"),
        (("--token_ids", ""), "no tokens"),
        (("--token_ids", "0", "--temperature", -1), "temperature is -1.0"),
        (("--token_ids", "0", "--n", 0), "n is 0"),
        (("--token_ids", "0", "--stop", "x"), "--prompt"),
    ],
)
def test_illegal_requests_are_refused(engine_dir, args, message):
    with pytest.raises(RequestError, match=message):
        generate(engine_dir, *args)


def test_requests_are_checked_before_the_engine_is_opened(engine_dir, monkeypatch):
    monkeypatch.setattr("dsv4_trt.runtime.llm.open_executor", None)
    with pytest.raises(RequestError, match="token id 512"):
        generate(engine_dir, "--token_ids", "0 512")
    with pytest.raises(TypeError, match="not callable"):
        generate(engine_dir, "--token_ids", "0 511")


def run_program(*args):
    command = [sys.executable, "-m", "dsv4_trt.cli", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_exit_codes(engine_dir, tmp_path):
    """2 for usage, 1 with one line for our errors, nothing but the result on stdout."""
    usage = run_program("generate", "--engine_dir", engine_dir)
    assert (usage.returncode, usage.stdout) == (2, "")
    ours = run_program("generate", "--engine_dir", tmp_path, "--token_ids", "0")
    assert (ours.returncode, ours.stdout) == (1, "")
    assert ours.stderr.startswith("error: ")
    assert ours.stderr.count("\n") == 1
    fine = run_program(
        "generate", "--engine-dir", engine_dir, "--token-ids", "0", "--max-tokens", 2
    )
    assert fine.returncode == 0
    assert fine.stderr == ""
    assert len(fine.stdout.split()) == 2


def write_prompts(path, *prompts):
    path.write_text(json.dumps(list(prompts)))
    return path


def test_logits_file_holds_what_the_library_computes(workshop, tiny_a, engine_dir, tmp_path):
    ids = random_ids(30, seed=4)
    prompts = write_prompts(
        tmp_path / "p.json",
        {"id": "a", "token_ids": ids[:20], "forced_ids": ids[20:22]},
        {"id": "b", "token_ids": ids},
    )
    out = tmp_path / "out.safetensors"
    run_cli(
        "logits", "--engine_dir", engine_dir, "--prompts", prompts, "--output", out,
        "--precision", "exact", "--decode", 2, "--chunk", 7, "--mtp",
    )  # fmt: skip
    found = load_file(out)
    suffixes = ("", ".decode", ".mtp", ".mtp_decode")
    assert set(found) == {f"{name}{suffix}" for name in "ab" for suffix in suffixes}
    expected = logits(workshop.engine(tiny_a), ids[:20], decode=ids[20:22], mtp=True)
    names = {"prefill": "a", "decode": "a.decode", "mtp": "a.mtp", "mtp_decode": "a.mtp_decode"}
    for key in ("prefill", "decode", "mtp"):
        torch.testing.assert_close(found[names[key]], expected[key], atol=1e-4, rtol=0)
    last = tmp_path / "last.safetensors"
    run_cli(
        "logits", "--engine_dir", engine_dir, "--prompts", prompts, "--output", last,
        "--precision", "exact", "--positions", "last",
    )  # fmt: skip
    for name in "ab":
        torch.testing.assert_close(load_file(last)[name], found[name][-1:], atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ({"id": "a", "token_ids": []}, "no tokens"),
        ({"id": "a", "token_ids": [0] * 399}, "above the engine's max_seq_len 400"),
        ({"id": "a", "token_ids": [-1]}, "token id -1"),
        ({"id": "a", "token_ids": [0, 1.5]}, "whole numbers"),
        ({"id": "a", "ids": [0]}, "expected the keys id, token_ids"),
        ({"id": 3, "token_ids": [0]}, "non-empty string"),
        ({"id": "b.decode", "token_ids": [0]}, "can not name tensors"),
        ({"id": "__metadata__", "token_ids": [0]}, "can not name tensors"),
        ({"id": "\ud800", "token_ids": [0]}, "can not name tensors"),
    ],
)
def test_illegal_prompts_are_refused(engine_dir, tmp_path, prompt, message):
    prompts = write_prompts(tmp_path / "p.json", prompt)
    out = tmp_path / "out.safetensors"
    with pytest.raises(RequestError, match=message):
        run_cli(
            "logits", "--engine_dir", engine_dir, "--prompts", prompts, "--output", out,
            "--decode", 2,
        )  # fmt: skip
    assert list(tmp_path.iterdir()) == [prompts]


def test_every_prompt_is_checked_before_the_first_one_runs(engine_dir, tmp_path, monkeypatch):
    monkeypatch.setattr("dsv4_trt.runtime.open.open_engine", None)
    good = {"id": "a", "token_ids": [0]}
    out = ("--output", tmp_path / "out.safetensors")
    for other, options, message in (
        ({"id": "b", "token_ids": [512]}, (), "token id 512"),
        ({"id": "b", "token_ids": [0]}, ("--decode", 10**12), "max_seq_len 400"),
        ({"id": "b", "token_ids": [0]}, ("--chunk", 10**12), "max_num_tokens"),
    ):
        prompts = write_prompts(tmp_path / "p.json", good, other)
        with pytest.raises(RequestError, match=message):
            run_cli("logits", "--engine_dir", engine_dir, "--prompts", prompts, *out, *options)


def test_a_place_that_can_not_be_written_is_refused_before_the_run(
    engine_dir, tmp_path, monkeypatch
):
    monkeypatch.setattr("dsv4_trt.runtime.open.open_engine", None)
    prompts = write_prompts(tmp_path / "p.json", {"id": "a", "token_ids": [0]})
    run = ("logits", "--engine_dir", engine_dir, "--prompts", prompts, "--output")
    for output, message in (
        (tmp_path / "gone" / "out.safetensors", "No such file or directory"),
        (prompts / "out.safetensors", "Not a directory"),
        (tmp_path, "is a folder"),
        (".", "is a folder"),
    ):
        with pytest.raises(ConfigError, match=message):
            run_cli(*run, output)
    assert list(tmp_path.iterdir()) == [prompts]


def test_the_logits_file_has_the_permissions_of_any_new_file(engine_dir, tmp_path):
    prompts = write_prompts(tmp_path / "p.json", {"id": "a", "token_ids": [0]})
    out = tmp_path / "out.safetensors"
    run_cli("logits", "--engine_dir", engine_dir, "--prompts", prompts, "--output", out)
    assert out.stat().st_mode == prompts.stat().st_mode
    assert sorted(tmp_path.iterdir()) == [out, prompts]


def test_a_profile_of_a_cpu_is_refused_before_anything_is_loaded(engine_dir, monkeypatch):
    monkeypatch.setattr("dsv4_trt.cli.generate.open_llm", None)
    arguments = ["--engine_dir", str(engine_dir), "--token_ids", "0", "--device", "cpu"]
    with pytest.raises(ConfigError, match="--profile times ops on a GPU"):
        command.main([*arguments, "--profile"], standalone_mode=False)
