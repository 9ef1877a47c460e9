"""The kernel library in Python: loaded once, checked against the op table, called through ctypes."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from dsv4_trt.dtypes import DType
from dsv4_trt.errors import PluginError
from dsv4_trt.graph import Attr
from dsv4_trt.plugins.op_schema import Op
from dsv4_trt.plugins.ops import OPS

ABI_VERSION = 3
MAX_RANK = 4
MAX_WAITS = 4
DTYPE_CODES = {DType.F32: 0, DType.BF16: 1, DType.F8_E4M3: 2, DType.I32: 3, DType.I8: 4}


class TensorArg(ctypes.Structure):
    """`Dsv4Tensor`: what lies at a device address; rank 0 is a tensor that the call does not have."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.c_int64 * MAX_RANK),
        ("stride", ctypes.c_int64 * MAX_RANK),
    )


class AttrArg(ctypes.Structure):
    """`Dsv4Attr`: the member of the attribute's type is set."""

    _fields_ = (("i", ctypes.c_int64), ("f", ctypes.c_double), ("s", ctypes.c_char_p))


class CallArg(ctypes.Structure):
    """`Dsv4Call`."""

    _fields_ = (
        ("op", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("inputs", ctypes.POINTER(TensorArg)),
        ("outputs", ctypes.POINTER(TensorArg)),
        ("attrs", ctypes.POINTER(AttrArg)),
    )


class LaunchArg(ctypes.Structure):
    """`Dsv4Launch`: a call of a network, its workspace, its stream and the events around it."""

    _fields_ = (
        ("call", CallArg),
        ("workspace", ctypes.c_void_p),
        ("workspace_bytes", ctypes.c_size_t),
        ("stream", ctypes.c_int32),
        ("record", ctypes.c_int32),
        ("num_waits", ctypes.c_int32),
        ("waits", ctypes.c_int32 * MAX_WAITS),
    )


class FilePart(ctypes.Structure):
    """`Dsv4FilePart`: bytes of a file, and the device address that they go to."""

    _fields_ = (
        ("start", ctypes.c_int64),
        ("bytes", ctypes.c_size_t),
        ("target", ctypes.c_void_p),
    )


class CommunicatorArg(ctypes.Structure):
    """`Dsv4Communicator`: a rank's part in a group of processes, and functions of NCCL."""

    _fields_ = (
        ("comm", ctypes.c_void_p),
        ("rank", ctypes.c_int32),
        ("world_size", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("all_reduce", ctypes.c_void_p),
        ("all_gather", ctypes.c_void_p),
        ("error_string", ctypes.c_void_p),
    )


class Library:
    """The loaded library, with every op of the table.

    Where it refuses a call, or CUDA does, `PluginError` has its message. `tensorrt_version` is that of the
    headers that its TensorRT plugins are built with, "" if it has none.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._c = ctypes.CDLL(str(path))
        except OSError as error:
            why = str(error).removeprefix(f"{path}: ")
            raise PluginError(
                f"{path} can not be loaded: {why}; build it again with `dsv4-trt plugins build`"
            ) from error
        try:
            self._c.dsv4_last_error.restype = ctypes.c_char_p
            self._c.dsv4_op_table.restype = ctypes.c_char_p
            self._check_table()
            self._c.dsv4_tensorrt_version.restype = ctypes.c_char_p
            self.tensorrt_version: str = self._c.dsv4_tensorrt_version().decode()
        except (AttributeError, TypeError, ValueError, KeyError) as error:  # of another form
            why = str(error).removeprefix(f"{path}: ")
            raise PluginError(
                f"{path} is not this version's kernel library: {why}; build it again with "
                "`dsv4-trt plugins build`"
            ) from error
        self._ops = {name: self._find(name) for name in OPS}

    def call(
        self,
        op: Op,
        attrs: Mapping[str, Attr],
        tensors: ctypes.Array[TensorArg] | None = None,
        start: int = 0,
    ) -> Call:
        """A call of an op with these attributes, its tensors still to be set.

        They lie in `tensors` from `start` on, inputs before outputs, or in an array of the call's own.
        """
        return Call(self, op, self._ops[op.name], attrs, tensors, start)

    def workspace(self, call: Call) -> int:
        """Bytes of workspace that a call needs, from its shapes, dtypes and attributes."""
        size = ctypes.c_size_t()
        self._check(self._c.dsv4_workspace(ctypes.byref(call.arg), ctypes.byref(size)))
        return size.value

    def workspace_on(self, call: Call, capability: int, multiprocessors: int) -> int:
        """Bytes that a call would need on a device that need not be here; sm_90a has capability 90."""
        size = ctypes.c_size_t()
        device = ctypes.c_int32(capability), ctypes.c_int32(multiprocessors)
        self._check(self._c.dsv4_workspace_on(ctypes.byref(call.arg), *device, ctypes.byref(size)))
        return size.value

    def workspace_bound(self, largest: Call, capability: int = 0) -> int:
        """Bytes enough for every call of no larger sizes on every device of a compute capability.

        0 is what `plan_for` said, or else the current device's.
        """
        size = ctypes.c_size_t()
        self._check(
            self._c.dsv4_workspace_bound(
                ctypes.byref(largest.arg), ctypes.c_int32(capability), ctypes.byref(size)
            )
        )
        return size.value

    def check_plugins(self) -> None:
        """Raise `PluginError` unless the library has TensorRT plugins."""
        if not self.tensorrt_version:
            raise PluginError(
                f"{self.path} was compiled without TensorRT's headers and has no plugins; name their "
                "folder by TENSORRT_INCLUDE_DIR and run `dsv4-trt plugins build`"
            )

    def plan_for(self, capability: int) -> None:
        """Let plugins size workspaces for a compute capability, not the current device's, until it is 0."""
        self._check(self._c.dsv4_plan_for(ctypes.c_int32(capability)))

    def launch(self, call: Call, workspace: int, workspace_bytes: int, stream: int) -> None:
        """Put a call on a stream; `workspace` is a device address."""
        self._check(
            self._c.dsv4_launch(
                ctypes.byref(call.arg),
                ctypes.c_void_p(workspace),
                ctypes.c_size_t(workspace_bytes),
                ctypes.c_void_p(stream),
            )
        )

    def workspaces(self, launches: ctypes.Array[LaunchArg]) -> None:
        """Set the bytes of workspace of every launch of a network, from its call."""
        self._check(self._c.dsv4_workspaces(launches, ctypes.c_int32(len(launches))))

    def run(
        self,
        launches: ctypes.Array[LaunchArg],
        streams: ctypes.Array[ctypes.c_void_p],
        events: ctypes.Array[ctypes.c_void_p],
    ) -> None:
        """Put a network's launches on its streams, in their order."""
        self._check(self._c.dsv4_run(launches, ctypes.c_int32(len(launches)), streams, events))

    def scatter(self, target: int, places: int, values: int, count: int, stream: int) -> None:
        """`target[places[i]] = values[i]`, int32 on the device."""
        pointers = [ctypes.c_void_p(address) for address in (target, places, values)]
        self._check(self._c.dsv4_scatter(*pointers, ctypes.c_int32(count), ctypes.c_void_p(stream)))

    def copy_file(
        self, path: Path, parts: list[FilePart], staging: int, staging_bytes: int, readers: int
    ) -> None:
        """Copy parts of a file to the current device, by `readers` threads, and wait for it.

        `staging` is pinned memory, two pieces for each thread. `PluginError`, too, if the file can not be
        read or ends too early.
        """
        self._check(
            self._c.dsv4_copy_file(
                os.fsencode(path),
                (FilePart * len(parts))(*parts),
                ctypes.c_int64(len(parts)),
                ctypes.c_void_p(staging),
                ctypes.c_size_t(staging_bytes),
                ctypes.c_int32(readers),
            )
        )

    def set_communicator(self, communicator: CommunicatorArg) -> None:
        """Let collectives of this process run on it; the struct is copied.

        `PluginError` if there is one already.
        """
        self._check(self._c.dsv4_set_communicator(ctypes.byref(communicator)))

    def clear_communicator(self) -> None:
        """Forget the communicator; `PluginError` if there is none, or something still holds it."""
        self._check(self._c.dsv4_clear_communicator())

    def _find(self, name: str) -> int:
        index = ctypes.c_int32()
        self._check(self._c.dsv4_find_op(name.encode(), ctypes.byref(index)))
        return index.value

    def _check(self, status: int) -> None:
        if status:
            message = self._c.dsv4_last_error()  # may have a path in it, of any bytes
            raise PluginError(message.decode(errors="replace"))

    def _check_table(self) -> None:
        version = self._c.dsv4_abi_version()
        found = {entry["name"]: entry for entry in json.loads(self._c.dsv4_op_table())}
        expected = {name: op.to_json() for name, op in OPS.items()}
        different = sorted(
            name for name in found.keys() | expected if found.get(name) != expected.get(name)
        )
        if version != ABI_VERSION or different:
            raise PluginError(
                f"{self.path} is of another version of dsv4-trt: its interface is {version}, expected "
                f"{ABI_VERSION}; its entries differ for {different or 'no op'}; build it again with "
                "`dsv4-trt plugins build`"
            )


class Call:
    """One op call: the C struct, and what keeps its parts alive."""

    def __init__(
        self,
        library: Library,
        op: Op,
        index: int,
        attrs: Mapping[str, Attr],
        tensors: ctypes.Array[TensorArg] | None = None,
        start: int = 0,
    ) -> None:
        self.library = library
        self.op = op
        if tensors is None:
            tensors = (TensorArg * (len(op.inputs) + len(op.outputs)))()
        size = ctypes.sizeof(TensorArg)
        self._inputs = (TensorArg * len(op.inputs)).from_buffer(tensors, start * size)
        start += len(op.inputs)
        self._outputs = (TensorArg * len(op.outputs)).from_buffer(tensors, start * size)
        self._attrs = (AttrArg * max(len(op.attrs), 1))(*[_attr(attrs[n]) for n in op.attrs])
        self.arg = CallArg(index, 0, self._inputs, self._outputs, self._attrs)
        self.inputs = {p.name: arg for p, arg in zip(op.inputs, self._inputs, strict=True)}
        self.outputs = {p.name: arg for p, arg in zip(op.outputs, self._outputs, strict=True)}


def set_tensor(
    arg: TensorArg, data: int, dtype: DType, shape: tuple[int, ...], stride: tuple[int, ...]
) -> None:
    """Fill in a tensor; strides are in elements."""
    arg.data, arg.dtype, arg.rank = data, DTYPE_CODES[dtype], len(shape)
    arg.shape[: len(shape)] = shape
    arg.stride[: len(shape)] = stride


@cache
def load_library(path: Path) -> Library:
    """The library at `path`; each file is loaded once."""
    return Library(path)


def _attr(value: Attr) -> AttrArg:
    if isinstance(value, str):
        return AttrArg(s=value.encode())
    if isinstance(value, float):
        return AttrArg(f=value)
    return AttrArg(i=int(value))
