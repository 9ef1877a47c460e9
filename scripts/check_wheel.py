"""Checks what a wheel holds: every source file of the package and nothing beside it."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

PACKAGE = "dsv4_trt"
ROOMS = ("convert", "plugins", "builder", "runtime", "cli")


def main() -> None:
    """Exit with 1 and one line per fault of the wheel named on the command line."""
    wheel = Path(sys.argv[1])
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = {str(p) for room in ("", *ROOMS) for p in Path(PACKAGE, room).rglob("*.py")}
    expected.add(f"{PACKAGE}/py.typed")
    expected |= {str(p) for p in Path(PACKAGE, "runtime/server/web").iterdir()}
    faults = [f"missing: {name}" for name in sorted(expected - names)]
    tops = {name.split("/")[0] for name in names}
    faults += [
        f"not of the package: {top}/"
        for top in sorted(tops)
        if top != PACKAGE and not top.endswith(".dist-info")
    ]
    faults += [f"rubbish: {name}" for name in sorted(names) if name.endswith(".pyc")]
    if not any(name.endswith("/LICENSE") for name in names):
        faults.append("missing: LICENSE")
    print(f"{wheel.name}: {len(names)} files, {wheel.stat().st_size} bytes")
    print("\n".join(faults) if faults else "every room is in it, and nothing else")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
