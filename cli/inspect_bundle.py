"""What `dsv4-trt inspect` finds out about an engine bundle, with its weights or without them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dsv4_trt.cli.inspect_parts import Report, model_report, tensor_report
from dsv4_trt.cli.inspect_plans import plans_report
from dsv4_trt.contract import (
    BUNDLE_FORMAT,
    CONFIG_FILE,
    GRAPH_FILE,
    GRAPH_FORMAT,
    MANIFEST_FILE,
    WEIGHTS_DIR,
    BuildSpec,
    check_format,
)
from dsv4_trt.errors import BundleMismatch
from dsv4_trt.graph import Graph
from dsv4_trt.kv_layout import solve
from dsv4_trt.model_spec import ModelSpec
from dsv4_trt.targets import TENSORRT


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    """What is read of a bundle's JSON files."""

    spec: ModelSpec
    build: BuildSpec
    mapping: Report
    encoder_revision: str
    rank_places: tuple[tuple[Path, Path], ...]  # by rank: in the bundle, where it was built
    precisions: Report
    plans: Report  # empty: of engine "native"
    graphs: dict[str, dict[str, Graph]]  # by precision, then trunk and mtp


def bundle_report(path: Path) -> Report:
    """Everything about the bundle `path`; weights that are not found are listed, not refused.

    Raises `BundleMismatch` for another format version or a damaged file.
    """
    try:
        return _report(_read(path))
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise BundleMismatch(
            f"a file of {path} is damaged ({type(error).__name__}: {error}); build the bundle again"
        ) from error


def _report(files: _Files) -> Report:
    from dsv4_trt.safetensors_file import read_header

    for parts in files.graphs.values():
        for graph in parts.values():
            graph.check()
    found: list[Path] = []
    missing: list[Path] = []
    for places in files.rank_places:
        file = next((place for place in places if place.is_file()), None)
        (missing if file is None else found).append(file or places[-1])
    return {
        **model_report(files.spec),
        "mapping": files.mapping,
        "build": files.build.to_json(),
        "kv": _kv(files.spec, files.build),
        "encoder_revision": files.encoder_revision,
        "precisions": files.precisions,
        **files.plans,
        **tensor_report((file, read_header(file).tensors) for file in found),
        "missing_weights": [str(file) for file in missing],
        "dummy_weights": not files.rank_places,
        "graphs": {
            precision: {part: graph.to_json() for part, graph in parts.items()}
            for precision, parts in files.graphs.items()
        },
    }


def _read(path: Path) -> _Files:
    from dsv4_trt.json_fields import read_object

    config, manifest, graph_file = (
        read_object(path / name, "a file of an engine bundle").data
        for name in (CONFIG_FILE, MANIFEST_FILE, GRAPH_FILE)
    )
    check_format(f"engine bundle {path}", manifest.get("format_version"), BUNDLE_FORMAT)
    check_format(f"graph of {path}", graph_file.get("format_version"), GRAPH_FORMAT)
    graphs = graph_file["graphs"].items()
    build = BuildSpec.from_json(config["build_config"])
    mapping = dict(config["pretrained_config"]["mapping"])
    plans: Report = {}
    if build.engine in TENSORRT:
        plans = plans_report(path, manifest["files"], mapping["world_size"])
    return _Files(
        spec=ModelSpec.from_json(config["pretrained_config"]["model"]),
        build=build,
        mapping=mapping,
        encoder_revision=manifest["encoder_revision"],
        rank_places=tuple(
            (path / WEIGHTS_DIR / rank["file"], Path(rank["path"])) for rank in manifest["ranks"]
        ),
        plans=plans,
        precisions={name: parts["precision"] for name, parts in graphs},
        graphs={
            name: {
                part: Graph.from_json(data) for part, data in parts.items() if part != "precision"
            }
            for name, parts in graphs
        },
    )


def _kv(spec: ModelSpec, build: BuildSpec) -> Report:
    layout = solve(spec, build.kv_cache_dtype, build.indexer_cache_dtype, mtp=build.mtp)
    return {
        "page_bytes": {str(bucket): size for bucket, size in layout.page_bytes.items()},
        "bytes_per_token": layout.bytes_per_token(),
    }
