"""What a conversion would write, from config, index and headers alone."""

from __future__ import annotations

from dataclasses import dataclass

from dsv4_trt.contract import rank_file
from dsv4_trt.convert.conversion import Conversion
from dsv4_trt.convert.disk_space import free_bytes, peak_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """Sizes in bytes."""

    source_files: int
    source_bytes: int
    source_tensors: int
    expert_dtype: str  # of the source
    scale_dtype: str  # of the source
    rank_files: dict[str, int]
    rank_tensors: int  # of each rank
    copied: tuple[str, ...]  # files that go along as they are
    total_bytes: int  # of all rank files
    peak_bytes: int  # on the disk of output_dir while converting, beside the source
    free_bytes: int  # on that disk

    @property
    def fits(self) -> bool:
        """Whether the disk has room."""
        return self.peak_bytes <= self.free_bytes


def dry_run(conversion: Conversion) -> DryRun:
    """Add up what `conversion` would do; nothing is written."""
    source, layout = conversion.source, conversion.plan.layout
    return DryRun(
        source_files=len(source.shards),
        source_bytes=source.nbytes,
        source_tensors=len(source.tensors),
        expert_dtype=layout.expert_dtype,
        scale_dtype=str(layout.scale_dtype),
        rank_files={rank_file(rank): each.nbytes for rank, each in enumerate(conversion.layouts)},
        rank_tensors=len(conversion.layouts[0].tensors),
        copied=tuple(path.name for path in conversion.copied),
        total_bytes=conversion.nbytes,
        peak_bytes=peak_bytes(conversion),
        free_bytes=free_bytes(conversion.options.output_dir.absolute()),
    )
