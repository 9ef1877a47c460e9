"""How large a step can be, and the sizes that a build's steps have."""

import pytest

from dsv4_trt.contract import BuildSpec
from dsv4_trt.dtypes import DType
from dsv4_trt.graph import Value, ValueKind
from dsv4_trt.runtime.cuda.step_size import StepSize, largest_step, step_sizes


def test_a_size_has_every_dimension_that_a_graph_names():
    size = StepSize(num_tokens=9, num_seqs=4, num_decodes=2, num_logits=5)
    assert size.by_name() == {
        "num_tokens": 9,
        "num_seqs": 4,
        "num_seqs_plus_1": 5,
        "num_decodes": 2,
        "num_logits": 5,
    }


def test_a_value_s_shape_follows_the_size():
    size = StepSize(num_tokens=9, num_seqs=4, num_decodes=2, num_logits=5)
    for dims, expected in (
        (("num_tokens", 64), (9, 64)),
        (("num_seqs_plus_1",), (5,)),
        (("num_table_rows", "pages.swa"), (0, 0)),
    ):
        value = Value(name="x", kind=ValueKind.INPUT, dtype=DType.I32, shape=dims)
        assert size.shape(value) == expected


@pytest.mark.parametrize(
    ("seqs", "length", "most"),
    [(1, 100, 128), (2, 1000, 2048), (64, 65536, 8192), (1, 8191, 8192), (1, 1, 2)],
)
def test_the_largest_step_is_what_sequences_can_fill(seqs, length, most):
    build = BuildSpec(max_batch_size=seqs, max_seq_len=length, max_num_tokens=8192)
    assert largest_step(build) == StepSize(most, seqs, seqs, seqs)


def test_a_build_s_sizes_are_those_of_its_rungs():
    build = BuildSpec(max_batch_size=3, max_num_tokens=600, max_seq_len=1024)
    sizes = set(step_sizes(build))
    decodes = {StepSize(n, n, n, n) for n in (1, 2, 3)}
    tokens = {1, 2, 3, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 600}
    beside_decodes = {StepSize(n, min(n, 3), min(n, 3), min(n, 3)) for n in tokens}
    prompts_alone = {size._replace(num_decodes=0) for size in beside_decodes}
    assert sizes == decodes | beside_decodes | prompts_alone
    assert max(sizes) == largest_step(build) == StepSize(600, 3, 3, 3)
