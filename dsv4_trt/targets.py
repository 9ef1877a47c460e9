"""Which engines can be built for which GPUs, by which versions of TensorRT, and why not for others."""

from __future__ import annotations

from dataclasses import dataclass

from dsv4_trt.errors import ConfigError

ARCHITECTURES = ("sm_90a", "sm_100a", "sm_103a", "sm_120a", "sm_121a")


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRT:
    """One flavour of TensorRT that plans are built with."""

    module: str  # of its Python bindings
    package: str  # that brings them
    versions: tuple[tuple[int, int], tuple[int, int]]  # from, and up to but without
    targets: tuple[str, ...]
    refusal: str  # why not for other targets

    @property
    def supported(self) -> str:
        """The range of versions, as pip spells it."""
        low, high = (".".join(map(str, version)) for version in self.versions)
        return f">={low},<{high}"


TENSORRT = {
    "tensorrt": TensorRT(
        module="tensorrt",
        package="tensorrt-cu13",
        versions=((11, 1), (12, 0)),
        targets=ARCHITECTURES,
        refusal="",
    ),
    "tensorrt-rtx": TensorRT(
        module="tensorrt_rtx",
        package="tensorrt-rtx-cu13",
        versions=((1, 7), (1, 8)),
        targets=("sm_120a", "sm_121a"),
        refusal="TensorRT-RTX is for GeForce and RTX PRO: of the GPUs that the kernels are for it builds "
        "for compute capability 12 alone, and does not run on Hopper or on datacenter Blackwell",
    ),
}
ENGINES = ("native", *TENSORRT)


def default_target(engine: str) -> str | None:
    """What an engine is built for unless something is named; None: whatever GPU there is."""
    return TENSORRT[engine].targets[0] if engine == "tensorrt-rtx" else None


def check_target(engine: str, target: str | None) -> None:
    """Raise `ConfigError` for an unknown engine or target, or for a pair that can not be."""
    if engine not in ENGINES:
        raise ConfigError(f"engine is {engine!r}; expected one of {', '.join(ENGINES)}")
    if target is None:
        return
    if target not in ARCHITECTURES:
        raise ConfigError(f"target is {target!r}; expected one of {', '.join(ARCHITECTURES)}")
    flavour = TENSORRT.get(engine)
    if flavour is not None and target not in flavour.targets:
        raise ConfigError(
            f"engine '{engine}' can not be built for {target}: {flavour.refusal}; expected one of "
            f"{', '.join(flavour.targets)}, or --engine tensorrt or native"
        )


def check_version(engine: str, version: str) -> None:
    """Raise `ConfigError` unless this version of an engine's TensorRT is one that it was written for."""
    flavour = TENSORRT[engine]
    found = tuple(int(part) for part in version.split(".")[:2])
    low, high = flavour.versions
    if not low <= found < high:
        raise ConfigError(
            f"{flavour.module} has version {version}; engine '{engine}' needs {flavour.supported}; "
            f"install another version of {flavour.package}"
        )
