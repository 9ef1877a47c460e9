"""Every node of whole models by itself: the kernel and the reference get the same inputs.

Whole-model logits of the serving precision are not sharp: one value that rounds the other way flips a
quantization step, and from there on everything differs a little. A node's own output is sharp.
"""

from dataclasses import replace

import pytest
import torch

from dsv4_trt.builder.model.networks import trunk
from dsv4_trt.builder.network import Network
from dsv4_trt.contract import BuildSpec, pool_bucket
from dsv4_trt.graph import ValueKind
from dsv4_trt.kv_layout import solve
from dsv4_trt.kv_plan import plan_for_sequences
from dsv4_trt.mapping import Mapping
from dsv4_trt.plugins.cuda_ops import TORCH_DTYPES
from dsv4_trt.plugins.ops import OPS
from dsv4_trt.plugins.reference import REFERENCES
from dsv4_trt.precision import Precision
from dsv4_trt.presets import FLASH, PRO, TINY, cut_layers
from dsv4_trt.runtime.batch import StepOutput
from dsv4_trt.runtime.native import Walk
from dsv4_trt.runtime.slabs import allocate_slabs
from dsv4_trt.runtime.stepper import Chunk, Stepper
from tests.plugins.cuda.cuda_call import kernels
from tests.workshop import random_ids

pytest.importorskip("cuda.bindings.runtime")
from dsv4_trt.runtime.cuda.dummy_weights import fill_dummy

pytestmark = pytest.mark.gpu

# bytes (codes, pages, picks) that a difference in the last bit of a sum may turn over
MOST_BYTES = 4e-3
# relative error of the norm: bf16 outputs are half a unit in the last place off at most, 2^-9, and a few
# of them a whole one; fp32 outputs differ by the order of sums
MOST_ERROR = {torch.bfloat16: 3e-3, torch.float32: 3e-5}
# ops whose fp32 outputs follow from values that they have rounded to bf16 before
FOLLOW_ROUNDED = ("experts", "mhc_post_pre")


def checked(op):
    """The reference on the GPU, after the kernel ran on copies of what it writes."""

    def run(**arguments):
        written = {id(arguments[source]) for source in OPS[op].aliases.values()}
        copies = {id(v): v.clone() for v in arguments.values() if id(v) in written}
        mine = {k: copies.get(id(v), v) for k, v in arguments.items()}  # one slab stays one
        found, expected = kernels()[op](**mine), REFERENCES[op](**arguments)
        for name, value in expected.items():
            pair = found[name], value
            if name in OPS[op].aliases and arguments["format"] == "fp32":
                pair = tuple(pool.view(torch.float32) for pool in pair)
            compare(f"{op}.{name}", *pair, rounds=op in FOLLOW_ROUNDED)
        return expected

    return run


def compare(what, found, expected, *, rounds):
    """`rounds`: an fp32 output that follows from rounded values, as sharp as those are."""
    if expected.dtype not in MOST_ERROR:
        different = found.view(torch.uint8) != expected.view(torch.uint8)
        share = different.double().mean().item() if different.numel() else 0.0
        assert share <= MOST_BYTES, f"{what}: {share:.2e} of the bytes differ"
        return
    limit = MOST_ERROR[torch.bfloat16 if rounds else expected.dtype]
    assert torch.equal(found.isnan(), expected.isnan()), f"{what}: NaN positions differ"
    found, expected = found.double().nan_to_num(0), expected.double().nan_to_num(0)
    error, scale = (found - expected).norm().item(), expected.norm().item()
    assert error <= limit * scale, f"{what}: {error:.3e} of {scale:.3e}"


def weights(graph, spec):
    """Made-up weights on the GPU, by name."""
    torch.manual_seed(0)
    found = {}
    for value in graph.of_kind(ValueKind.WEIGHT):
        tensor = torch.empty(value.shape, dtype=TORCH_DTYPES[value.dtype], device="cuda")
        fill_dummy(tensor.view(-1).view(torch.int8), 0, value, spec, Mapping())
        found[value.name] = tensor
    return found


class CheckedEngine:
    """Walks the trunk on the GPU, each op through its kernel and its reference; see `Engine`."""

    def __init__(self, spec, precision, lens):
        self.spec, self.ladders, self.owner = spec, None, None
        self.build = BuildSpec(max_batch_size=4, max_num_tokens=512, max_seq_len=1024, mtp=False)
        self.layout = solve(spec, precision.kv, precision.indexer)
        self.plan = plan_for_sequences(self.layout, lens)
        graph = trunk(Network("trunk", spec, Mapping(), precision, self.layout))
        self.walk = Walk(graph, {op: checked(op) for op in OPS})
        self.constants = weights(graph, spec)
        slabs = allocate_slabs(self.plan, torch.device("cuda"))
        for slab in slabs.values():
            slab.fill_(-1)  # NaN in every float format
        for value in graph.of_kind(ValueKind.KV):
            self.constants[value.name] = slabs[pool_bucket(value)]

    def step(self, batch, *, want_streams=False):
        arrays = batch.arrays()
        arrays |= {f"block_table.{c}": table for c, table in batch.block_tables.items()}
        inputs = {name: torch.from_numpy(array).cuda() for name, array in arrays.items()}
        inputs["decode_carrier"] = torch.zeros(batch.num_decodes, dtype=torch.int8, device="cuda")
        out = self.walk.run([self.constants], inputs)
        return StepOutput(logits=out["logits"], streams=None)


SPECS = {
    "tiny": TINY,
    "flash": cut_layers(FLASH, 4),
    "pro": cut_layers(PRO, 3),
}
PRECISIONS = {
    "official": Precision.official(),
    "fp8 indexer": Precision.official(indexer="fp8"),
    "bf16 caches": Precision.official(kv="bf16", indexer="bf16"),
    "fp8 wo_a": replace(Precision.official(), wo_a_act="act8_128"),
    "exact": Precision.exact(),
}


@pytest.mark.parametrize(
    ("model", "precision"),
    [
        *(("tiny", name) for name in PRECISIONS),
        pytest.param("flash", "official", marks=pytest.mark.full_width),
        pytest.param("pro", "official", marks=pytest.mark.full_width),
    ],
)
def test_every_node_equals_its_reference(model, precision):
    """Prompts in chunks, then decode steps beside a chunk, in pages that are NaN until written."""
    engine = CheckedEngine(SPECS[model], PRECISIONS[precision], [700, 700, 700])
    stepper = Stepper(engine)
    first, second, third = (stepper.kv.open() for _ in range(3))
    vocab = engine.spec.vocab_size

    def chunk(row, count, seed):
        return Chunk(row=row, token_ids=random_ids(count, vocab=vocab, seed=seed))

    for chunks in (
        [chunk(first, 300, 0), chunk(second, 5, 1)],
        [chunk(first, 1, 2), chunk(second, 1, 3), chunk(third, 257, 4)],
        [chunk(third, 1, 5), chunk(first, 1, 6), chunk(second, 130, 7)],
        [chunk(first, 1, 8), chunk(second, 1, 9), chunk(third, 1, 10)],
    ):
        assert stepper.step(chunks).logits.isfinite().all()
