"""Whole-model logits against DeepSeek's own code (tests/golden/README.md says how they were made)."""

import json

import pytest
import torch
from safetensors.torch import load_file

from tests.workshop import golden_roots, logits

ROOTS = golden_roots()
EXACT_LIMIT = 1e-4  # 3 times the spread between float32 and float64 runs of the same code


def cases():
    for name, root in ROOTS.items():
        for prompt in json.loads((root / "manifest.json").read_text())["prompts"]:
            yield pytest.param(root, prompt, id=f"{name}-{prompt['name']}")


@pytest.mark.parametrize(("root", "prompt"), list(cases()))
def test_exact_logits(workshop, root, prompt):
    """Prefill, token-by-token decode and MTP, every stored position, and the greedy tokens."""
    stored = load_file(root / "exact.safetensors")
    name, ids, greedy = prompt["name"], prompt["ids"], prompt["exact"]["greedy_tokens"]
    engine = workshop.engine(root / "checkpoint")
    mtp = f"{name}.mtp_last_logits" in stored
    found = logits(engine, ids, decode=greedy, mtp=mtp)
    found["last"] = found["prefill"][-1]
    expected = {"last": stored[f"{name}.last_logits"], "decode": stored[f"{name}.decode_logits"]}
    if f"{name}.logits" in stored:
        expected["prefill"] = stored[f"{name}.logits"]
    if mtp:
        found["mtp_last"] = found["mtp"][-1]
        expected["mtp_last"] = stored[f"{name}.mtp_last_logits"]
    if f"{name}.mtp_logits" in stored:
        expected["mtp"] = stored[f"{name}.mtp_logits"]
    if f"{name}.mtp_decode_logits" in stored:
        expected["mtp_decode"] = stored[f"{name}.mtp_decode_logits"]
        found["mtp_decode"] = found["mtp_decode"][: len(expected["mtp_decode"])]
    errors = {key: (found[key] - rows).abs().max().item() for key, rows in expected.items()}
    assert max(errors.values()) < EXACT_LIMIT, errors
    rows = torch.cat([found["last"][None], found["decode"][:-1]])
    assert rows.argmax(dim=-1).tolist() == greedy


@pytest.mark.parametrize("name", [n for n in ROOTS if (ROOTS[n] / "sim.safetensors").exists()])
def test_serving_logits_show_no_gross_error(workshop, name):
    """One rounding difference flips a quantization step, so whole-model limits are wide."""
    root = ROOTS[name]
    stored = load_file(root / "sim.safetensors")
    prompts = {p["name"]: p for p in json.loads((root / "manifest.json").read_text())["prompts"]}
    engine = workshop.engine(root / "checkpoint", precision="serving")
    prompt = prompts["len129"]
    found = logits(engine, prompt["ids"], decode=prompt["sim"]["greedy_tokens"])
    for key, rows in (("prefill", "len129.logits"), ("decode", "len129.decode_logits")):
        expected = stored[rows]
        relative = (found[key] - expected).norm(dim=-1) / expected.norm(dim=-1)
        assert relative.mean() < 0.15
        if key == "prefill":
            agree = found[key].argmax(dim=-1) == expected.argmax(dim=-1)
            assert agree.float().mean() > 0.75
