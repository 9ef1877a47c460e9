"""The picture of `dsv4-trt bench`: latencies as cumulative shares, and the load over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dsv4_trt.cli.published import published
from dsv4_trt.errors import MissingDependency

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dsv4_trt.runtime.bench.load import Run

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
SHARES = (0.5, 0.9, 0.99)  # drawn as lines to read percentiles at
BINS = 60  # of the time of the load
LATENCIES = {
    "ttft": "time to first token, ms",
    "tpot": "time per output token, ms",
    "itl": "inter-token latency, ms",
    "e2el": "end-to-end latency, ms",
}


def require_matplotlib() -> None:
    """Raise `MissingDependency` where it is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingDependency("matplotlib", "plot", "--plot") from error


def write_plot(runs: Sequence[tuple[str, Run]], title: str, output: Path) -> None:
    """Draw runs, each with its label, to a .png or .svg, which appears whole or not at all.

    Raises `ConfigError` for another suffix.
    """
    import matplotlib

    repeatable = matplotlib.rc_context({"svg.hashsalt": "dsv4-trt"})
    with published("--plot", output, ".png", ".svg") as partial, repeatable:
        kind = output.suffix[1:]
        metadata = {"Date": None} if kind == "svg" else None
        figure(runs, title).savefig(partial, format=kind, dpi=160, metadata=metadata)


def figure(runs: Sequence[tuple[str, Run]], title: str) -> Figure:
    """Four shares of requests by latency, tokens a second and running requests over time."""
    from matplotlib.figure import Figure

    from dsv4_trt.runtime.bench.series import latencies, num_running, token_rate

    found = Figure(figsize=(15, 8), layout="constrained")
    axes = found.subplots(2, 3)
    for (name, label), panel in zip(LATENCIES.items(), (*axes[0, :2], *axes[1, :2]), strict=True):
        _shares(panel, [latencies(run.records, name) for _, run in runs], label)
    rates, running = axes[0, 2], axes[1, 2]
    for (label, run), colour in zip(runs, _colours(len(runs)), strict=True):
        rates.step(*token_rate(run, BINS), where="post", color=colour, label=label)
        running.step(*num_running(run.records, run.began), where="post", color=colour, label=label)
    for panel, of in ((rates, "output tokens a second"), (running, "running requests")):
        panel.set_xlabel("seconds since the start")
        panel.set_ylabel(of)
        panel.set_ylim(bottom=0)
    for panel in axes.flat:
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(alpha=0.3)
    if len(runs) > 1:
        handles, labels = rates.get_legend_handles_labels()
        found.legend(handles, labels, loc="outside lower center", ncols=len(runs), frameon=False)
    found.suptitle(title, fontsize=13)
    return found


def _shares(axes: Axes, runs: Sequence[list[float]], label: str) -> None:
    for seconds, colour in zip(runs, _colours(len(runs)), strict=True):
        values = sorted(1e3 * value for value in seconds)
        axes.step(values, [rank / len(values) for rank in range(1, len(values) + 1)], color=colour)
    for share in SHARES:
        axes.axhline(share, color="#888888", linewidth=0.6, linestyle=":")
    axes.set_yticks([0, 0.25, *SHARES])
    axes.set_ylim(0, 1.02)
    axes.set_xlim(left=0)
    axes.set_xlabel(label)
    axes.set_ylabel("share")


def _colours(count: int) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(count)]
