"""What a build of TensorRT plans recorded: plain data beside the plans, for `inspect` and the runtime.

Tensors are as TensorRT sees them: element types are its own names, every one-byte type is INT8, and
run-time dimensions have the graph's names.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from dsv4_trt.contract import TABLE_ORDER, is_block_table
from dsv4_trt.dtypes import DType
from dsv4_trt.graph import Attr, Dim, Value

PLAN_FORMAT = 1
# TensorRT refuses a network that has both INT8 and FP8
ELEMENT_TYPES = {
    DType.F32: "FLOAT",
    DType.BF16: "BF16",
    DType.I32: "INT32",
    DType.I8: "INT8",
    DType.F8_E4M3: "INT8",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTensor:
    """A network input or output."""

    name: str
    dtype: str  # one of `ELEMENT_TYPES`
    shape: tuple[Dim, ...]

    @property
    def is_sized(self) -> bool:
        """Whether a run-time size is among its dimensions."""
        return any(isinstance(dim, str) for dim in self.shape)

    @staticmethod
    def of(value: Value) -> PlanTensor:
        """A graph's value: block tables in the order of memory, as TensorRT knows only dense tensors."""
        shape: tuple[Dim, ...] = value.shape
        if is_block_table(value.name):
            shape = tuple(shape[i] for i in TABLE_ORDER)
        return PlanTensor(name=value.name, dtype=ELEMENT_TYPES[value.dtype], shape=shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLayer:
    """A layer of the network that TensorRT was given, as read back from it."""

    name: str
    kind: str  # PLUGIN_V3, GATHER, CAST ...
    op: str | None  # of a plugin: its name
    attrs: dict[str, Attr]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    aliases: dict[str, str]  # output that a plugin writes in place of an input


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """An optimization profile: for each run-time size of the graph its least, usual and most."""

    name: str  # "decode" or "prefill"
    sizes: dict[str, tuple[int, int, int]]

    @property
    def most(self) -> dict[str, int]:
        """The greatest of each size."""
        return {name: most for name, (_, _, most) in self.sizes.items()}

    def shapes(self, tensor: PlanTensor) -> list[tuple[int, ...]]:
        """Least, usual and greatest shape of an input."""
        ranges = [(d, d, d) if isinstance(d, int) else self.sizes[d] for d in tensor.shape]
        return [tuple(sizes[i] for sizes in ranges) for i in range(3)]

    @staticmethod
    def from_json(data: dict[str, Any]) -> Profile:
        """Read what `asdict` gave."""
        sizes = {name: (each[0], each[1], each[2]) for name, each in data["sizes"].items()}
        return Profile(name=data["name"], sizes=sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRecord:
    """One plan."""

    graph: str  # "trunk" or "mtp"
    nbytes: int
    inputs: tuple[PlanTensor, ...]
    outputs: tuple[PlanTensor, ...]
    layers: tuple[PlanLayer, ...]
    profiles: tuple[Profile, ...]
    num_streams: int  # that TensorRT chose, the main one among them
    stream_of: dict[str, int]  # by layer, as TensorRT calls it after fusing
    device_code: tuple[str, ...]  # GPUs of machine code, names of sources
    seconds: float
    peak_bytes: int  # of host memory, of the process that built it
    # by profile and node: bytes that plugins may write, which a plan does not tell them when they run
    workspaces: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def num_plugins(self) -> dict[str, int]:
        """How many plugins of each op."""
        return dict(Counter(layer.op for layer in self.layers if layer.op is not None))


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRecord:
    """All plans of a bundle; ranks share them, a graph knows no rank."""

    engine: str
    target: str
    tensorrt_version: str
    plugins: str  # header version that the plugin library was compiled with; "" = Python twins
    plans: dict[str, PlanRecord]  # by graph

    @property
    def is_runnable(self) -> bool:
        """Plans of twins have no workspaces: they show that a network builds, and can not run."""
        return bool(self.plugins)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {"format_version": PLAN_FORMAT, **asdict(self)}

    @staticmethod
    def from_json(data: dict[str, Any]) -> BuildRecord:
        """Read what `to_json` wrote."""
        plans = {name: _plan(plan) for name, plan in data["plans"].items()}
        rest = {key: data[key] for key in ("engine", "target", "tensorrt_version", "plugins")}
        return BuildRecord(plans=plans, **rest)


def _plan(data: dict[str, Any]) -> PlanRecord:
    tensors = {key: tuple(map(_tensor, data[key])) for key in ("inputs", "outputs")}
    layers = tuple(
        PlanLayer(**{**layer, "inputs": tuple(layer["inputs"]), "outputs": tuple(layer["outputs"])})
        for layer in data["layers"]
    )
    profiles = tuple(map(Profile.from_json, data["profiles"]))
    read = {"layers": layers, "profiles": profiles, "device_code": tuple(data["device_code"])}
    return PlanRecord(**{**data, **tensors, **read})


def _tensor(data: dict[str, Any]) -> PlanTensor:
    return PlanTensor(name=data["name"], dtype=data["dtype"], shape=tuple(data["shape"]))
