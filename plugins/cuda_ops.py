"""Every op through the CUDA library, called as the references are: keyword tensors in, outputs by name.

Allocates outputs and workspace with torch for each call: for sampling and for tests. The engine has its own
arena.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from dsv4_trt.dtypes import DType
from dsv4_trt.graph import Attr
from dsv4_trt.plugins.library import Call, Library, TensorArg, set_tensor
from dsv4_trt.plugins.ops import OPS

DTYPES = {
    torch.float32: DType.F32,
    torch.bfloat16: DType.BF16,
    torch.float8_e4m3fn: DType.F8_E4M3,
    torch.int32: DType.I32,
    torch.int8: DType.I8,
}
TORCH_DTYPES = {dtype: torch_dtype for torch_dtype, dtype in DTYPES.items()}


def cuda_ops(
    library: Library, *, poison: bool = False
) -> Mapping[str, Callable[..., dict[str, Any]]]:
    """`cuda_ops(library)[op](**inputs, **attrs)`, like `REFERENCES`; collectives take this rank's.

    With `poison` what a kernel fails to write shows: see `bind`.
    """
    return {name: partial(_run, library, name, poison=poison) for name in OPS}


@dataclass(frozen=True, slots=True)
class BoundCall:
    """An op call with all its memory: `launch` puts it on torch's current stream, as often as wanted."""

    library: Library
    call: Call
    outputs: dict[str, torch.Tensor]
    workspace: torch.Tensor
    inputs: Mapping[str, torch.Tensor]

    def launch(self) -> None:
        """Run once; outputs and what is updated in place are overwritten."""
        stream = torch.cuda.current_stream(self.workspace.device).cuda_stream
        address, nbytes = self.workspace.data_ptr(), self.workspace.numel()
        self.library.launch(self.call, address, nbytes, stream)


def bind(library: Library, op_name: str, *, poison: bool = False, **arguments: Any) -> BoundCall:
    """A call of an op on tensors of the GPU, with outputs and workspace.

    With `poison` these are filled with bytes of 0xFF, NaN in every float format, and int32 outputs, of
    which -1 means something, with 0x55.
    """
    op = OPS[op_name]
    attrs: dict[str, Attr] = {name: arguments.pop(name) for name in op.attrs}
    inputs = {name: tensor for name, tensor in arguments.items() if tensor is not None}
    inferred = op.infer({n: (DTYPES[t.dtype], tuple(t.shape)) for n, t in inputs.items()}, attrs)
    device = next(iter(inputs.values())).device
    outputs: dict[str, torch.Tensor] = {}
    for name, (dtype, shape) in inferred.items():
        if name in op.aliases:
            outputs[name] = inputs[op.aliases[name]]
        else:
            sizes = tuple(int(size) for size in shape)
            outputs[name] = torch.empty(sizes, dtype=TORCH_DTYPES[dtype], device=device)
            if poison:
                _poison(outputs[name])
    call = library.call(op, attrs)
    for args, tensors in ((call.inputs, inputs), (call.outputs, outputs)):
        for name, tensor in tensors.items():
            _set(args[name], tensor)
    workspace = torch.empty(library.workspace(call), dtype=torch.int8, device=device)
    if poison:
        _poison(workspace)
    return BoundCall(library, call, outputs, workspace, inputs)


def _run(
    library: Library, op_name: str, *, poison: bool, **arguments: Any
) -> dict[str, torch.Tensor]:
    bound = bind(library, op_name, poison=poison, **arguments)
    bound.launch()
    return bound.outputs


def _poison(tensor: torch.Tensor) -> None:
    tensor.view(torch.int8).fill_(0x55 if tensor.dtype is torch.int32 else -1)


def _set(arg: TensorArg, tensor: torch.Tensor) -> None:
    set_tensor(
        arg, tensor.data_ptr(), DTYPES[tensor.dtype], tuple(tensor.shape), tuple(tensor.stride())
    )
