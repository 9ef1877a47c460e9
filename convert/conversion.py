"""A conversion worked out in full before a byte is written: source checked, plan, file layouts, digest."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dsv4_trt.contract import CHECKPOINT_FORMAT, GENERATION_CONFIG_FILE, TOKENIZER_FILES
from dsv4_trt.convert.config import load_model_spec
from dsv4_trt.convert.layout import detect_layout
from dsv4_trt.convert.plan import Plan
from dsv4_trt.convert.rank_file import RankLayout, rank_layout
from dsv4_trt.convert.source import Source, open_source
from dsv4_trt.convert.tensor_check import check_copies, check_tensors
from dsv4_trt.errors import ConfigError
from dsv4_trt.mapping import Mapping
from dsv4_trt.rank_tensors import LAYOUT_VERSION
from dsv4_trt.safetensors_file import StoredTensor

EXPERTS = ("keep", "fp8")
MTP = ("keep", "skip")
HF_CONFIG_FILE = "config.json"
COPIED_FILES = (*TOKENIZER_FILES, GENERATION_CONFIG_FILE)


def default_workers() -> int:
    """One thread per core, but 4 to 8: while some wait for the disk, others hash."""
    return max(4, min(8, os.cpu_count() or 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertOptions:
    """What the user asked for."""

    model_dir: Path
    output_dir: Path
    mapping: Mapping = field(default_factory=Mapping)
    experts: str = "keep"
    mtp: str = "keep"
    workers: int = field(default_factory=default_workers)
    resume: bool = False
    verify: bool = False

    def check(self) -> None:
        """Raise `ConfigError` on an illegal value."""
        for name, legal in (("experts", EXPERTS), ("mtp", MTP)):
            if getattr(self, name) not in legal:
                raise ConfigError(
                    f"{name} is {getattr(self, name)!r}; expected one of {', '.join(legal)}"
                )
        if self.workers < 1:
            raise ConfigError(f"workers is {self.workers}; expected at least 1")
        source, output = self.model_dir.resolve(), self.output_dir.resolve()
        if output == source or output in source.parents:
            raise ConfigError(
                f"output_dir {self.output_dir} holds the source {self.model_dir}; name a new folder"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """Everything that is known before writing."""

    options: ConvertOptions
    source: Source
    plan: Plan
    layouts: tuple[RankLayout, ...]  # by rank
    mtp_copies: tuple[tuple[StoredTensor, StoredTensor], ...]  # must be equal byte for byte
    config_sha256: str  # of the source's config.json
    copied: tuple[Path, ...]  # files that go along as they are

    @property
    def nbytes(self) -> int:
        """Bytes of all rank files."""
        return sum(layout.nbytes for layout in self.layouts)

    def digest(self) -> str:
        """Digest of all that decides the result: source files, options and format versions."""
        source = [
            (shard.path.name, shard.size, shard.mtime_ns, shard.header_sha256)
            for shard in self.source.shards
        ]
        split = (self.plan.mapping.tp_size, self.plan.mapping.moe_ep_size)
        parts: list[Any] = [CHECKPOINT_FORMAT, LAYOUT_VERSION, self.plan.spec.to_json(), split]
        parts += [self.plan.mtp, self.config_sha256, source]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def prepare(options: ConvertOptions) -> Conversion:
    """Read config, index and headers, check all of it, and plan; writes nothing.

    Raises `ConfigError` for options and config, `CheckpointError` for tensors.
    """
    options.check()
    keep_mtp = options.mtp == "keep"
    source = open_source(options.model_dir)
    layout = detect_layout(source)
    stated = load_model_spec(options.model_dir, layout.expert_dtype)
    official = check_tensors(source, stated, layout, keep_mtp=keep_mtp)
    spec = stated if keep_mtp else replace(stated, num_nextn_predict_layers=0)
    if options.experts == "fp8":
        spec = replace(spec, expert_dtype="fp8")
    plan = Plan.make(spec, layout, options.mapping, official, mtp=spec.has_mtp)
    world = plan.mapping.world_size
    config = (options.model_dir / HF_CONFIG_FILE).read_bytes()
    return Conversion(
        options=options,
        source=source,
        plan=plan,
        layouts=tuple(rank_layout(plan.tensors(), rank, world) for rank in range(world)),
        mtp_copies=tuple(check_copies(source)) if keep_mtp else (),
        config_sha256=hashlib.sha256(config).hexdigest(),
        copied=tuple(
            options.model_dir / name
            for name in COPIED_FILES
            if (options.model_dir / name).is_file()
        ),
    )
