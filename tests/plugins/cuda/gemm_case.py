"""Inputs of matrix products, and what their results may differ by.

Operands are exact in bf16 (or fp32), so that only the order of fp32 sums differs: about 1e-6 of a
result's size. Where the output is bf16, a sum beside a rounding boundary may land one bf16 step away
(up to 2^-7) in rare places; in a row of few columns one such place is 4e-3 of the row.
"""

import torch

from tests.plugins.cuda.cuda_call import assert_close, run_both

BF16, F32, E4M3 = torch.bfloat16, torch.float32, torch.float8_e4m3fn
DTYPES = {"F32": F32, "BF16": BF16}
RELATIVE = {F32: 1e-5, BF16: 4e-3}


def generator(seed, device="cuda"):
    return torch.Generator(device).manual_seed(seed)


def fp8_weight(rows, depth, seed=0, device="cuda", low=116, high=124):
    """An e4m3 weight `[rows, depth]` and a scale byte for each 128 x 128 block."""
    options = {"generator": generator(seed, device), "device": device}
    weight = torch.randn(rows, depth, **options).to(E4M3)
    scale = torch.randint(low, high, (rows // 128, depth // 128), **options)
    return {
        "weight": weight,
        "scale": scale.to(torch.uint8).view(torch.int8),
        "weight_format": "fp8",
    }


def bf16_weight(rows, depth, seed=0, device="cuda"):
    options = {"generator": generator(seed, device), "device": device}
    return {"weight": torch.randn(rows, depth, **options).to(BF16), "weight_format": "bf16"}


WEIGHTS = {"fp8": fp8_weight, "bf16": bf16_weight}


def activations(*shape, dtype=BF16, seed=1, device="cuda"):
    """Normal values whose rows differ in size by powers of ten, and blocks of 128 by powers of two."""
    options = {"generator": generator(seed, device), "device": device}
    x = torch.randn(*shape, **options)
    x *= 10.0 ** torch.randint(-1, 2, (*shape[:-1], 1), **options)
    if shape[-1] % 128 == 0:
        factors = torch.exp2(
            torch.randint(-3, 4, (*shape[:-1], shape[-1] // 128), **options).float()
        )
        x = x * factors.repeat_interleave(128, -1)
    return x.to(dtype)


def compare(op, relative=None, **arguments):
    """Runs both on the device that `x` is on; NaN and infinities must be at the same places."""
    device = arguments["x"].device.type
    found, expected = run_both(op, reference_device=device, **arguments)
    found, expected = found["out"], expected["out"]
    assert torch.equal(found == torch.inf, expected == torch.inf)
    assert torch.equal(found == -torch.inf, expected == -torch.inf)
    if relative is not None:
        assert_close(found, expected, relative=relative)
        return found
    assert torch.equal(found.isnan(), expected.isnan())
    # each row by itself: rows differ in size
    mine, theirs = (t.double().nan_to_num(0, 0, 0).flatten(0, -2) for t in (found, expected))
    error, limit = mine - theirs, RELATIVE[found.dtype]
    assert (error.norm(dim=1) <= limit * theirs.norm(dim=1)).all(), error.norm(dim=1)
    assert (error.abs().amax(1) <= 16 * limit * theirs.abs().amax(1)).all(), error.abs().amax(1)
    return found
