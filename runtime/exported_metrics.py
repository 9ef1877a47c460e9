"""What the numbers of `Metrics.snapshot()` are, and what whoever exports them to Prometheus calls them."""

from __future__ import annotations

COUNTERS = {
    "requests_accepted": "requests that were accepted",
    "requests_refused": "requests that found the queue full",
    "preemptions": "sequences that gave up their pages to be computed again",
    "prompt_tokens": "tokens of prompts that began to run",
    "cached_tokens": "prompt tokens that the prefix cache held",
    "output_tokens": "tokens that were generated",
    "steps": "steps of the engine",
}
GAUGES = {"waiting": "sequences that wait", "running": "sequences that run"}
HISTOGRAMS = {
    "step_seconds": "time of a step",
    "queue_seconds": "time from arrival to the first step",
    "ttft_seconds": "time from arrival to the first token",
}
FINISHED = "requests that ended, by reason"
PAGES = "pages of the KV pools, by pool and state"
PAGE_STATES = ("held", "cached", "free")


def exported(name: str) -> str:
    """The name in Prometheus; exporters add `_total` to counters where that is their custom."""
    return f"dsv4_{name}"
