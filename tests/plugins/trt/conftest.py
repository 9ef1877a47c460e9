"""The library with TensorRT plugins, and the harness that stands in for TensorRT.

Both are in the cache after `dsv4-trt plugins build --tensorrt_include DIR`; or `DSV4_PLUGIN_LIBRARY` names
the library, and the harness lies beside it.
"""

import pytest

from dsv4_trt.plugins.library import load_library
from dsv4_trt.plugins.library_build import HARNESS_FILE, SOURCES, find_library
from dsv4_trt.plugins.plugin_harness import Harness
from dsv4_trt.plugins.schema_header import schema_header
from dsv4_trt.plugins.tensorrt_headers import headers_in_environment
from tests.plugins.host_library import HERE, compile_host


@pytest.fixture(scope="session")
def plugin_library():
    path = find_library("sm_90a", plugins=True)
    if path is None:
        pytest.skip("no library with TensorRT plugins is built; `plugins build --tensorrt_include`")
    if not load_library(path).tensorrt_version:
        pytest.skip(f"{path} has no TensorRT plugins")
    return path


@pytest.fixture(scope="session")
def library(plugin_library):
    """The library as the native engine has it; plans are for sm_120a while this is in use."""
    found = load_library(plugin_library)
    found.plan_for(120)
    yield found
    found.plan_for(0)


@pytest.fixture(scope="session")
def harness(plugin_library):
    if not plugin_library.with_name(HARNESS_FILE).is_file():
        pytest.skip(f"there is no {HARNESS_FILE} beside {plugin_library}")
    return Harness(plugin_library)


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    """Harness and library, with ops of the host's memory that keep their calls; compiled for this."""
    include = headers_in_environment()
    if include is None:
        pytest.skip("TENSORRT_INCLUDE_DIR names no headers of TensorRT")
    folder = tmp_path_factory.mktemp("recording")
    (folder / "op_schema.h").write_text(schema_header())
    csrc = SOURCES / "csrc"
    files = [
        *csrc.glob("common/*.cpp"),
        *csrc.glob("trt/*.cpp"),
        csrc / "collective/communicator.cpp",
    ]
    files += [HERE / "late_cudart.cpp", HERE / "trt/recording_ops.cpp"]
    headers = ["-isystem", str(include)]
    version = r"-DDSV4_TENSORRT_VERSION=\"recording\""  # nvcc hands it to a shell
    path = compile_host(folder, "library.so", files, *headers, "-DDSV4_HAS_TENSORRT", version)
    harness = compile_host(folder, "harness.so", SOURCES.glob("harness/*.cpp"), *headers)
    return Harness(path, harness), load_library(path)


@pytest.fixture
def create(harness):
    """`create(op, fields, phase)`; the plugins are destroyed after the test."""
    made = []

    def create(*arguments):
        made.append(harness.create(*arguments))
        return made[-1]

    yield create
    for plugin in made:
        plugin.close()
    harness.messages()
