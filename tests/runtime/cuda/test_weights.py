"""A rank file on its way to the GPU."""

from hypothesis import given
from hypothesis import strategies as st

from dsv4_trt.plugins.library import FilePart
from dsv4_trt.runtime.cuda import weights
from dsv4_trt.runtime.cuda.weights import _slices


@given(st.lists(st.integers(1, 40), max_size=30))
def test_ctrl_c_waits_for_no_more_than_a_call_and_a_tensor(sizes):
    """All parts, in their order, in calls that are no larger than the limit by more than one part."""
    parts = [FilePart(start, size << 30, 0) for start, size in enumerate(sizes)]
    calls = list(_slices(parts))
    assert [part.start for call in calls for part in call] == list(range(len(parts)))
    for call in calls:
        assert sum(part.bytes for part in call[1:]) < weights._BYTES_AT_ONCE
