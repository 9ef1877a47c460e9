"""A model without weights, for engines that make them up: what a rank checkpoint would say of it."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

from dsv4_trt.contract import CHECKPOINT_FORMAT
from dsv4_trt.mapping import Mapping
from dsv4_trt.model_spec import ModelSpec
from dsv4_trt.rank_checkpoint import RankCheckpoint
from dsv4_trt.rank_tensors import LAYOUT_VERSION


def dummy_checkpoint(spec: ModelSpec, *, mtp: bool) -> RankCheckpoint:
    """One rank of `spec`, with no file behind it."""
    spec = replace(spec, num_nextn_predict_layers=int(mtp))
    mapping = Mapping(tp_size=1, moe_ep_size=1)
    config = {
        "format_version": CHECKPOINT_FORMAT,
        "layout_version": LAYOUT_VERSION,
        "mapping": {"world_size": 1, **asdict(mapping)},
        "model": spec.to_json(),
        "mtp": mtp,
        "dummy_weights": True,
    }
    return RankCheckpoint(
        path=Path("dummy weights"),
        spec=spec,
        mapping=mapping,
        mtp=mtp,
        config=config,
        manifest={"format_version": CHECKPOINT_FORMAT, "ranks": []},
        rank_files=(),
    )
