import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dsv4_trt.plugins.reference import codecs
from dsv4_trt.plugins.reference.entries import plain_entry

E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
BYTES = torch.arange(256, dtype=torch.uint8)


def act4_values(x):
    packed, scale = codecs.act4(x)
    return codecs.dequantize(codecs.e2m1_decode(packed), scale)


def e4m3_by_definition(byte):
    sign, exponent, mantissa = byte >> 7, byte >> 3 & 15, byte & 7
    if exponent == 15 and mantissa == 7:
        return math.nan
    size = mantissa / 8 * 2**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return -size if sign else size


def test_e4m3_all_codes():
    expected = np.array([e4m3_by_definition(b) for b in range(256)], np.float32)
    found = codecs.e4m3_decode(BYTES.view(codecs.E4M3))
    np.testing.assert_array_equal(found.numpy(), expected)
    assert torch.signbit(found[128])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8])
def test_e8m0_all_codes(dtype):
    expected = np.ldexp(np.float32(1), np.arange(255) - 127)
    found = codecs.e8m0_decode(BYTES.view(dtype)).numpy()
    np.testing.assert_array_equal(found[:255], expected)
    assert math.isnan(found[255])


def test_e2m1_all_byte_pairs():
    table = E2M1 + [-value for value in E2M1]
    found = codecs.e2m1_decode(BYTES.view(torch.int8)).view(256, 2)
    expected = [[table[byte & 15], table[byte >> 4]] for byte in range(256)]
    assert torch.equal(found, torch.tensor(expected))
    assert torch.signbit(found[8, 0])


def test_nibbles_pack_and_unpack():
    codes = codecs.unpack_nibbles(BYTES.view(torch.int8))
    assert codes[2 * 0x2F : 2 * 0x2F + 2].tolist() == [0xF, 0x2]  # low nibble first
    assert torch.equal(codecs.pack_nibbles(codes), BYTES.view(torch.int8))


def test_e2m1_rounds_to_nearest_even():
    x = torch.arange(-8 * 64, 8 * 64 + 1) / 64
    found = codecs.e2m1_encode(x)
    for value, code in zip(x.tolist(), found.tolist(), strict=True):
        gaps = [abs(abs(value) - size) for size in E2M1]
        best = [c for c, gap in enumerate(gaps) if gap == min(gaps)]
        expected = best[0] if len(best) == 1 else next(c for c in best if c % 2 == 0)
        assert code & 7 == expected, value
        assert code >> 3 == (value < 0), value


def test_bf16_all_codes_survive_a_page():
    codes = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(256, 256)
    entry = plain_entry("bf16", 256)
    values = entry.decode(codes.view(torch.int8))
    expected = codes.numpy().view(np.uint16).astype(np.uint32) << 16
    np.testing.assert_array_equal(values.numpy(), expected.view(np.float32))
    number = ~values.isnan()
    assert torch.equal(entry.encode(values)[0].view(torch.int16)[number], codes[number])


def test_bf16_rounding_ties_to_even():
    halfway = torch.tensor([[1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20]])
    entry = plain_entry("bf16", 3)
    assert entry.decode(*entry.encode(halfway)).tolist() == [[1, 1 + 2**-6, 1 + 2**-7]]


def test_act8_known_answer():
    x = torch.zeros(1, 64)
    x[0, :6] = torch.tensor([1, 0.3, -0.07, 0.011, -0.5, 0.0009])
    codes, scale = codecs.act8(x, 64)
    assert codecs.e8m0_decode(scale).item() == 2**-8
    values = codecs.dequantize(codecs.e4m3_decode(codes), scale)[0]
    expected = [1, 0.3125, -0.0703125, 0.0107421875, -0.5, 0.00091552734375]
    assert values[:6].tolist() == expected
    assert not values[6:].any()


@pytest.mark.parametrize(
    ("amax", "scale"), [(448.0, 1.0), (449.0, 2.0), (0.015625, 2**-14), (1e-5, 2**-22), (0, 2**-22)]
)
def test_act8_scales(amax, scale):
    x = torch.zeros(1, 128)
    x[0, 77] = -amax
    assert codecs.e8m0_decode(codecs.act8(x, 128)[1]).item() == scale


def test_act4_known_answer():
    x = torch.zeros(1, 32)
    x[0, :7] = torch.tensor([1, 0.3, -0.07, 0.6, -0.9, 0.0625, 0.1875])
    assert codecs.e8m0_decode(codecs.act4(x)[1]).item() == 2**-2
    values = act4_values(x)[0]
    assert values[:7].tolist() == [1, 0.25, -0.125, 0.5, -1, 0, 0.25]
    assert not values[7:].any()


def test_act4_scale_floor():
    assert codecs.act4(torch.zeros(1, 32))[1].item() == 1  # 2^-126


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_bad_numbers_poison_their_block_only(bad):
    x = torch.ones(1, 128)
    x[0, 70] = bad
    for values in (codecs.round_act8(x, 64), act4_values(x)):
        assert values[0, 64:96].isnan().all()
        assert torch.equal(values[0, :64], torch.ones(64))


@given(st.lists(st.floats(-(2.0**40), 2.0**40, width=32), min_size=32, max_size=32))
def test_quantizers_stay_within_half_a_step(values):
    x = torch.tensor([values])
    amax = x.abs().max().item()
    scale = codecs.e8m0_decode(codecs.act8(x, 32)[1]).item()
    assert scale * 448 >= max(amax, 1e-4) * (1 - 1e-6)
    assert scale * 224 < max(amax, 1e-4) * (1 + 1e-6)
    error = (codecs.round_act8(x, 32) - x).abs()
    assert (error <= torch.maximum(x.abs() / 16, torch.tensor(scale * 2.0**-10))).all()
    scale = codecs.e8m0_decode(codecs.act4(x)[1]).item()
    assert ((act4_values(x) - x).abs() <= torch.maximum(x.abs() / 4, torch.tensor(scale / 4))).all()


@given(st.integers(0, 2**32 - 1))
def test_quantized_values_are_fixed_points(seed):
    x = torch.randn(4, 128, generator=torch.Generator().manual_seed(seed)).bfloat16()
    once = codecs.round_act8(x, 128)
    assert torch.equal(codecs.round_act8(once, 128), once)
    assert torch.equal(act4_values(act4_values(x)), act4_values(x))


@pytest.mark.parametrize(("rows", "cols"), [(128, 128), (1, 32)])
def test_dequantize_uses_each_blocks_scale(rows, cols):
    scale = torch.randint(120, 134, (2, 256 // rows, 384 // cols), dtype=torch.uint8)
    values = torch.randn(2, 256, 384)
    found = codecs.dequantize(values.clone(), scale.view(torch.int8))
    factors = (scale.double() - 127).exp2().repeat_interleave(rows, 1).repeat_interleave(cols, 2)
    assert torch.equal(found.double(), values.double() * factors)
