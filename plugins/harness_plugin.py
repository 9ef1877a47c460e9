"""One plugin object, asked and told what TensorRT would ask and tell it; see `plugin_harness`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dsv4_trt.errors import PluginError
from dsv4_trt.graph import Dim
from dsv4_trt.plugins.plugin_fields import Field, read_fields
from dsv4_trt.plugins.plugin_structures import (
    TYPES,
    DescArg,
    RangeArg,
    ShapeArg,
    desc_arg,
    dims_arg,
    shape_arg,
    shape_of,
)

if TYPE_CHECKING:
    from dsv4_trt.plugins.plugin_harness import Harness, HarnessContext

NO_WORKSPACE = 1 << 62  # what a plugin says that can not say how much it needs


@dataclass(frozen=True, slots=True)
class Range:
    """A tensor while a plan is built: its type, least and largest shape."""

    type: str
    least: tuple[int, ...]
    most: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a plan that runs."""

    type: str
    shape: tuple[int, ...]
    address: int = 0


class HarnessPlugin:
    """One plugin object. What it refuses raises `PluginError` with what it logs."""

    def __init__(self, harness: Harness, address: int) -> None:
        self.harness = harness
        self._address = ctypes.c_void_p(address)

    def close(self) -> None:
        """Destroy it."""
        self._call("destroy")

    @property
    def identity(self) -> tuple[str, ...]:
        """Name, version and namespace."""
        return tuple(self._call("text", which).decode() for which in range(3))

    @property
    def capabilities(self) -> set[str]:
        """Of core, build and runtime those that it has."""
        bits = self._call("capabilities")
        return {name for i, name in enumerate(("core", "build", "runtime")) if bits >> i & 1}

    @property
    def metadata(self) -> str:
        """Its attributes for people."""
        return str(self._call("metadata").decode())

    @property
    def tuning(self) -> tuple[int, int, bytes | None]:
        """Tactics, most format combinations, timing cache id."""
        return (
            self._call("num_tactics"),
            self._call("format_limit"),
            self._call("timing_cache_id"),
        )

    @property
    def num_outputs(self) -> int:
        """How many outputs it has."""
        return int(self._call("num_outputs"))

    def output_types(self, inputs: Sequence[str]) -> list[str]:
        """Types of outputs from types of inputs."""
        given = (ctypes.c_int32 * len(inputs))(*[TYPES[name] for name in inputs])
        found = (ctypes.c_int32 * self.num_outputs)()
        self._check(self._call("output_types", given, len(inputs), found, len(found)))
        names = {code: name for name, code in TYPES.items()}
        return [names[code] for code in found]

    def output_shapes(self, inputs: Sequence[Sequence[Dim]]) -> list[tuple[Dim, ...]]:
        """Shapes of outputs from shapes of inputs, in which names stand for sizes not known yet."""
        given = (ShapeArg * len(inputs))(*map(shape_arg, inputs))
        found = (ShapeArg * self.num_outputs)()
        self._check(self._call("output_shapes", given, len(inputs), found, len(found)))
        return [shape_of(arg) for arg in found]

    def supports(self, tensors: Sequence[tuple[str, int]], num_inputs: int) -> bool:
        """Whether the last of some tensors, inputs first, may have its type and format after the others."""
        args = [RangeArg(desc_arg(name, (), layout)) for name, layout in tensors]
        missing = num_inputs + self.num_outputs - len(args)
        array = (RangeArg * (len(args) + missing))(*args)
        found = self._call("supports", len(args) - 1, array, num_inputs, self.num_outputs)
        return bool(found == 1)

    @property
    def aliases(self) -> list[int]:
        """The input that each output overwrites, -1 for none."""
        return [self._call("aliased_input", index) for index in range(self.num_outputs)]

    def configure(self, inputs: Sequence[Range]) -> None:
        """Tell it the ranges of a profile."""
        self._check(self._call("configure", *self._ranges(inputs)))

    def workspace(self, inputs: Sequence[Range]) -> int:
        """Bytes to reserve for all sizes of a profile; `NO_WORKSPACE` with a message if it can not tell."""
        return int(self._call("workspace", *self._ranges(inputs)))

    def serialized(self) -> list[Field]:
        """What goes into a plan."""
        return read_fields(self._call("serialized").contents)

    def clone(self) -> HarnessPlugin:
        """A clone, to be closed too."""
        return self.harness.plugin(self._call("clone"))

    def attach(self, context: HarnessContext) -> HarnessPlugin:
        """A clone that is attached to a context, to be closed before it."""
        return self.harness.plugin(self._call("attach", context.address))

    def shape_change(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        """Tell it the shapes of the launches to come."""
        given, found = _descs(inputs), _descs(outputs)
        self._check(self._call("shape_change", given, len(given), found, len(found)))

    def enqueue(
        self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], workspace: int, stream: int
    ) -> None:
        """Launch it on a stream; addresses are of the device."""
        addresses = [
            (ctypes.c_void_p * len(tensors))(*[tensor.address for tensor in tensors])
            for tensors in (inputs, outputs)
        ]
        memory = ctypes.c_void_p(workspace), ctypes.c_void_p(stream)
        self._check(self._call("enqueue", _descs(inputs), _descs(outputs), *addresses, *memory))

    def _ranges(self, inputs: Sequence[Range]) -> tuple[Any, int, Any, int]:
        given = (RangeArg * len(inputs))(*map(_range_arg, inputs))
        return given, len(given), (RangeArg * self.num_outputs)(), self.num_outputs

    def _call(self, name: str, *arguments: Any) -> Any:
        return getattr(self.harness.c, f"dsv4_harness_{name}")(self._address, *arguments)

    def _check(self, status: int) -> None:
        if status:
            text = "; ".join(self.harness.messages())
            raise PluginError(text or f"the plugin gave status {status}, and nothing said why")


def _descs(tensors: Sequence[Tensor]) -> Any:
    return (DescArg * len(tensors))(*[desc_arg(t.type, t.shape) for t in tensors])


def _range_arg(tensor: Range) -> RangeArg:
    wild = [a if a == b else -1 for a, b in zip(tensor.least, tensor.most, strict=True)]
    least, most = dims_arg(tensor.least), dims_arg(tensor.most)
    return RangeArg(desc_arg(tensor.type, wild), least, most, most)
