"""expand_streams and add_streams: copies and single sums, so equal to the last bit."""

import pytest
import torch

from tests.plugins.cuda.cuda_call import kernels, run_both

pytestmark = pytest.mark.gpu

SIZES = [(1, 4096), (3, 7), (129, 7168), (5, 24), (0, 8)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("tokens", "hidden"), SIZES)
@pytest.mark.parametrize("count", [4, 3])
def test_expand_and_add(count, tokens, hidden, dtype):
    generator = torch.Generator().manual_seed(tokens)
    x = torch.randn(tokens, hidden, generator=generator).to(dtype)
    streams = torch.randn(tokens, count, hidden, generator=generator).to(dtype)
    for op, arguments in (
        ("expand_streams", {"hc_mult": count}),
        ("add_streams", {"streams": streams}),
    ):
        found, expected = run_both(op, x=x, **arguments)
        assert torch.equal(found["streams"], expected["streams"]), op


def test_add_at_odd_addresses():
    buffer = torch.arange(2 * 8 + 1, device="cuda").bfloat16()
    x = buffer[1:].view(2, 8)
    streams = torch.ones(2, 4, 8, dtype=torch.bfloat16, device="cuda")
    found = kernels()["add_streams"](x=x, streams=streams)["streams"]
    assert torch.equal(found, x.unsqueeze(1) + streams)
