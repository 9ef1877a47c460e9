"""Opens the engine of a bundle on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsv4_trt.errors import BundleMismatch, ConfigError
from dsv4_trt.runtime.engine import Engine

if TYPE_CHECKING:
    from dsv4_trt.kv_plan import KvPlan
    from dsv4_trt.runtime.bundle import Bundle

DEVICES = ("cpu", "cuda", "auto")


def open_engine(bundle: Bundle, plan: KvPlan, *, device: str = "auto") -> Engine:
    """The engine of an opened bundle, with pools as planned."""
    if device_for(bundle, device) == "cpu":
        from dsv4_trt.runtime.native import NativeEngine

        return NativeEngine(bundle, plan)
    if bundle.record is None:
        from dsv4_trt.runtime.cuda.open import open_cuda_engine

        return open_cuda_engine(bundle, plan)
    from dsv4_trt.runtime.tensorrt.open import open_tensorrt_engine

    return open_tensorrt_engine(bundle, plan)


def device_for(bundle: Bundle, device: str) -> str:
    """`resolve_device` for a bundle: an error, too, where it can not run on that device."""
    check_runnable(bundle)
    found = resolve_device(device)
    if found == "cuda":
        check_one_rank(bundle)
        check_gpu(bundle)
    elif bundle.record is not None:
        raise ConfigError(
            f"the bundle {bundle.path} is built for engine '{bundle.build.engine}', and plans run on a "
            f"GPU of {bundle.record.target}; build with --engine native to run on a CPU"
        )
    return found


def check_runnable(bundle: Bundle) -> None:
    """Raise `BundleMismatch` for plans of twins, which run nowhere."""
    if bundle.record is not None and not bundle.record.is_runnable:
        raise BundleMismatch(
            f"the plans of {bundle.path} were built without the plugin library, to check that the network "
            "builds, and can not run; compile the library with TensorRT's headers and build the bundle "
            f"again: dsv4-trt plugins build --arch {bundle.record.target} --tensorrt_include DIR"
        )


def check_gpu(bundle: Bundle) -> None:
    """Raise `BundleMismatch` for plans of another GPU than this machine's."""
    found = device_architecture()
    if bundle.record is not None and found != bundle.record.target:
        raise BundleMismatch(
            f"the plans of {bundle.path} are for {bundle.record.target}, this machine's GPU is {found}; "
            f"build for it with --target {found}, or with --engine native"
        )


def check_one_rank(bundle: Bundle) -> None:
    """Raise `ConfigError` for a bundle of several ranks: they run on a CPU only, and plans nowhere."""
    if bundle.mapping.world_size > 1:
        elsewhere = "use --device cpu, or " if bundle.record is None else ""
        raise ConfigError(
            f"the bundle {bundle.path} has {bundle.mapping.world_size} ranks; this version runs "
            f"one rank on a GPU: {elsewhere}convert with --tp_size 1"
        )


def resolve_device(device: str) -> str:
    """`auto` is the GPU where there is one; asking for a GPU that is not there is an error."""
    import torch

    if device not in DEVICES:
        raise ConfigError(f"device '{device}' is unknown; expected one of {', '.join(DEVICES)}")
    present = torch.cuda.is_available()
    if device == "auto":
        return "cuda" if present else "cpu"
    if device == "cuda" and not present:
        raise ConfigError(
            f"torch {torch.__version__} sees no CUDA device; use --device cpu, or run "
            "`dsv4-trt doctor` to see why"
        )
    return device


def device_architecture() -> str | None:
    """The first GPU's architecture as nvcc names it, with what only it has: "sm_90a"."""
    import torch

    if not torch.cuda.is_available():
        return None
    major, minor = torch.cuda.get_device_capability(0)
    return f"sm_{major}{minor}a"
