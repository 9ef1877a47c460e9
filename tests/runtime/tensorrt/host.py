"""A GPU, a kernel library and TensorRT on the host, for tests of the engine of plans."""

import ctypes
from contextlib import nullcontext
from pathlib import Path

import torch

from dsv4_trt.kv_plan import plan_for_sequences
from dsv4_trt.plugins.library import Call, Library
from dsv4_trt.runtime import open as runtime_open
from dsv4_trt.runtime.bundle import open_bundle
from dsv4_trt.runtime.cuda import network as network_module
from dsv4_trt.runtime.tensorrt import bindings
from dsv4_trt.runtime.tensorrt.engine import TensorRTEngine
from tests.runtime.cuda.host_gpu import Stream, install_driver, read
from tests.runtime.tensorrt.fake_tensorrt import FakeTensorRT
from tests.runtime.tensorrt.host_memory import HostMemory
from tests.runtime.tensorrt.plans import TARGET

CPU = torch.device("cpu")


class Gpu:
    """Streams on which everything has run when a call returns, graphs that are lists of runs."""

    def __init__(self):
        self.memory = HostMemory()
        self.captured = None
        self.num_replays = 0

    def install(self, monkeypatch):
        memory = self.memory
        monkeypatch.setattr(torch, "empty", memory.empty)
        monkeypatch.setattr(torch.Tensor, "new_empty", lambda t, *s: memory.new_empty(t, *s))
        monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
        monkeypatch.setattr(network_module, "StepInputs", self.inputs)
        install_driver(self, Stream(), monkeypatch)

    def end_capture(self, stream):
        graph, self.captured = self.captured, None
        return graph

    def launch_graph(self, graph, stream):
        assert graph, "a graph of nothing, or one that was destroyed"
        self.num_replays += 1
        for run in graph:
            run()

    def inputs(self, capacity, device):
        return _Inputs(self.memory.empty(capacity, dtype=torch.int32))


class _Inputs:
    """`StepInputs` without its copies."""

    def __init__(self, memory):
        self.memory = memory

    def address(self, offset):
        return self.memory.data_ptr() + 4 * offset

    def upload(self, arrays, offsets, stream):
        for name, array in arrays.items():
            self.memory[offsets[name] : offsets[name] + array.size] = torch.from_numpy(array)


class FakeLibrary:
    """What engines need of the kernel library but its kernels."""

    def __init__(self, path="libdsv4_plugins.so", tensorrt_version="11.1.0"):
        self.path = Path(path)
        self.tensorrt_version = tensorrt_version
        self.workspaces = {}  # bytes by op

    def call(self, op, attrs):
        return Call(self, op, 0, attrs)

    def workspace_bound(self, largest, capability=0):
        return self.workspaces.get(largest.op.name, 0)

    check_plugins = Library.check_plugins

    def scatter(self, target, places, values, count, stream):
        ids = read(values, (count,))
        for place, number in zip(read(places, (count,)), ids, strict=True):
            ctypes.c_int32.from_address(target + 4 * int(place)).value = int(number)

    def copy_file(self, path, parts, staging, staging_bytes, readers):
        with path.open("rb") as file:
            for part in parts:
                file.seek(part.start)
                data = file.read(part.bytes)
                ctypes.memmove(part.target, data, len(data))


class Host:
    """All of it, installed; `trt` is what `import tensorrt` gives."""

    def __init__(self, monkeypatch, engine="tensorrt"):
        self.gpu = Gpu()
        self.gpu.install(monkeypatch)
        rtx = engine == "tensorrt-rtx"
        name, version = ("tensorrt_rtx", "1.7.1.116") if rtx else ("tensorrt", "11.1.0.106")
        self.trt = FakeTensorRT(self.gpu, name, version)
        self.library = FakeLibrary()
        self.trt.plugin_libraries.add(str(self.library.path))
        bindings.load_bindings.cache_clear()
        monkeypatch.setattr(bindings, "import_module", lambda module: {name: self.trt}[module])
        monkeypatch.setattr(runtime_open, "device_architecture", lambda: TARGET)

    def open(self, path, lens=(300, 300, 300, 300), **options):
        """The engine of a bundle with plans."""
        bundle = open_bundle(path)
        pools = plan_for_sequences(bundle.layout, list(lens))
        return TensorRTEngine(bundle, pools, self.library, CPU, **options)
