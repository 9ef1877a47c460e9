"""A deserialised plan: its inputs and outputs, the memory it takes, and which profile holds a step."""

from __future__ import annotations

from typing import Any

from dsv4_trt.errors import BundleMismatch, CapacityError, EngineFault
from dsv4_trt.graph import Dim, Graph
from dsv4_trt.plan_record import BuildRecord, PlanRecord, PlanTensor, Profile
from dsv4_trt.plugins.library import Library
from dsv4_trt.runtime.bundle import Bundle
from dsv4_trt.runtime.cuda.step_size import StepSize
from dsv4_trt.runtime.open import check_gpu, check_runnable
from dsv4_trt.runtime.tensorrt.bindings import Bindings, load_bindings, register_plugins
from dsv4_trt.runtime.tensorrt.contract_check import check_contract
from dsv4_trt.runtime.tensorrt.workspace_check import check_workspaces

_REMEDIES = {
    "num_tokens": "build with a larger --max_num_tokens",
    "num_logits": "build with a larger --max_num_tokens",
    "num_seqs": "build with a larger --max_batch_size",
    "num_seqs_plus_1": "build with a larger --max_batch_size",
    "num_decodes": "build with a larger --max_batch_size",
    "num_table_rows": "build with a larger --max_batch_size",
    "pages": "build with a larger --max_seq_len",
    "num_pages": "plan smaller pools",
}


class Plan:
    """One graph's plan in TensorRT; contexts made of it keep it alive."""

    def __init__(self, bindings: Bindings, engine: Any, record: PlanRecord) -> None:
        self.record = record
        self._bindings = bindings
        self._engine = engine
        self._kernels: Any = None  # that TensorRT-RTX has compiled for contexts so far
        self.inputs: dict[str, PlanTensor] = {tensor.name: tensor for tensor in record.inputs}
        self.names = {tensor.name for tensor in (*record.inputs, *record.outputs)}
        profiles = range(len(record.profiles))
        # activations of any step: a context may ask for that of the largest profile, whatever its own
        self.arena_bytes: int = max(map(engine.get_device_memory_size_for_profile_v2, profiles))

    def new_context(self) -> Any:
        """An execution context whose activation memory is the caller's."""
        context = self._engine.create_execution_context(self._context_config())
        self.check(context is not None, "make an execution context")
        return context

    def check(self, succeeded: bool, what: str) -> None:
        """Raise `EngineFault` with what TensorRT says, unless it could do `what`."""
        if not succeeded:
            raise EngineFault(
                f"TensorRT can not {what} of graph '{self.record.graph}': "
                f"{self._bindings.log.take_errors()}"
            )

    def _context_config(self) -> Any:
        """What a context is made with: activation memory is ours.

        TensorRT-RTX compiles what is not a plugin on the user's GPU. Of that, one kernel for all shapes and
        all contexts: no step waits for a compiler, or changes its numbers when one is done.
        """
        trt = self._bindings.trt
        strategy = trt.ExecutionContextAllocationStrategy.USER_MANAGED
        if self._bindings.engine != "tensorrt-rtx":
            return strategy
        config = self._engine.create_runtime_config()
        config.set_execution_context_allocation_strategy(strategy)
        specialization = trt.DynamicShapesKernelSpecializationStrategy
        config.dynamic_shapes_kernel_specialization_strategy = specialization.NONE
        if self._kernels is None:
            self._kernels = config.create_runtime_cache()
        config.set_runtime_cache(self._kernels)
        return config

    def profile_of(self, size: StepSize) -> int:
        """The first profile that holds a step of this size; raises `CapacityError` if none does."""
        sizes = size.by_name()
        for index, profile in enumerate(self.record.profiles):
            if all(_holds(profile, name, found) for name, found in sizes.items()):
                return index
        widest = self.record.profiles[-1]
        name = next(name for name in sizes if not _holds(widest, name, sizes[name]))
        raise _misfit(widest, name, sizes[name])

    def check_sizes(self, tensor: PlanTensor, shape: tuple[int, ...]) -> None:
        """Raise `CapacityError` unless all profiles hold a tensor of this shape."""
        for profile in self.record.profiles:
            for dim, found in zip(tensor.shape, shape, strict=True):
                if isinstance(dim, str) and not _holds(profile, dim, found):
                    raise _misfit(profile, dim, found)


def load_plan(bundle: Bundle, graph: Graph, library: Library) -> Plan:
    """The plan of a bundle's graph, held against both.

    Raises:
        BundleMismatch: the plans only show that the network builds, are for another GPU or from another
            TensorRT, do not load, or are not this graph's.
        MissingDependency, ConfigError, PluginError: there is no such TensorRT here, or no plugins for it.
    """
    record = bundle.record
    assert record is not None, "a bundle without plans"
    check_runnable(bundle)
    check_gpu(bundle)
    bindings = load_bindings(record.engine)
    _check_tensorrt(bundle, record, bindings)
    register_plugins(bindings, library)
    file = bundle.plan_file(graph.name)
    engine = bindings.runtime.deserialize_cuda_engine(file.read_bytes())
    if engine is None:
        raise BundleMismatch(
            f"TensorRT can not load {file}: {bindings.log.take_errors()}; build the bundle again"
        )
    plan_record = record.plans[graph.name]
    check_contract(bindings.trt, engine, graph, plan_record)
    check_workspaces(library, graph, plan_record)
    return Plan(bindings, engine, plan_record)


def _check_tensorrt(bundle: Bundle, record: BuildRecord, bindings: Bindings) -> None:
    version = bindings.trt.__version__
    if version != record.tensorrt_version:
        raise BundleMismatch(
            f"the plans of {bundle.path} were built by {bindings.trt.__name__} "
            f"{record.tensorrt_version}, and {version} is installed, which does not load them; install "
            "that version or build the bundle again"
        )


def _holds(profile: Profile, name: Dim, found: int) -> bool:
    least, _, most = profile.sizes[str(name)]
    return least <= found <= most


def _misfit(profile: Profile, name: str, found: int) -> CapacityError:
    least, _, most = profile.sizes[name]
    remedy = _REMEDIES[name.partition(".")[0]]
    return CapacityError(
        f"{name} is {found:,}, and profile '{profile.name}' of the plan is for {least:,} to {most:,}; "
        f"{remedy}"
    )
