"""The kernel library: what the cache has, and its host side alone, compiled once for all that need it."""

import pytest

from dsv4_trt.plugins.library import load_library
from dsv4_trt.plugins.library_build import find_library
from tests.plugins.host_library import host_library


@pytest.fixture(scope="session")
def library():
    path = find_library("sm_90a")
    if path is None:
        pytest.skip("no kernel library is built; `dsv4-trt plugins build --arch sm_90a` builds it")
    return load_library(path)


@pytest.fixture(scope="session")
def collective_library(tmp_path_factory):
    """With the collectives, on the host's memory."""
    library = host_library(
        tmp_path_factory.mktemp("library"), ["collective/launch.cu"], ["host_collectives.cpp"]
    )
    library._ops = {name: library._find(name) for name in ("all_reduce", "all_gather")}
    return library
