"""The picture of `dsv4-trt plan`: bytes of one sequence by cache class against its length."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsv4_trt.cli.plan_report import Report
from dsv4_trt.cli.plan_text import title, tokens
from dsv4_trt.cli.published import published
from dsv4_trt.errors import MissingDependency
from dsv4_trt.kv_layout import CacheClass

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart with any colour vision; what grows with the length is cold,
# windows are warm
COLOURS = {
    CacheClass.CSA: "#0072B2",
    CacheClass.INDEXER: "#56B4E9",
    CacheClass.HCA: "#009E73",
    CacheClass.SWA: "#E69F00",
    CacheClass.HCA_STATE: "#D55E00",
    CacheClass.CSA_STATE: "#CC79A7",
    CacheClass.INDEXER_STATE: "#F0E442",
    CacheClass.MTP_SWA: "#000000",
}


def write_plot(report: Report, output: Path) -> None:
    """Draw to `output`, a .png or .svg, which appears whole or not at all.

    Raises `ConfigError` for another suffix and `MissingDependency` without matplotlib.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise MissingDependency("matplotlib", "plot", "--plot") from error
    repeatable = matplotlib.rc_context({"svg.hashsalt": "dsv4-trt"})  # and no date: the same file
    with published("--plot", output, ".png", ".svg") as partial, repeatable:
        kind = output.suffix[1:]
        metadata = {"Date": None} if kind == "svg" else None
        figure(report).savefig(partial, format=kind, dpi=160, metadata=metadata)


def figure(report: Report) -> Figure:
    """Two panels over the same lengths: bytes of the whole sequence, and bytes for each token."""
    from matplotlib.figure import Figure  # its own canvas is Agg; pyplot would look for a screen

    found = Figure(figsize=(12, 6), layout="constrained")
    whole, each = found.subplots(1, 2)
    contexts = report["contexts"]
    lengths = [row["length"] for row in contexts]
    _bars(whole, report, [1 << 30] * len(lengths), "GiB of one sequence")
    _bars(each, report, [1024 * length for length in lengths], "KiB for each token of the sequence")
    found.suptitle(f"KV cache of one sequence on each rank: {title(report)}", fontsize=13)
    handles, labels = whole.get_legend_handles_labels()
    found.legend(
        handles[::-1], labels[::-1], loc="outside right center", frameon=False, title="cache class"
    )
    return found


def _bars(axes: Axes, report: Report, units: list[int], label: str) -> None:
    contexts = report["contexts"]
    places = list(range(len(contexts)))
    floor = [0.0] * len(contexts)
    for cache_class, colour in COLOURS.items():
        if cache_class not in contexts[0]["classes"]:
            continue
        heights = [
            row["classes"][cache_class] / unit for row, unit in zip(contexts, units, strict=True)
        ]
        style: dict[str, Any] = {
            "color": colour,
            "edgecolor": "white",
            "linewidth": 0.4,
            "label": cache_class,
        }
        axes.bar(places, heights, 0.8, floor, **style)
        floor = [below + height for below, height in zip(floor, heights, strict=True)]
    for place, top in zip(places, floor, strict=True):
        axes.annotate(
            f"{top:.2f}", (place, top), (0, 3), textcoords="offset points", ha="center", fontsize=9
        )
    axes.set_xticks(places, [tokens(row["length"]) for row in contexts])
    axes.set_xlabel("tokens of the sequence")
    axes.set_ylabel(label)
    axes.margins(x=0.02, y=0.08)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
