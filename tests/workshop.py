"""Builds engines for tests through the command line, as users do, and caches what it built."""

import os
from dataclasses import dataclass, field
from pathlib import Path

import torch
from click.testing import CliRunner

from dsv4_trt.cli.main import cli
from dsv4_trt.kv_plan import plan_for_sequences
from dsv4_trt.runtime.bundle import open_bundle
from dsv4_trt.runtime.logits import prompt_logits
from dsv4_trt.runtime.logits_prompt import LogitsOptions, LogitsPrompt
from dsv4_trt.runtime.open import open_engine


def run_cli(*args):
    """Run a command; errors surface as themselves."""
    result = CliRunner().invoke(cli, [str(a) for a in args], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def golden_roots():
    """Folders of golden checkpoints by name: all of them if given, the one in the tree otherwise."""
    root = Path(os.environ.get("DSV4_GOLDEN_DIR", Path(__file__).parent / "golden"))
    return {p.parent.name: p.parent for p in sorted(root.glob("*/checkpoint"))}


@dataclass
class Workshop:
    """Converted checkpoints, bundles and engines under one temporary folder."""

    root: Path
    _engines: dict = field(default_factory=dict)

    def bundle_dir(self, checkpoint, tp=1, ep=1, build=()):
        name = f"{checkpoint.parent.name}-{checkpoint.name}-{tp}-{ep}" + "".join(build)
        engine_dir = self.root / f"{name}.engine"
        rank_dir = self.root / f"{checkpoint.parent.name}-{checkpoint.name}-{tp}-{ep}.ckpt"
        if not rank_dir.exists():
            sizes = ("--tp_size", tp, "--moe_ep_size", ep)
            run_cli("convert", "--model_dir", checkpoint, "--output_dir", rank_dir, *sizes)
        if not engine_dir.exists():
            paths = ("--checkpoint_dir", rank_dir, "--output_dir", engine_dir)
            run_cli("build", *paths, "--max_num_tokens", 2048, *build)
        return engine_dir

    def dummy_dir(self, preset, build=()):
        """The bundle of a model whose weights a GPU makes up."""
        engine_dir = self.root / ("-".join([preset, *build]) + ".engine")
        if not engine_dir.exists():
            paths = ("--preset", preset, "--dummy-weights", "--output_dir", engine_dir)
            run_cli("build", *paths, "--max_num_tokens", 2048, *build)
        return engine_dir

    def engine(
        self,
        checkpoint,
        precision="exact",
        tp=1,
        ep=1,
        build=(),
        lens=(640, 640, 640),
        device="cpu",
    ):
        key = (checkpoint, precision, tp, ep, build, lens, device)
        if key not in self._engines:
            bundle = open_bundle(self.bundle_dir(checkpoint, tp, ep, build), precision=precision)
            self._engines[key] = open_engine(
                bundle, plan_for_sequences(bundle.layout, list(lens)), device=device
            )
        return self._engines[key]


def logits(engine, ids, *, decode=(), chunk=0, mtp=False):
    """`prompt_logits` with short names: keys prefill, decode, mtp, mtp_decode."""
    prompt = LogitsPrompt(id="p", token_ids=tuple(ids), forced_ids=tuple(decode))
    options = LogitsOptions(decode=len(decode), chunk=chunk, mtp=mtp)
    found = prompt_logits(engine, prompt, options)
    return {name.partition(".")[2] or "prefill": rows for name, rows in found.items()}


def random_ids(count, vocab=512, seed=0):
    return torch.randint(2, vocab, (count,), generator=torch.Generator().manual_seed(seed)).tolist()
