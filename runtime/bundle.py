"""Opens an engine bundle: checks format versions, file digests and that the weights are the right ones."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dsv4_trt.contract import (
    BUNDLE_FORMAT,
    CONFIG_FILE,
    GRAPH_FILE,
    GRAPH_FORMAT,
    MANIFEST_FILE,
    PLAN_FILE,
    WEIGHTS_DIR,
    BuildSpec,
    check_format,
    engine_file,
)
from dsv4_trt.errors import BundleMismatch, ConfigError
from dsv4_trt.graph import Graph
from dsv4_trt.identity import weights_identity
from dsv4_trt.kv_layout import KvLayout, solve
from dsv4_trt.mapping import Mapping
from dsv4_trt.model_spec import ModelSpec
from dsv4_trt.plan_record import PLAN_FORMAT, BuildRecord
from dsv4_trt.precision import Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """An engine bundle on disk, its graphs at one precision, and its checked weights."""

    path: Path
    spec: ModelSpec
    mapping: Mapping
    build: BuildSpec
    precision: Precision
    trunk: Graph
    mtp: Graph | None
    rank_files: tuple[Path, ...]
    encoder_revision: str
    record: BuildRecord | None = None  # of TensorRT plans; None: of engine "native"

    @property
    def graphs(self) -> list[Graph]:
        """The trunk, and the MTP block where it is built."""
        return [graph for graph in (self.trunk, self.mtp) if graph is not None]

    @property
    def is_dummy(self) -> bool:
        """Whether there are no weights: an engine makes them up on its device."""
        return not self.rank_files

    @property
    def layout(self) -> KvLayout:
        """The KV layout that the graphs were built for."""
        mtp = self.mtp is not None
        return solve(self.spec, self.precision.kv, self.precision.indexer, mtp=mtp)

    def plan_file(self, graph: str, rank: int = 0) -> Path:
        """The TensorRT plan of a graph."""
        return self.path / engine_file(rank, graph)

    def check_layout(self, planned: KvLayout) -> None:
        """Raise `BundleMismatch` unless pools planned with this layout fit the graphs."""
        if planned != self.layout:
            raise BundleMismatch(
                f"the pools are planned for pages of another layout than those of {self.path} at "
                f"precision '{self.precision.name}'; plan with the layout of the opened bundle"
            )


def open_bundle(
    path: Path, *, precision: str = "serving", checkpoint_dir: Path | None = None
) -> Bundle:
    """Open the bundle `path`; `checkpoint_dir` says where the weights are if they moved.

    Raises `BundleMismatch` for another format version, a changed file or the wrong weights, and
    `ConfigError` if `path` is no bundle or `precision` is not one of its graphs or plans.
    """
    try:
        return _open(path, precision, checkpoint_dir)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise BundleMismatch(
            f"a file of {path} is damaged ({type(error).__name__}: {error}); build the bundle again"
        ) from error


def _open(path: Path, precision: str, checkpoint_dir: Path | None) -> Bundle:
    graph_file = _read_json(path, GRAPH_FILE)  # first: no other product has one
    check_format(f"graph of {path}", graph_file.get("format_version"), GRAPH_FORMAT)
    manifest = _read_json(path, MANIFEST_FILE)
    check_format(f"engine bundle {path}", manifest.get("format_version"), BUNDLE_FORMAT)
    _check_files(path, manifest["files"])
    config = _read_json(path, CONFIG_FILE)
    graphs = graph_file["graphs"]
    if precision not in graphs:
        raise ConfigError(f"precision '{precision}' is unknown; {path} has {', '.join(graphs)}")
    parts = graphs[precision]
    model, split = (config["pretrained_config"][key] for key in ("model", "mapping"))
    build = BuildSpec.from_json(config["build_config"])
    if build.engine != "native" and precision != "serving":
        raise ConfigError(
            f"the plans of {path} are for precision 'serving', not '{precision}'; build with --engine "
            "native to run it"
        )
    bundle = Bundle(
        path=path,
        spec=ModelSpec.from_json(model),
        mapping=Mapping(tp_size=split["tp_size"], moe_ep_size=split["moe_ep_size"]),
        build=build,
        precision=Precision.from_json(parts["precision"]),
        trunk=Graph.from_json(parts["trunk"]),
        mtp=Graph.from_json(parts["mtp"]) if "mtp" in parts else None,
        rank_files=tuple(_weights(path, rank, checkpoint_dir) for rank in manifest["ranks"]),
        encoder_revision=manifest["encoder_revision"],
    )
    if build.engine == "native":
        return bundle
    return replace(bundle, record=_read_record(bundle, manifest["files"]))


def _read_record(bundle: Bundle, digests: dict[str, str]) -> BuildRecord:
    """What the build of the bundle's plans recorded, which are all there."""
    path, build = bundle.path, bundle.build
    graphs = [graph.name for graph in bundle.graphs]
    plans = [engine_file(rank, g) for rank in range(bundle.mapping.world_size) for g in graphs]
    for name in (PLAN_FILE, *plans):
        if name not in digests:
            raise BundleMismatch(
                f"{path} is built for engine '{build.engine}' and its manifest has no {name}; build the "
                "bundle again"
            )
    data = _read_json(path, PLAN_FILE)
    check_format(f"{PLAN_FILE} of {path}", data.get("format_version"), PLAN_FORMAT)
    record = BuildRecord.from_json(data)
    for what, found, expected in (
        ("engine", record.engine, build.engine),
        ("target", record.target, build.target or record.target),
        ("graphs", sorted(record.plans), sorted(graphs)),
    ):
        if found != expected:
            raise BundleMismatch(
                f"{path / PLAN_FILE} is of {what} {found}, the bundle of {expected}; build the bundle again"
            )
    return record


def _read_json(path: Path, name: str) -> dict[str, Any]:
    try:
        data: dict[str, Any] = json.loads((path / name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        found = f"{path} holds no {name}" if path.is_dir() else f"{path} is not a folder"
        raise ConfigError(
            f"{found}; expected an engine bundle written by `dsv4-trt build`"
        ) from None
    except (ValueError, RecursionError) as error:
        raise BundleMismatch(
            f"{path / name} is not JSON ({error}); build the bundle again"
        ) from None
    return data


def _check_files(path: Path, digests: dict[str, str]) -> None:
    for name, expected in digests.items():
        file = path / name
        if not file.is_file():
            raise BundleMismatch(f"{file} is missing; build the bundle again")
        if hashlib.sha256(file.read_bytes()).hexdigest() != expected:
            raise BundleMismatch(
                f"{file} was changed after the bundle was built; build the bundle again"
            )


def _weights(path: Path, rank: dict[str, Any], checkpoint_dir: Path | None) -> Path:
    name = str(rank["file"])
    candidates = [path / WEIGHTS_DIR / name, Path(rank["path"])]
    if checkpoint_dir is not None:
        candidates = [checkpoint_dir / name]
    file = next((candidate for candidate in candidates if candidate.exists()), None)
    if file is None:
        places = " or ".join(str(candidate) for candidate in candidates)
        raise BundleMismatch(
            f"the weights {name} of bundle {path} are not at {places}; say where the rank "
            "checkpoint is with --checkpoint_dir"
        )
    size = file.stat().st_size
    if size != rank["bytes"]:
        raise BundleMismatch(
            f"{file} has {size} bytes, the bundle {path} was built for {rank['bytes']}; use the "
            "rank checkpoint it was built from, or build again"
        )
    identity = weights_identity(file)
    if identity != rank["identity"]:
        raise BundleMismatch(
            f"{file} holds other weights than the bundle {path} was built from (identity "
            f"{identity[:12]}, expected {rank['identity'][:12]}); use the rank checkpoint it was "
            "built from, or build again"
        )
    return file
