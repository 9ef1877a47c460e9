"""The communicator of a process: who may set, hold and clear it, and how NCCL's is made and ended."""

import ctypes
import os
import subprocess
import sys
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from dsv4_trt.errors import PluginError
from dsv4_trt.plugins import communicator as communicator_module
from dsv4_trt.plugins.communicator import Communicator, load_nccl, new_unique_id
from dsv4_trt.plugins.cuda_ops import bind
from dsv4_trt.plugins.library import CommunicatorArg
from tests.plugins.fake_nccl import FakeNccl
from tests.plugins.host_library import compile_host

HERE = Path(__file__).parent
NONE = "this process has no communicator"


@pytest.fixture(scope="module")
def library(collective_library):
    return collective_library


@pytest.fixture(scope="module")
def nccl_file(tmp_path_factory):
    """A made-up NCCL, where a wheel has it."""
    root = tmp_path_factory.mktemp("site")
    folder = root / "nvidia/nccl/lib"
    folder.mkdir(parents=True)
    for package in (root / "nvidia", root / "nvidia/nccl"):
        (package / "__init__.py").write_text("")
    return compile_host(folder, "libnccl.so.2", [HERE / "lone_nccl.cpp"])


@pytest.fixture
def nccl(nccl_file, monkeypatch):
    """The made-up NCCL in place of the machine's, with two devices to be on."""
    fake = communicator_module._declare(ctypes.CDLL(str(nccl_file)))
    fake.devices = []

    @contextmanager
    def on_device(device):
        fake.devices.append(device)
        yield

    monkeypatch.setattr(communicator_module, "load_nccl", lambda: fake)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "device", on_device)
    before = counts(fake)
    yield fake
    fake.let_fail(0)
    made, destroyed, aborted = counts(fake, before)
    assert made == destroyed + aborted


def counts(nccl, before=(0, 0, 0)):
    """Communicators made, destroyed and aborted."""
    now = nccl.num_made(), nccl.num_destroyed(), nccl.num_aborted()
    return tuple(count - old for count, old in zip(now, before, strict=True))


def test_the_structure_lies_as_in_c(library):
    fields = [getattr(CommunicatorArg, name).offset for name, _ in CommunicatorArg._fields_]
    expected = (ctypes.c_int64 * (len(fields) + 1)).in_dll(library._c, "communicator_offsets")
    assert [*fields, ctypes.sizeof(CommunicatorArg)] == list(expected)


def test_there_is_one_at_a_time(library):
    first, second = FakeNccl([None] * 2, 1), FakeNccl([None])
    for _ in range(2):
        with first.given_to(library):
            for other in (first, second):
                with pytest.raises(PluginError, match=r"has a communicator, of rank 1 of 2 ranks"):
                    library.set_communicator(other.arg())
        with pytest.raises(PluginError, match=NONE):
            library.clear_communicator()


def test_it_is_not_cleared_while_something_holds_it(library):
    assert library._c.hold() == 1  # there is none yet
    library.set_communicator(FakeNccl([None]).arg())
    for holders in (1, 2):
        assert library._c.hold() == 0
        with pytest.raises(PluginError, match=rf"has {holders} user\(s\)"):
            library.clear_communicator()
    for _ in range(2):
        with pytest.raises(PluginError, match="user"):
            library.clear_communicator()
        library._c.let_go()
    library._c.let_go()  # one too many
    library.clear_communicator()
    with FakeNccl([None]).given_to(library):
        assert library._c.hold() == 0
        library._c.let_go()


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("comm", None, "one of them is null"),
        ("all_reduce", None, "one of them is null"),
        ("all_gather", None, "one of them is null"),
        ("error_string", None, "one of them is null"),
        ("rank", -1, "rank -1 of 2 ranks"),
        ("rank", 2, "rank 2 of 2 ranks"),
        ("world_size", 0, "rank 0 of 0 ranks"),
        ("device", -1, "device -1; expected 0 or more"),
    ],
)
def test_what_can_be_none_is_refused(library, field, value, message):
    fake = FakeNccl([None, None])
    arg = fake.arg()
    setattr(arg, field, value)
    with pytest.raises(PluginError, match=message):
        library.set_communicator(arg)
    with pytest.raises(PluginError, match=NONE):
        library.clear_communicator()
    assert library._c.dsv4_set_communicator(None) == 1
    assert b"no communicator was given" in library._c.dsv4_last_error()


def test_nccl_s_is_made_on_its_device_and_given_to_the_library(library, nccl):
    before = counts(nccl)
    unique_id = new_unique_id()
    assert unique_id == bytes(i % 256 for i in range(-1, 127))
    x = torch.zeros(1, 8)
    with Communicator(library, 0, 2, 3, unique_id) as group:
        assert nccl.devices == [0]
        comm = group._comm
        assert (nccl.rank_of(comm), nccl.ranks_of(comm)) == (2, 3)
        assert bytes(nccl.id_byte_of(comm, i) % 256 for i in range(128)) == unique_id
        bound = bind(library, "all_reduce", x=x, out_dtype="F32")
        with pytest.raises(PluginError, match="ncclAllReduce: told to fail"):
            library.launch(bound.call, 0, 0, 0)
    assert counts(nccl, before) == (1, 1, 0)
    with pytest.raises(PluginError, match=NONE):
        library.launch(bound.call, 0, 0, 0)
    group.close()  # again
    assert counts(nccl, before) == (1, 1, 0)


def test_an_error_inside_ends_it_at_once(library, nccl):
    """Other ranks may never come to where this one would wait for them."""
    before = counts(nccl)
    with pytest.raises(KeyError), Communicator(library, 1, 0, 2, new_unique_id()):
        raise KeyError
    assert counts(nccl, before) == (1, 0, 1)
    Communicator(library, 1, 0, 2, new_unique_id()).close()


def test_a_held_one_stays_whole(library, nccl):
    before = counts(nccl)
    group = Communicator(library, 1, 0, 2, new_unique_id())
    library._c.hold()
    with pytest.raises(PluginError, match="user"):
        group.close()
    assert counts(nccl, before) == (1, 0, 0)
    library._c.let_go()
    group.close()
    assert counts(nccl, before) == (1, 1, 0)


def test_a_second_one_is_refused_and_ended(library, nccl):
    before = counts(nccl)
    with Communicator(library, 0, 0, 2, new_unique_id()):
        with pytest.raises(PluginError, match="clear it before another is set"):
            Communicator(library, 1, 1, 2, new_unique_id())
        assert counts(nccl, before) == (2, 0, 1)
    assert counts(nccl, before) == (2, 1, 1)


def test_what_nccl_refuses_is_said(library, nccl):
    unique_id = new_unique_id()
    nccl.let_fail(3)
    with pytest.raises(PluginError, match="ncclGetUniqueId: told to fail"):
        new_unique_id()
    with pytest.raises(PluginError, match="ncclCommInitRank, rank 1 of 2: told to fail"):
        Communicator(library, 0, 1, 2, unique_id)
    with pytest.raises(PluginError, match=NONE):
        library.clear_communicator()
    nccl.let_fail(0)
    group = Communicator(library, 0, 1, 2, unique_id)
    nccl.let_fail(3)
    with pytest.raises(PluginError, match="ncclCommDestroy: told to fail"):
        group.close()
    group.close()  # it is gone


@pytest.mark.parametrize(
    ("device", "rank", "world_size", "id_bytes", "message"),
    [
        (0, 2, 2, 128, "rank 2 of 2 ranks; expected 0 or more"),
        (0, -1, 2, 128, "rank -1 of 2 ranks; expected 0 or more"),
        (0, 0, 2, 127, "a unique id of 127 bytes; expected 128"),
        (2, 0, 2, 128, "there is no CUDA device 2: torch sees 2"),
        (-1, 0, 2, 128, "there is no CUDA device -1: torch sees 2"),
    ],
)
def test_nothing_is_made_of_wrong_numbers(
    library, nccl, device, rank, world_size, id_bytes, message
):
    before = counts(nccl)
    with pytest.raises(PluginError, match=message):
        Communicator(library, device, rank, world_size, bytes(id_bytes))
    assert counts(nccl, before) == (0, 0, 0)


def run_python(code, site):
    """Output of a fresh Python that has `site` in front of its packages, and no torch."""
    path = os.pathsep.join([str(site), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_wheel_s_nccl_is_found(nccl_file):
    code = "from dsv4_trt.plugins.communicator import *; print(load_nccl()._name, *new_unique_id())"
    name, *unique_id = run_python(code, nccl_file.parents[3]).split()
    assert name == str(nccl_file)
    assert [int(byte) for byte in unique_id] == [i % 256 for i in range(-1, 127)]


def test_one_that_is_loaded_comes_first(nccl_file, tmp_path):
    """As torch's is, wherever it has it from."""
    loaded = compile_host(
        tmp_path, "libnccl.so.2", [HERE / "lone_nccl.cpp"], "-Xlinker", "-soname,libnccl.so.2"
    )
    code = (
        f"import ctypes; mine = ctypes.CDLL({str(loaded)!r}); mine.let_fail(3)\n"
        "from dsv4_trt.plugins.communicator import *\n"
        "try: new_unique_id()\n"
        "except Exception as error: print(error)"
    )
    assert run_python(code, nccl_file.parents[3]) == "ncclGetUniqueId: told to fail"


def test_without_nccl_it_is_said_what_brings_it(monkeypatch):
    monkeypatch.setattr(communicator_module, "_places", lambda: iter([("/no/libnccl.so.2", 0)]))
    load_nccl.cache_clear()
    with pytest.raises(PluginError, match=r"/no/libnccl\.so\.2.*pip install nvidia-nccl-cu13"):
        new_unique_id()


CHECK = """
#include <nccl.h>
#include <type_traits>
#include "common/abi.h"
template <class A, class B> constexpr bool same = std::is_same_v<A, B>;
static_assert(ncclSuccess == 0 && ncclFloat32 == 7 && ncclSum == 0 && NCCL_UNIQUE_ID_BYTES == 128);
static_assert(sizeof(ncclResult_t) == 4 && sizeof(ncclDataType_t) == 4 && sizeof(ncclRedOp_t) == 4);
static_assert(same<decltype(ncclAllReduce), ncclResult_t(const void*, void*, size_t, ncclDataType_t,
                                                         ncclRedOp_t, ncclComm_t, cudaStream_t)>);
static_assert(same<decltype(ncclAllGather), ncclResult_t(const void*, void*, size_t, ncclDataType_t,
                                                         ncclComm_t, cudaStream_t)>);
static_assert(same<decltype(ncclGetErrorString), const char*(ncclResult_t)>);
static_assert(same<decltype(ncclGetUniqueId), ncclResult_t(ncclUniqueId*)>);
static_assert(same<decltype(ncclCommInitRank), ncclResult_t(ncclComm_t*, int, ncclUniqueId, int)>);
static_assert(same<decltype(ncclCommDestroy), ncclResult_t(ncclComm_t)>);
static_assert(same<decltype(ncclCommAbort), ncclResult_t(ncclComm_t)>);
static_assert(same<decltype(Dsv4Communicator::all_reduce), int32_t (*)(const void*, void*, size_t,
                                                    int32_t, int32_t, void*, cudaStream_t)>);
static_assert(same<decltype(Dsv4Communicator::all_gather), int32_t (*)(const void*, void*, size_t,
                                                    int32_t, void*, cudaStream_t)>);
"""


def test_nccl_s_header_says_the_same(tmp_path):
    wheel = find_spec("nvidia.nccl") if find_spec("nvidia") else None
    folders = [Path(path, "include") for path in (wheel and wheel.submodule_search_locations) or ()]
    if not any((folder / "nccl.h").is_file() for folder in folders):
        pytest.skip("no nccl.h: a torch for CUDA brings it")
    (tmp_path / "check.cpp").write_text(CHECK)
    compile_host(tmp_path, "check.so", [tmp_path / "check.cpp"], "-I", folders[0])
