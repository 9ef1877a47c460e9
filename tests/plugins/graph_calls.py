"""Op calls of whole networks, without weights: what plugins of real plans are made from."""

from dataclasses import dataclass, replace
from functools import cache

from dsv4_trt.builder.model.networks import mtp, trunk
from dsv4_trt.builder.network import Network
from dsv4_trt.kv_layout import solve
from dsv4_trt.mapping import Mapping
from dsv4_trt.plugins.library import set_tensor
from dsv4_trt.plugins.op_schema import Op
from dsv4_trt.plugins.ops import OPS
from dsv4_trt.precision import Precision
from dsv4_trt.presets import FLASH, PRO, TINY, cut_layers

OFFICIAL = Precision.official()
TP2 = Mapping(tp_size=2)
GRAPHS = {
    "tiny": (trunk, TINY, Mapping(), OFFICIAL),
    "tiny-exact": (trunk, TINY, Mapping(), Precision.exact()),
    "tiny-bf16": (trunk, TINY, Mapping(), Precision.official(kv="bf16", indexer="bf16")),
    "tiny-fp8": (
        trunk,
        TINY,
        Mapping(),
        replace(Precision.official(indexer="fp8"), wo_a_act="act8_128"),
    ),
    "tiny-tp2": (trunk, TINY, TP2, OFFICIAL),
    "tiny-mtp": (mtp, TINY, Mapping(), OFFICIAL),
    "flash": (trunk, cut_layers(FLASH, 4), Mapping(), OFFICIAL),
    "flash-exact": (trunk, cut_layers(FLASH, 4), Mapping(), Precision.exact()),
    "flash-mtp": (mtp, FLASH, Mapping(), OFFICIAL),
    "pro": (trunk, cut_layers(PRO, 4), Mapping(), OFFICIAL),
    "pro-exact": (trunk, cut_layers(PRO, 4), Mapping(), Precision.exact()),
    "pro-tp2": (trunk, cut_layers(PRO, 4), TP2, OFFICIAL),
}


@dataclass(frozen=True, kw_only=True)
class OpCall:
    """An op with attributes and the types and shapes of its inputs; run-time sizes are names."""

    op: Op
    attrs: dict
    inputs: dict  # name -> (dtype, shape)

    @property
    def outputs(self):
        """name -> (dtype, shape), as the op table has it."""
        return self.op.infer(self.inputs, self.attrs)

    @property
    def sizes(self):
        """The names of its run-time sizes."""
        dims = [dim for _, shape in self.inputs.values() for dim in shape]
        return sorted({dim for dim in dims if isinstance(dim, str)})

    def sized(self, sizes):
        """The call with numbers for run-time sizes."""
        inputs = {
            name: (dtype, tuple(sizes.get(dim, dim) for dim in shape))
            for name, (dtype, shape) in self.inputs.items()
        }
        return replace(self, inputs=inputs)


@cache
def graph(name):
    """The graph `name` of `GRAPHS`."""
    build, spec, mapping, precision = GRAPHS[name]
    layout = solve(spec, precision.kv, precision.indexer, mtp=build is mtp)
    return build(Network(name, spec, mapping, precision, layout))


@cache
def graph_calls(name):
    """Every different call of a graph, in its order."""
    found = {}
    for node in graph(name).nodes:
        values = {param: graph(name).values[value] for param, value in node.inputs.items()}
        inputs = {param: (value.dtype, value.shape) for param, value in values.items()}
        call = OpCall(op=OPS[node.op], attrs=node.attrs, inputs=inputs)
        found.setdefault(repr((node.op, sorted(node.attrs.items()), inputs)), call)
    return list(found.values())


def sample_call():
    """A call of `sample`, which is in no graph."""
    rows = {"scales": 3, "doubles": 4, "limits": 3}
    lists = {"masks": ("masked", 4040), "bias_values": ("B",), "penalty_values": ("P",)}
    lists |= {"bias_ids": ("B",), "seen_ids": ("seen",), "penalty_ids": ("P",)}
    lists |= {f"{name}_start": ("num_rows_plus_1",) for name in ("bias", "seen", "penalty")}
    shapes = {name: ("num_rows", width) for name, width in rows.items()} | lists
    shapes["logits"] = ("num_rows", 129280)
    inputs = {p.name: (p.dtype, shapes[p.name]) for p in OPS["sample"].inputs}
    return OpCall(op=OPS["sample"], attrs={"num_top": 5}, inputs=inputs)


def all_calls():
    """One of each kind over all graphs, by what it is called in a test."""
    found = {"sample": sample_call()}
    for name in GRAPHS:
        for index, call in enumerate(graph_calls(name)):
            found[f"{name}-{index}-{call.op.name}"] = call
    return found


def dense(shape):
    """Strides of a dense tensor, in elements."""
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def library_call(library, call):
    """A call of the library with the shapes of an `OpCall` that has numbers alone, and no memory."""
    made = library.call(call.op, call.attrs)
    for arguments, tensors in ((made.inputs, call.inputs), (made.outputs, call.outputs)):
        for name, (dtype, shape) in tensors.items():
            set_tensor(arguments[name], 0, dtype, shape, dense(shape))
    return made
