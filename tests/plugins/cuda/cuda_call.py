"""Runs an op on the GPU through the kernel library and through its reference, and compares the two.

The kernel runs first, on copies, with outputs and workspace poisoned; so nothing it fails to write can be
right by chance. With `DSV4_PLUGIN_HARNESS=1` every kernel is run as its TensorRT plugin too, and must give
the same bytes: `tests/plugins/trt/through_harness.py`.
"""

import os
from functools import cache, partial

import torch

from dsv4_trt.plugins import cuda_ops
from dsv4_trt.plugins.library import load_library
from dsv4_trt.plugins.library_build import find_library, library_path
from dsv4_trt.plugins.ops import OPS
from dsv4_trt.plugins.reference import REFERENCES
from tests.plugins.trt.through_harness import checked

POISON = -1  # the byte 0xFF: NaN in every float format


def library():
    return load_library(find_library("sm_90a") or library_path())  # loading says if there is none


@cache
def kernels():
    found = cuda_ops.cuda_ops(library(), poison=True)
    if os.environ.get("DSV4_PLUGIN_HARNESS") != "1":
        return found
    return {op: partial(checked, library(), op, run) for op, run in found.items()}


def on_device(arguments):
    """The same arguments with tensors copied to the GPU; one storage stays one storage."""
    copies = {}

    def copy(value):
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in copies:
            # keeps strides: tables come as transposed views
            base = torch.empty_strided(
                value.shape, value.stride(), dtype=value.dtype, device="cuda"
            )
            copies[id(value)] = base.copy_(value) if value.numel() else base
        return copies[id(value)]

    return {name: copy(value) for name, value in arguments.items()}


def run_kernel(op, **arguments):
    """The kernel's outputs by name (on the GPU); `arguments` are CPU tensors and stay as they are."""
    torch.cuda.synchronize()
    found = kernels()[op](**on_device(arguments))
    torch.cuda.synchronize()
    return found


def run_both(op, reference_device="cpu", **arguments):
    """`(kernel outputs, reference outputs)`, both on the CPU, by name."""
    found = {name: tensor.cpu() for name, tensor in run_kernel(op, **arguments).items()}
    if reference_device == "cuda":
        inputs = on_device(arguments)
    else:
        copies = {id(v): v.clone() for v in arguments.values() if isinstance(v, torch.Tensor)}
        inputs = {name: copies.get(id(v), v) for name, v in arguments.items()}
    expected = {name: tensor.cpu() for name, tensor in REFERENCES[op](**inputs).items()}
    assert found.keys() == expected.keys()
    for name in expected:
        assert found[name].dtype == expected[name].dtype, name
        assert found[name].shape == expected[name].shape, name
    return found, expected


def assert_close(found, expected, *, relative, absolute=0.0):
    """NaN positions first; then the error's norm, and each element against the largest."""
    found, expected = found.double(), expected.double()
    assert torch.equal(found.isnan(), expected.isnan()), "NaN positions differ"
    found, expected = found.nan_to_num(0, 0, 0), expected.nan_to_num(0, 0, 0)
    error = found - expected
    scale = expected.norm()
    assert error.norm() <= relative * scale + absolute, f"{error.norm()} of {scale}"
    largest = expected.abs().max() if expected.numel() else 0
    worst = error.abs().max() if error.numel() else 0
    assert worst <= 16 * relative * largest + absolute, (
        f"one element is off by {worst} of {largest}"
    )


def assert_same_bytes(found, expected, *, share=0.0):
    """Bytes (codes, packed pages, indices) equal, but for `share` of them."""
    different = found.contiguous().view(torch.uint8) != expected.contiguous().view(torch.uint8)
    wrong = different.double().mean().item() if different.numel() else 0.0
    assert wrong <= share, f"{wrong:.2e} of the bytes differ; allowed {share:.2e}"


def aliased(op):
    """Names of outputs that an op writes in place."""
    return set(OPS[op].aliases)
