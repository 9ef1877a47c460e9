"""Takes TensorRT plugins through their life without TensorRT, by the harness that is built beside them.

Shapes and types are TensorRT's: dimensions of a block table in the order of memory, every type of one byte
INT8 (`shown_shape`, `SHOWN_TYPES`).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsv4_trt.dtypes import DType
from dsv4_trt.errors import PluginError
from dsv4_trt.graph import Dim
from dsv4_trt.plugins.library_build import HARNESS_FILE
from dsv4_trt.plugins.op_schema import Param
from dsv4_trt.plugins.plugin_fields import Field, fields_arg, read_fields
from dsv4_trt.plugins.plugin_structures import (
    TYPES,
    DescArg,
    FieldsArg,
    RangeArg,
    ShapeArg,
    desc_arg,
    dims_arg,
    shape_arg,
    shape_of,
)

SHOWN_TYPES = {
    DType.F32: "FLOAT",
    DType.BF16: "BF16",
    DType.I32: "INT32",
    DType.I8: "INT8",
    DType.F8_E4M3: "INT8",
}
NO_WORKSPACE = 1 << 62  # what a plugin says that can not say how much it needs
_PHASES = {"build": 0, "runtime": 1}


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


def shown_shape(param: Param, shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """A shape as TensorRT is shown it."""
    return tuple(shape[index] for index in param.order or range(len(shape)))


class Harness:
    """A plugin library, loaded as TensorRT loads it."""

    def __init__(self, library: Path, harness: Path | None = None) -> None:
        """`harness`: what is built beside the library, unless it is named.

        Raises:
            PluginError: a file is not there, or the library is none of TensorRT plugins.
        """
        path = harness or library.with_name(HARNESS_FILE)
        try:
            self.c = ctypes.CDLL(str(path))
        except OSError as error:
            raise PluginError(
                f"the plugin harness {path} can not be loaded: {error}; build it with "
                "`dsv4-trt plugins build --tensorrt_include DIR`"
            ) from error
        self._declare()
        self._library = self.c.dsv4_harness_open(os.fsencode(library))
        if not self._library:
            raise PluginError(f"{library} has no TensorRT plugins: {'; '.join(self.messages())}")
        count = self.c.dsv4_harness_num_creators(ctypes.c_void_p(self._library))
        found = [
            self.c.dsv4_harness_creator(ctypes.c_void_p(self._library), i) for i in range(count)
        ]
        self._creators = {self._creator_text(creator)[0]: creator for creator in found}

    @property
    def creators(self) -> dict[str, tuple[str, str]]:
        """Version and namespace of each creator, by its name."""
        return {
            name: self._creator_text(creator)[1:]  # type: ignore[misc]
            for name, creator in self._creators.items()
        }

    def field_names(self, op: str) -> list[tuple[str, str]]:
        """Name and type of each field that a creator wants."""
        fields = self.c.dsv4_harness_creator_fields(ctypes.c_void_p(self._creators[op]))
        return [(found.name, found.type) for found in read_fields(fields.contents, values=False)]

    def create(self, op: str, fields: Sequence[Field], phase: str = "build") -> HarnessPlugin:
        """A plugin for the `build` or the `runtime` phase; `PluginError` with what its creator logs."""
        made = self.c.dsv4_harness_create(
            ctypes.c_void_p(self._creators[op]),
            op.encode(),
            ctypes.byref(fields_arg(fields)),
            ctypes.c_int32(_PHASES[phase]),
        )
        return self.plugin(made)

    def plugin(self, address: int | None) -> HarnessPlugin:
        """The plugin at an address; `PluginError` if there is none."""
        if not address:
            raise PluginError(
                "; ".join(self.messages()) or "no plugin was made, and nothing said why"
            )
        return HarnessPlugin(self, address)

    def context(self) -> HarnessContext:
        """A new execution context."""
        return HarnessContext(self)

    def messages(self) -> list[str]:
        """What has been logged since the last call."""
        text: bytes = self.c.dsv4_harness_messages()
        return text.decode(errors="replace").splitlines()

    def _creator_text(self, creator: int) -> tuple[str, ...]:
        texts = [
            self.c.dsv4_harness_creator_text(ctypes.c_void_p(creator), which) for which in range(3)
        ]
        return tuple(text.decode() for text in texts)

    def _declare(self) -> None:
        text, address = ctypes.c_char_p, ctypes.c_void_p
        for name in ("messages", "creator_text", "text", "timing_cache_id", "metadata"):
            getattr(self.c, f"dsv4_harness_{name}").restype = text
        self.c.dsv4_harness_context_errors.restype = text
        for name in ("open", "creator", "create", "clone", "context", "attach"):
            getattr(self.c, f"dsv4_harness_{name}").restype = address
        for name in ("creator_fields", "serialized"):
            getattr(self.c, f"dsv4_harness_{name}").restype = ctypes.POINTER(FieldsArg)
        self.c.dsv4_harness_workspace.restype = ctypes.c_int64


class HarnessContext:
    """An execution context: where plugins that are attached to it report errors."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self.address = ctypes.c_void_p(harness.c.dsv4_harness_context())

    def errors(self) -> list[str]:
        """What was reported since the last call: `code: text` each."""
        text: bytes = self._harness.c.dsv4_harness_context_errors(self.address)
        return text.decode(errors="replace").splitlines()

    @property
    def references(self) -> int:
        """How often its error recorder is held."""
        found: int = self._harness.c.dsv4_harness_context_references(self.address)
        return found

    def close(self) -> None:
        """Destroy it, after the plugins that are attached to it."""
        self._harness.c.dsv4_harness_destroy_context(self.address)


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
