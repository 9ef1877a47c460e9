"""Where and when a load ran: what a result without it is worth nothing."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dsv4_trt import __version__


def circumstances() -> dict[str, Any]:
    """Version, time in UTC, and the machine that this process runs on."""
    return {
        "version": __version__,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "cpu": _cpu_model() or platform.processor(),
            "cores": os.cpu_count(),
            "load_average": round(os.getloadavg()[0], 1),
            "kernel": platform.release(),
            "python": platform.python_version(),
        },
    }


def _cpu_model() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return None
    models = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(models, None)
