"""The built kernel library as far as a machine without a GPU can use it."""

import ctypes
import json
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from dsv4_trt.dtypes import DType
from dsv4_trt.errors import PluginError
from dsv4_trt.plugins import library as library_module
from dsv4_trt.plugins.library import (
    CallArg,
    CommunicatorArg,
    FilePart,
    LaunchArg,
    Library,
    TensorArg,
    set_tensor,
)
from dsv4_trt.plugins.ops import OPS


def test_it_has_every_op(library):
    found = json.loads(library._c.dsv4_op_table())
    assert found == [op.to_json() for op in OPS.values()]


def test_another_op_table_is_refused(library, monkeypatch):
    changed = {**OPS, "add": OPS["embed"]}
    monkeypatch.setattr(library_module, "OPS", changed)
    with pytest.raises(PluginError, match=r"another version.*'add'.*plugins build"):
        Library(library.path)


def test_a_file_that_is_no_library_is_refused(tmp_path):
    path = tmp_path / "libdsv4_plugins.so"
    path.write_bytes(b"not a library")
    with pytest.raises(PluginError, match=r"can not be loaded.*plugins build"):
        Library(path)


def test_another_project_s_library_is_refused():
    other = Path(find_spec("_ctypes").origin)
    with pytest.raises(PluginError, match=r"not this version's kernel library.*plugins build"):
        Library(other)


def test_unknown_ops_give_an_error_and_no_crash(library):
    with pytest.raises(PluginError, match="no op 'nothing'"):
        library._find("nothing")
    for op in (-1, len(OPS), 1 << 30):
        call = CallArg(op, 0, None, None, None)
        size = ctypes.c_size_t()
        assert library._c.dsv4_workspace(ctypes.byref(call), ctypes.byref(size)) == 1
        assert b"not in this library" in library._c.dsv4_last_error()


def test_a_call_without_work_launches_nothing(library):
    """Zero rows need no device, so this runs where there is none."""
    call = library.call(OPS["add"], {"out_dtype": "BF16"})
    for name, dtype in (("a", DType.F32), ("b", DType.BF16)):
        set_tensor(call.inputs[name], 0, dtype, (0, 256), (256, 1))
    set_tensor(call.outputs["out"], 0, DType.BF16, (0, 256), (256, 1))
    library.launch(call, 0, 0, 0)


def test_a_copy_that_can_not_begin_says_why(library, tmp_path):
    with pytest.raises(PluginError, match=r"weights can not be opened: No such file"):
        library.copy_file(tmp_path / "weights", [], 0, 1 << 20, 1)
    (tmp_path / "weights").write_bytes(b"")
    with pytest.raises(PluginError, match=r"0 readers; expected at least one"):
        library.copy_file(tmp_path / "weights", [], 0, 1 << 20, 0)
    with pytest.raises(
        PluginError, match=r"1000 bytes of staging memory are too few for 3 readers"
    ):
        library.copy_file(tmp_path / "weights", [], 0, 1000, 3)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is present")
def test_a_launch_without_a_gpu_is_an_error(library):
    call = library.call(OPS["add"], {"out_dtype": "BF16"})
    for name, dtype in (("a", DType.F32), ("b", DType.BF16)):
        set_tensor(call.inputs[name], 4096, dtype, (1, 256), (256, 1))
    set_tensor(call.outputs["out"], 8192, DType.BF16, (1, 256), (256, 1))
    with pytest.raises(PluginError, match="op 'add'"):
        library.launch(call, 0, 0, 0)


def test_structures_have_the_sizes_of_the_c_interface():
    sizes = {TensorArg: 80, CallArg: 32, LaunchArg: 80, FilePart: 24, CommunicatorArg: 48}
    assert {structure: ctypes.sizeof(structure) for structure in sizes} == sizes
