import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4_trt.convert import codecs
from dsv4_trt.convert.codecs import InexactValue

ALL = np.arange(256, dtype=np.uint8)
POWERS = {2.0**e for e in range(-127, 128)}


def test_every_e4m3_code_has_torchs_value():
    expected = torch.from_numpy(ALL).view(torch.float8_e4m3fn).float().numpy()
    np.testing.assert_array_equal(codecs.E4M3, expected)


def test_every_e8m0_byte_goes_to_float32_and_back():
    values = codecs.e8m0_to_f32(ALL)
    np.testing.assert_array_equal(values[:255], np.exp2(ALL[:255].astype(np.float64) - 127))
    assert np.isnan(values[255])
    np.testing.assert_array_equal(codecs.f32_to_e8m0(values[:255]), ALL[:255])
    assert codecs.e8m0_to_f32(np.array([120], np.uint8))[0] == 2.0**-7  # not 120.0


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=500)
def test_float32_bits_are_a_scale_only_if_an_exact_power_of_two(bits):
    value = np.array([1.0, 0], np.float32)
    value.view(np.uint32)[1] = bits
    if float(value[1]) in POWERS:
        assert codecs.e8m0_to_f32(codecs.f32_to_e8m0(value))[1] == value[1]
        return
    with pytest.raises(InexactValue) as refused:
        codecs.f32_to_e8m0(value)
    assert refused.value.at == 1


@pytest.mark.parametrize("value", [0.0, -1.0, 0.75, 120.0, np.inf, np.nan, 2.0**-128, 2.0**-149])
def test_other_scales_are_refused(value):
    with pytest.raises(InexactValue, match="power of two"):
        codecs.f32_to_e8m0(np.array([value], np.float32))


def test_a_nan_scale_is_refused():
    with pytest.raises(InexactValue) as refused:
        codecs.check_e8m0(np.array([[1, 2], [3, 255]], np.uint8))
    assert refused.value.at == 3


@pytest.mark.parametrize("bad", [-1, 4, 2**33])
def test_an_expert_id_outside_the_experts_is_refused(bad):
    ids = np.array([[0, 3], [1, 2]], np.int64)
    np.testing.assert_array_equal(codecs.i64_to_i32(ids, 4), ids)
    ids[1, 0] = bad
    with pytest.raises(InexactValue) as refused:
        codecs.i64_to_i32(ids, 4)
    assert (refused.value.at, refused.value.value) == (2, bad)


def test_a_packed_byte_has_the_even_column_in_its_low_nibble():
    packed = np.full((1, 16), 0xF7, np.uint8)  # low 7 is 6.0, high 15 is -6.0
    values = codecs.dequantize_fp4(packed, np.array([[128]], np.uint8))
    np.testing.assert_array_equal(values[0, :4], [12, -12, 12, -12])


def random_block(seed, low, high, rows=128, inputs=256):
    draw = np.random.default_rng(seed)
    packed = draw.integers(0, 256, (rows, inputs // 2), dtype=np.uint8)
    scales = draw.integers(low, high + 1, (rows, inputs // 32), dtype=np.uint8)
    return packed, scales


@given(seed=st.integers(0, 2**32), high=st.integers(0, 254), spread=st.integers(0, 14))
@settings(max_examples=40, deadline=None)
def test_fp4_to_fp8_keeps_every_value(seed, high, spread):
    packed, scales = random_block(seed, max(high - spread, 0), high)
    blocks = codecs.fp4_block_scales(scales)
    fp8 = codecs.fp4_to_fp8(packed, scales)
    assert (fp8.shape, blocks.shape) == ((128, 256), (1, 2))
    np.testing.assert_array_equal(
        codecs.dequantize_fp8(fp8, blocks), codecs.dequantize_fp4(packed, scales)
    )
    assert np.nanmax(np.abs(codecs.E4M3[fp8])) <= 384


def test_every_code_and_every_exact_shift():
    for shift in range(15):
        packed = np.resize(ALL, (128, 64))
        scales = np.full((128, 4), 120 - shift, np.uint8)
        scales[0] = 120
        values = codecs.dequantize_fp8(
            codecs.fp4_to_fp8(packed, scales), codecs.fp4_block_scales(scales)
        )
        np.testing.assert_array_equal(values, codecs.dequantize_fp4(packed, scales))


@pytest.mark.parametrize("code", range(16))
def test_a_group_far_below_its_block_is_exact_or_refused(code):
    for shift in range(15, 25):
        packed = np.zeros((128, 64), np.uint8)
        packed[5, 20] = code << 4  # row 5, column 41
        scales = np.full((128, 4), 100, np.uint8)
        scales[5, 1] = 100 - shift
        value = abs(float(codecs.E2M1[code])) * 2.0 ** (6 - shift)
        if value * 512 == int(value * 512):
            values = codecs.dequantize_fp8(
                codecs.fp4_to_fp8(packed, scales), codecs.fp4_block_scales(scales)
            )
            np.testing.assert_array_equal(values, codecs.dequantize_fp4(packed, scales))
        else:
            with pytest.raises(InexactValue, match=f"2\\^{shift} below") as refused:
                codecs.fp4_to_fp8(packed, scales)
            assert divmod(refused.value.at, 128) == (5, 41)
