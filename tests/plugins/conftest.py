"""The kernel library's host side, compiled once for all that need it."""

import pytest

from tests.plugins.host_library import host_library


@pytest.fixture(scope="session")
def collective_library(tmp_path_factory):
    """With the collectives, on the host's memory."""
    library = host_library(
        tmp_path_factory.mktemp("library"), ["collective/launch.cu"], ["host_collectives.cpp"]
    )
    library._ops = {name: library._find(name) for name in ("all_reduce", "all_gather")}
    return library
