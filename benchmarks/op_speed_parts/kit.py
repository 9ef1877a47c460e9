"""Finds other people's kernels: installed packages, and a folder named by DSV4_PEERS.

The folder holds `so/` (libraries that register torch ops), `py/` (sources: CUDA headers of SGLang and
FlashInfer, single files of vLLM) and `prebuilt/` (the CUDA sources compiled, by
`python benchmarks/op_speed.py --build-peer NAME`). `Missing` says what is not there.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import types
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch


class Missing(Exception):
    """A peer that is not on this machine."""


@dataclass(frozen=True, slots=True)
class Source:
    """A module to compile: the header (or file) to include and what to export from it."""

    include: str
    exports: tuple[tuple[str, str], ...] = ()
    flags: tuple[str, ...] = ()


_COMPRESS = "FlashCompress4Kernel<512, fp32_t, fp32_t, fp32_t, true>"
_V4 = "deepseek_v4/"
SOURCES = {
    "main_norm_rope": Source(
        _V4 + "main_norm_rope.cuh",
        (
            ("q", "FusedQNormRopeKernel<bf16_t, 512, 64, true>::forward"),
            ("kv", "FusedKNormRopeFlashMLAKernel<bf16_t, 512, 64, 256, true>::forward"),
            ("index_fp8", "FusedQIndexerRopeHadamardQuantKernel<bf16_t, true>::forward"),
            ("index_fp4", "FusedQIndexerRopeHadamardFp4QuantKernel<bf16_t, true>::forward"),
        ),
    ),
    "rope": Source(_V4 + "rope.cuh", (("forward", "FusedQKRopeKernel<true>::forward"),)),
    "wo_a_quant": Source(
        _V4 + "fp8_wo_a_group_major_quant.cuh",
        (("run", "FP8WoAGroupMajorQuantUE8M0Kernel<bf16_t, true>::run"),),
        ("--use_fast_math",),
    ),
    "compress": Source(
        _V4 + "c4_v2.cuh",
        (("decode", f"{_COMPRESS}::run_decode"), ("prefill", f"{_COMPRESS}::run_prefill")),
        ("-use_fast_math",),
    ),
    "norm_rope": Source(
        _V4 + "fused_norm_rope_v2.cuh",
        (("forward", "FusedNormRopeKernel<fp32_t, 512, 64, 64, true, 0, false>::forward"),),
    ),
    "topk": Source(
        _V4 + "topk_v2.cuh",
        (("transform", "TopKKernel::transform"), ("plan", "TopKKernel::plan")),
    ),
    "mhc_post": Source("mhc_post.cu", flags=("-use_fast_math", "-DNDEBUG")),
    "mhc_pre": Source("mhc_pre_big_fuse.cu", flags=("-use_fast_math", "-DNDEBUG")),
}


def folder() -> Path:
    named = os.environ.get("DSV4_PEERS")
    if not named or not Path(named).is_dir():
        raise Missing("DSV4_PEERS names no folder")
    return Path(named)


def package(name: str) -> Any:
    """An installed package."""
    try:
        return importlib.import_module(name)
    except (ImportError, OSError) as error:
        raise Missing(f"{name} can not be imported: {error}") from error


@cache
def torch_ops(extension: str, library: str) -> Any:
    """Ops that an installed extension module, else a library under `so/`, registers with torch."""
    namespace = extension.rpartition(".")[2]
    try:
        importlib.import_module(extension)
    except (ImportError, OSError):
        path = folder() / "so" / library
        if not path.is_file():
            raise Missing(f"neither {extension} nor {path} is there") from None
        torch.ops.load_library(str(path))
    return getattr(torch.ops, namespace)


@cache
def module(name: str) -> Any:
    """One of `SOURCES`, compiled if it is not yet; its exports by name."""
    tvm_ffi = package("tvm_ffi")
    built = folder() / "prebuilt" / f"{name}.so"
    return tvm_ffi.load_module(str(built) if built.is_file() else build(name))


def build(name: str) -> str:
    """Compile one of `SOURCES` into `prebuilt/`; no GPU is needed. Returns the library's path."""
    cpp = package("tvm_ffi.cpp")
    source, py, target = SOURCES[name], folder() / "py", folder() / "prebuilt"
    target.mkdir(exist_ok=True)
    os.environ.setdefault("TVM_FFI_CUDA_ARCH_LIST", "9.0a")
    include = ("sglang_jit/include", "sglang_jit/csrc", "flashinfer_mhc", "flashinfer_mhc/include")
    exports = [f"TVM_FFI_DLL_EXPORT_TYPED_FUNC({alias}, ({of}));" for alias, of in source.exports]
    common = ["-std=c++20", "-O3"]
    made = cpp.build_inline(
        name,
        cuda_sources="\n".join([f'#include "{source.include}"', *exports]),
        extra_cflags=common,
        extra_cuda_cflags=[
            *common,
            "--expt-relaxed-constexpr",
            "-DSGL_CUDA_ARCH=900",
            *source.flags,
        ],
        extra_include_paths=[str((py / part).resolve()) for part in include],
        build_directory=str(target / f"{name}.build"),
    )
    library = target / f"{name}.so"
    partial = target / f"{name}.so.part"
    partial.write_bytes(Path(made).read_bytes())
    partial.replace(library)
    return str(library)


@cache
def vllm_inverse_rope() -> Any:
    """VLLM's triton kernel: of an installed vLLM, else its one file with stand-ins for what it imports."""
    try:
        from vllm.models.deepseek_v4.common.ops import fused_inv_rope_fp8_quant as installed

        return getattr(installed, "fused_inv_rope_fp8_quant", installed)
    except ImportError:
        pass
    path = folder() / "py" / "vllm_ops" / "fused_inv_rope_fp8_quant.py"
    if not path.is_file():
        raise Missing(f"{path} is not there")
    _stand_ins()
    spec = importlib.util.spec_from_file_location("vllm.fused_inv_rope_fp8_quant", path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded.fused_inv_rope_fp8_quant


def _stand_ins() -> None:
    import triton
    import triton.language as tl

    ops = torch.library.Library("vllm", "FRAGMENT")

    def register(
        op_name: str, op_func: Any, fake_impl: Any = None, mutates_args: Any = (), **_: Any
    ) -> None:
        schema = torch.library.infer_schema(op_func, mutates_args=list(mutates_args))
        ops.define(op_name + schema)
        ops.impl(op_name, op_func, "CUDA")

    def aligned(size: int, item: int) -> int:
        return -(-size * item // 16) * 16 // item

    hopper = types.SimpleNamespace(
        is_arch_support_pdl=lambda: True, is_cuda=lambda: True, is_cuda_alike=lambda: True
    )
    parts: dict[str, dict[str, Any]] = {
        "vllm": {},
        "vllm.utils": {},
        "vllm.platforms": {"current_platform": hopper},
        "vllm.triton_utils": {"tl": tl, "triton": triton},
        "vllm.utils.torch_utils": {"direct_register_custom_op": register},
        "vllm.utils.deep_gemm": {"get_tma_aligned_size": aligned},
    }
    for name, members in parts.items():
        stand_in = types.ModuleType(name)
        stand_in.__path__ = []  # type: ignore[attr-defined]
        stand_in.__dict__.update(members)
        sys.modules[name] = stand_in
