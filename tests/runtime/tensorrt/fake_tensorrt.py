"""The runtime part of TensorRT's Python API, on the host: names and rules are TensorRT's.

A plan is JSON that `plans.py` writes. Running it is computing its graph by the references, on memory at
the addresses that a context was told. What TensorRT would refuse, or answer with undefined behaviour, is
refused here, with a message to the logger and the return value that TensorRT gives.
"""

import enum
import json
from types import ModuleType

import torch

from dsv4_trt.graph import Graph, ValueKind
from dsv4_trt.plugins.cuda_ops import TORCH_DTYPES
from dsv4_trt.plugins.reference import REFERENCES
from dsv4_trt.runtime.native import Walk

MAGIC = "a plan of tests"


class TensorIOMode(enum.Enum):
    INPUT = 1
    OUTPUT = 2


class DataType(enum.Enum):
    FLOAT, BF16, INT32, INT8, FP8 = range(5)


class TensorLocation(enum.Enum):
    DEVICE, HOST = range(2)


class TensorFormat(enum.Enum):
    LINEAR, CHW4 = range(2)


class ExecutionContextAllocationStrategy(enum.Enum):
    STATIC, ON_PROFILE_CHANGE, USER_MANAGED = range(3)


class DynamicShapesKernelSpecializationStrategy(enum.Enum):
    LAZY, EAGER, NONE = range(3)


class Severity(enum.Enum):
    INTERNAL_ERROR, ERROR, WARNING, INFO, VERBOSE = range(5)


class ILogger:
    Severity = Severity

    def log(self, severity, msg):
        raise NotImplementedError


class Dims(tuple):
    """A shape."""


class IPluginRegistry:
    def __init__(self, module):
        self._module = module
        self._libraries = []

    def load_library(self, plugin_path):
        if plugin_path in self._libraries:
            self._module.error(f"plugins of {plugin_path} are already registered")
            return None
        if plugin_path not in self._module.plugin_libraries:
            self._module.error(f"Unable to load library: {plugin_path}")
            return None
        self._libraries.append(plugin_path)
        return object()


class IRuntimeConfig:
    def __init__(self):
        self._strategy = ExecutionContextAllocationStrategy.STATIC
        self._cache = None
        self.dynamic_shapes_kernel_specialization_strategy = (
            DynamicShapesKernelSpecializationStrategy.LAZY
        )

    def set_execution_context_allocation_strategy(self, strategy):
        self._strategy = strategy

    def create_runtime_cache(self):
        return object()

    def set_runtime_cache(self, cache):
        self._cache = cache
        return True


class Runtime:
    def __init__(self, logger):
        assert isinstance(logger, ILogger), f"{logger} is no logger"
        self._module = logger.module
        self._module.loggers.append(logger)
        if self._module.is_broken:
            self._module.error("CUDA initialization failure with error: 35")
            raise TypeError("pybind11::init(): factory function returned nullptr")
        self.engine_host_code_allowed = False

    def deserialize_cuda_engine(self, serialized_engine):
        module = self._module
        try:
            plan = json.loads(serialized_engine)
        except ValueError:
            return module.error("Magic tag does not match")
        if plan["magic"] != MAGIC or plan["version"] != module.__version__:
            return module.error(
                "The engine plan file is not compatible with this version of TensorRT"
            )
        if plan["host_code"] and not self.engine_host_code_allowed:
            return module.error("The plan holds host code, which is not allowed")
        if not module.registry._libraries:
            return module.error(
                "Plugin not found, are the plugin name, version, and namespace correct?"
            )
        return ICudaEngine(module, plan)


class ICudaEngine:
    def __init__(self, module, plan):
        self._module = module
        self._plan = plan
        self._graph = Graph.from_json(plan["graph"])
        self._tensors = plan["tensors"]
        self._profiles = plan["profiles"]

    @property
    def num_io_tensors(self):
        return len(self._tensors)

    @property
    def num_optimization_profiles(self):
        return len(self._profiles)

    @property
    def num_aux_streams(self):
        return self._plan["num_aux_streams"]

    def get_tensor_name(self, index):
        return [*self._tensors][index]

    def get_tensor_mode(self, name):
        return TensorIOMode[self._tensors[name]["mode"]]

    def get_tensor_dtype(self, name):
        return DataType[self._tensors[name]["dtype"]]

    def get_tensor_location(self, name):
        return TensorLocation[self._tensors[name]["location"]]

    def get_tensor_format(self, name):
        return TensorFormat[self._tensors[name]["format"]]

    def get_tensor_shape(self, name):
        return Dims(-1 if isinstance(d, str) else d for d in self._tensors[name]["shape"])

    def get_tensor_profile_shape(self, name, profile_index):
        sizes = self._profiles[profile_index]
        ranges = [sizes[d] if isinstance(d, str) else [d] * 3 for d in self._tensors[name]["shape"]]
        return [Dims(found[i] for found in ranges) for i in range(3)]

    def get_aliased_input_tensor(self, name):
        return self._tensors[name]["aliased"]

    def get_device_memory_size_for_profile_v2(self, profile_index):
        return self._plan["memory"][profile_index]

    def create_runtime_config(self):
        return IRuntimeConfig()

    def create_execution_context(self, strategy):
        """`strategy` is a strategy or, of TensorRT-RTX, a runtime configuration."""
        config = strategy
        if isinstance(config, IRuntimeConfig):
            strategy = config._strategy
            lazy = DynamicShapesKernelSpecializationStrategy.LAZY
            assert config.dynamic_shapes_kernel_specialization_strategy is not lazy
        assert strategy is ExecutionContextAllocationStrategy.USER_MANAGED
        if self._module.is_out_of_memory:
            return self._module.error("Out of memory")
        return IExecutionContext(self._module, self)


class IExecutionContext:
    """One set of shapes and addresses; `calls` counts the setters that were called, by name and tensor."""

    def __init__(self, module, engine):
        self._module = module
        self._engine = engine
        self._profile = None
        self._shapes, self._addresses = {}, {}
        self._memory = (0, 0)
        self._streams = None
        self._is_ready = False  # to be captured: it ran as it is
        self.calls = {}
        module.contexts.append(self)

    def set_optimization_profile_async(self, profile_index, stream_handle):
        self._change("set_optimization_profile_async", profile_index)
        if not 0 <= profile_index < self._engine.num_optimization_profiles:
            return self._fail(f"there is no profile {profile_index}")
        self._profile = profile_index
        self._shapes.clear()
        self._profile_stream = stream_handle
        return True

    def set_aux_streams(self, aux_streams):
        self._change("set_aux_streams", "")
        assert len({*aux_streams}) == len(aux_streams)
        assert 0 not in aux_streams, "a default stream"
        self._streams = [*aux_streams]

    def set_device_memory(self, memory, size):
        self._change("set_device_memory", "")
        self._memory = (memory, size)

    def set_input_shape(self, name, shape):
        self._change("set_input_shape", name)
        tensor = self._engine._tensors.get(name)
        if tensor is None or tensor["mode"] != "INPUT":
            return self._fail(f"'{name}' is no input")
        if self._profile is None:
            return self._fail("no profile is chosen")
        least, _, most = self._engine.get_tensor_profile_shape(name, self._profile)
        fits = len(shape) == len(least) and all(
            low <= found <= high for low, found, high in zip(least, shape, most, strict=True)
        )
        if not fits:
            return self._fail(f"Static dimension mismatch: {name} {shape}, {least} to {most}")
        self._shapes[name] = tuple(shape)
        return True

    def set_tensor_address(self, name, memory):
        self._change("set_tensor_address", name)
        if name not in self._engine._tensors:
            return self._fail(f"'{name}' is no input or output")
        if memory % 256:
            return self._fail(f"the address {memory:#x} of {name} is not at 256 bytes")
        self._addresses[name] = memory
        return True

    def execute_async_v3(self, stream_handle):
        module, problem = self._module, self._problem(stream_handle)
        if problem is not None:
            return self._fail(problem)
        run = _Run(self)
        if module.gpu.captured is None:
            run()
            self._is_ready = True
        elif self._is_ready:
            module.gpu.captured.append(run)
        else:
            return self._fail("captured without a run since shapes, addresses or memory changed")
        return True

    def _problem(self, stream):
        """What TensorRT would refuse a run for."""
        engine, module = self._engine, self._module
        if module.fails_to_run:
            return module.fails_to_run
        if not stream or stream != self._profile_stream:
            return "the profile was chosen on another stream, or this is the default one"
        dynamic = [n for n, t in engine._tensors.items() if t["mode"] == "INPUT" and _is_sized(t)]
        for name in dynamic:
            if name not in self._shapes:
                return f"input {name} has no shape"
        for name in engine._tensors:
            if not self._addresses.get(name):
                return f"{name} has no address"
        sizes = {}
        for name in dynamic:
            for dim, found in zip(engine._tensors[name]["shape"], self._shapes[name], strict=True):
                if isinstance(dim, str) and sizes.setdefault(dim, found) != found:
                    return f"dimension {dim} of {name} is {found}, elsewhere {sizes[dim]}"
        needed = max(engine._plan["memory"])  # documents differ on whether the profile's is enough
        address, size = self._memory
        if size < needed or address % 256 or not module.gpu.memory.holds(address, size):
            return f"{size} bytes of device memory at {address:#x}, of {needed}"
        return None

    def _change(self, call, what):
        assert self._module.gpu.captured is None, f"{call} while a graph is captured"
        self.calls[call, what] = self.calls.get((call, what), 0) + 1
        self._is_ready = False

    def _fail(self, message):
        self._module.error(message)
        return False


class _Run:
    """A step with the shapes and addresses of now: what a captured graph keeps."""

    def __init__(self, context):
        engine = self.engine = context._engine
        self.memory = engine._module.gpu.memory
        self.scratch = context._memory
        self.inputs = {
            name: (address, context._shapes.get(name) or tuple(engine._tensors[name]["shape"]))
            for name, address in context._addresses.items()
            if engine._tensors[name]["mode"] == "INPUT"
        }
        self.outputs = {n: a for n, a in context._addresses.items() if n not in self.inputs}

    def __call__(self):
        graph = self.engine._graph
        environment = {}
        for value in graph.values.values():
            if value.kind is not ValueKind.ACTIVATION:
                environment[value.name] = self._input(value)
        address, size = self.scratch
        if size:
            self.memory.at(address, torch.int8, (size,)).fill_(0x5A)  # activations lie here
        found = Walk(graph, REFERENCES).run([environment], {})
        for role, name in graph.outputs.items():
            target = self.memory.at(self.outputs[name], found[role].dtype, found[role].shape)
            target.copy_(found[role])

    def _input(self, value):
        dtype = TORCH_DTYPES[value.dtype]
        if value.name not in self.inputs:  # dropped: its values change nothing
            return torch.zeros([dim for dim in value.shape if isinstance(dim, int)], dtype=dtype)
        address, shape = self.inputs[value.name]
        tensor = self.memory.at(address, dtype, shape)
        # [rows, pages, layers] in memory, [layers, rows, pages] to ops
        return tensor.permute(2, 0, 1) if value.name.startswith("block_table.") else tensor


def _is_sized(tensor):
    return any(isinstance(dim, str) for dim in tensor["shape"])


class FakeTensorRT(ModuleType):
    """The module; the attributes that no TensorRT has are what tests look at and set."""

    def __init__(self, gpu, name="tensorrt", version="11.1.0.106"):
        super().__init__(name)
        self.__version__ = version
        self.gpu = gpu
        self.contexts, self.loggers = [], []
        self.plugin_libraries = set()  # paths that hold plugins
        self.registry = IPluginRegistry(self)
        self.is_broken = self.is_out_of_memory = False
        self.fails_to_run = ""
        module = self

        class Logger(ILogger):
            def __init__(self):
                self.module = module

        self.ILogger = Logger
        for api in (
            TensorIOMode,
            DataType,
            TensorLocation,
            TensorFormat,
            ExecutionContextAllocationStrategy,
            DynamicShapesKernelSpecializationStrategy,
            Runtime,
        ):
            setattr(self, api.__name__, api)

    def get_plugin_registry(self):
        return self.registry

    def error(self, message):
        """Log an error, as TensorRT does before it returns nothing."""
        for logger in self.loggers[:1]:
            logger.log(Severity.ERROR, message)
