"""With `DSV4_PLUGIN_HARNESS=1` a run ends with how many calls were compared with their plugins."""

import os
from collections import Counter

import pytest

from tests.plugins.trt.through_harness import ran

WORKERS = Counter()  # what other processes of the run have compared


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["plugins_ran"] = dict(ran)


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_testnodedown(node):
    WORKERS.update(getattr(node, "workeroutput", {}).get("plugins_ran", {}))


def pytest_terminal_summary(terminalreporter):
    if os.environ.get("DSV4_PLUGIN_HARNESS") == "1":
        found = sorted((WORKERS + Counter(ran)).items())
        calls = ", ".join(f"{op} {count}" for op, count in found)
        terminalreporter.write_line(f"plugins equal to their ops: {calls or 'none was run'}")
