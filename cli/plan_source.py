"""What `dsv4-trt plan` plans for: a preset and options, or what an engine bundle records."""

from __future__ import annotations

from collections.abc import Mapping as MappingABC
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsv4_trt.contract import BUNDLE_FORMAT, CONFIG_FILE, BuildSpec, check_format
from dsv4_trt.errors import BundleMismatch, ConfigError
from dsv4_trt.mapping import Mapping
from dsv4_trt.model_spec import ModelSpec
from dsv4_trt.presets import FLASH, PRO
from dsv4_trt.rank_tensors import rank_tensors

PRESETS = {"flash": FLASH, "pro": PRO}
Choices = MappingABC[str, Any]  # options by name; None where one was not given


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSource:
    """A model, how it is spread, and what its engine is built for."""

    name: str  # of the preset, or the bundle's path
    is_bundle: bool
    spec: ModelSpec
    mapping: Mapping
    build: BuildSpec

    def weight_bytes(self, mapping: Mapping | None = None) -> int:
        """Bytes of the weights of one rank, by default at the source's own mapping."""
        tensors = rank_tensors(self.spec, mapping or self.mapping, mtp=self.build.mtp)
        return sum(tensor.nbytes for tensor in tensors)


def preset_source(name: str, choices: Choices) -> PlanSource:
    """The preset `name`; sequences as long as the model allows unless `max_seq_len` was chosen.

    Raises `ConfigError` for an illegal mapping or length.
    """
    spec, given = PRESETS[name], {key: v for key, v in choices.items() if v is not None}
    limit = spec.max_position_embeddings
    mapping = Mapping(tp_size=given.pop("tp_size", 1), moe_ep_size=given.pop("moe_ep_size", 1))
    mapping.check(spec)
    build = BuildSpec(**{"max_seq_len": limit} | given)
    if build.max_seq_len > limit:
        raise ConfigError(
            f"max_seq_len {build.max_seq_len} is above the model's max_position_embeddings {limit}"
        )
    return PlanSource(name=name, is_bundle=False, spec=spec, mapping=mapping, build=build)


def bundle_source(path: Path, choices: Choices) -> PlanSource:
    """What the bundle `path` was built for; its weights need not be there.

    Raises `ConfigError` if `path` is no bundle or a choice contradicts it, and `BundleMismatch` for
    another format version or a damaged file.
    """
    from dsv4_trt.cli.inspect_report import BUNDLE, kind_of

    kind = kind_of(path)
    if kind != BUNDLE:
        raise ConfigError(f"{path} is of kind '{kind}'; expected an engine bundle")
    try:
        source = _read_bundle(path)
        source.weight_bytes()  # uses every size of the model
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise BundleMismatch(
            f"a file of {path} is damaged ({type(error).__name__}: {error}); build the bundle again"
        ) from error
    recorded = source.build.to_json() | {
        "tp_size": source.mapping.tp_size,
        "moe_ep_size": source.mapping.moe_ep_size,
    }
    for name, value in choices.items():
        if value not in (None, recorded[name]):
            raise ConfigError(
                f"--{name} is {value}, but {path} was built with {name} {recorded[name]}; leave the "
                "option out, or build a bundle with it"
            )
    return source


def _read_bundle(path: Path) -> PlanSource:
    from dsv4_trt.json_fields import read_object

    config = read_object(path / CONFIG_FILE, "a file of an engine bundle").data
    check_format(f"engine bundle {path}", config.get("format_version"), BUNDLE_FORMAT)
    model, split = (config["pretrained_config"][key] for key in ("model", "mapping"))
    spec = ModelSpec.from_json(model)
    mapping = Mapping(tp_size=split["tp_size"], moe_ep_size=split["moe_ep_size"])
    build = BuildSpec.from_json(config["build_config"])
    mapping.check(spec)
    build.check()
    return PlanSource(name=str(path), is_bundle=True, spec=spec, mapping=mapping, build=build)
