import pytest
import torch

from dsv4_trt.plugins.ops import OPS
from dsv4_trt.plugins.reference import REFERENCES, codecs
from tests.plugins.op_call import call, call_all

OUTLIER = 3
DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16}


def fp8_weight(rows, cols, seed=0):
    """An e4m3 weight, its scale bytes and its values in double precision."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(rows, cols, generator=generator)
    weight[:, OUTLIER] = 0  # that input only sets the scale of its block
    weight = weight.to(torch.float8_e4m3fn)
    scale = torch.randint(118, 126, (rows // 128, cols // 128), generator=generator)
    factors = (scale.double() - 127).exp2().repeat_interleave(128, 0).repeat_interleave(128, 1)
    return weight, scale.to(torch.uint8).view(torch.int8), weight.double() * factors


def test_one_reference_per_op():
    assert set(REFERENCES) == set(OPS)


@pytest.mark.parametrize("dtype", DTYPES)
def test_embed_gives_zeros_outside_its_slice(dtype):
    weight = torch.randn(4, 3).bfloat16()
    ids = torch.tensor([8, 11, 7, 12, -1, 0], dtype=torch.int32)
    offset = torch.tensor([8], dtype=torch.int32)
    out = call("embed", token_ids=ids, weight=weight, row_offset=offset, out_dtype=dtype)
    assert torch.equal(out[:2].bfloat16(), weight[[0, 3]])
    assert not out[2:].any()


@pytest.mark.parametrize("dtype", DTYPES.values())
def test_streams_ops(dtype):
    x = torch.randn(3, 8).to(dtype)
    streams = call("expand_streams", x=x, hc_mult=4)
    assert torch.equal(streams, torch.stack([x] * 4, 1))
    assert torch.equal(call("add_streams", x=x, streams=streams), torch.stack([x + x] * 4, 1))


@pytest.mark.parametrize("dtype", DTYPES.values())
@pytest.mark.parametrize("shape", [(5, 64), (5, 4, 64)])
def test_rms_norm(dtype, shape):
    x, weight = torch.randn(shape).to(dtype), torch.randn(64).bfloat16()
    wide = x.double()
    expected = wide / (wide.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight.double()
    out = call("rms_norm", x=x, weight=weight, eps=1e-6)
    torch.testing.assert_close(out, expected.to(dtype))
    if dtype is torch.bfloat16:  # rounded once: only what lies on a tie may fall the other way
        assert (out != expected.to(dtype)).double().mean() < 0.01
    assert not call("rms_norm", x=torch.zeros_like(x), weight=weight, eps=1e-6).any()


def test_qkv_norm_normalises_each_part():
    x, q_weight, kv_weight = (
        torch.randn(3, 24),
        torch.randn(16).bfloat16(),
        torch.ones(8).bfloat16(),
    )
    out = call_all("qkv_norm", x=x, q_weight=q_weight, kv_weight=kv_weight, eps=1e-6)
    assert torch.equal(out["qr"], call("rms_norm", x=x[:, :16], weight=q_weight, eps=1e-6))
    assert torch.equal(out["kv"], call("rms_norm", x=x[:, 16:], weight=kv_weight, eps=1e-6))


@pytest.mark.parametrize("out_dtype", DTYPES)
@pytest.mark.parametrize("act", ["none", "act8_128"])
@pytest.mark.parametrize("dtype", DTYPES.values())
@pytest.mark.parametrize("lead", [(7,), (3, 4)])
def test_fp8_linear(out_dtype, act, dtype, lead):
    x = torch.randn(*lead, 256).to(dtype) * 3
    x[..., OUTLIER] *= 1 << 16
    weight, scale, values = fp8_weight(384, 256)
    seen = x.double()
    if act == "act8_128":
        seen = codecs.round_act8(x.reshape(-1, 256), 128).double().view(x.shape)
        assert not torch.equal(seen, x.double())
    out = call(
        "linear", x=x, weight=weight, scale=scale, weight_format="fp8", act=act, out_dtype=out_dtype
    )
    expected = (seen @ values.T).to(DTYPES[out_dtype])
    torch.testing.assert_close(out, expected, atol=2e-4, rtol=1e-2 if out_dtype == "BF16" else 1e-5)


def test_bf16_linear_rounds_once():
    x, weight = torch.randn(5, 300).bfloat16(), torch.randn(7, 300).bfloat16()
    arguments = {"x": x, "weight": weight, "weight_format": "bf16", "act": "none"}
    exact = x.double() @ weight.double().T
    out = call("linear", **arguments, out_dtype="F32")
    torch.testing.assert_close(out.double(), exact, atol=1e-4, rtol=1e-5)
    assert torch.equal(call("linear", **arguments, out_dtype="BF16"), out.bfloat16())


@pytest.mark.parametrize("out_dtype", DTYPES)
@pytest.mark.parametrize("act", ["none", "act8_128"])
@pytest.mark.parametrize("dtype", DTYPES.values())
def test_grouped_linear_gives_each_group_its_heads(act, dtype, out_dtype):
    x = torch.randn(3, 4, 64).to(dtype)
    x[:, 0, OUTLIER] *= 1 << 16
    weight, scale, values = fp8_weight(256, 128)
    seen, inputs = x.double().reshape(3, 256), {"x": x}
    if act == "act8_128":
        seen = codecs.round_act8(x.view(3, 256), 128).double()
        codes, scales = codecs.act8(x.view(3, 256), 128)
        inputs = {"x": codes.view(x.shape), "x_scale": scales}
    expected = torch.cat([seen[:, :128] @ values[:128].T, seen[:, 128:] @ values[128:].T], 1)
    out = call(
        "grouped_linear",
        **inputs,
        weight=weight,
        scale=scale,
        groups=2,
        act=act,
        out_dtype=out_dtype,
    )
    torch.testing.assert_close(out, expected.to(DTYPES[out_dtype]), atol=1e-4, rtol=1e-2)


@pytest.mark.parametrize("dtype", DTYPES.values())
def test_inv_rope_quant_is_a_rotation_back_and_a_rounding(dtype):
    at = torch.tensor([0, 1, 4095, 1 << 20], dtype=torch.int32)
    inv_freq = 10000.0 ** (-torch.arange(32) / 32)
    x = torch.randn(4, 3, 256).to(dtype) * torch.tensor([1e-6, 1.0, 1e3, 50.0]).view(4, 1, 1)
    x = x.to(dtype)
    angles = (at.float()[:, None] * inv_freq).double()[:, None]
    pairs = torch.view_as_complex(x[..., 192:].double().unflatten(-1, (32, 2)))
    back = torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), -angles)).flatten(-2)
    exact = torch.cat((x[..., :192].double(), back), -1).flatten(1)

    out = call("inv_rope_quant", x=x, inv_freq=inv_freq, positions=at)
    factors = (out["scale"].view(torch.uint8).double() - 127).exp2().repeat_interleave(128, 1)
    found = out["out"].flatten(1).double() * factors
    amax = exact.abs().unflatten(1, (-1, 128)).amax(-1).clamp(min=1e-4).repeat_interleave(128, 1)
    # half a step of e4m3 of the value, or of its least numbers; what bf16 rounds before that
    step = torch.maximum(exact.abs() / 16, factors * 2.0**-10)
    assert ((found - exact).abs() <= step + exact.abs() / 256 + 1e-5 * amax).all()
    assert (factors * 448 >= amax * 0.99).all()
    assert (factors * 448 < 2.02 * amax).all()
    assert not torch.equal(found, exact)


@pytest.mark.parametrize("b", DTYPES.values())
def test_add(b):
    a, b = torch.randn(3, 4), torch.randn(3, 4).to(b)
    assert torch.equal(call("add", a=a, b=b, out_dtype="F32"), a + b.float())
    assert torch.equal(call("add", a=a, b=b, out_dtype="BF16"), (a + b.float()).bfloat16())


@pytest.mark.parametrize("dtype", DTYPES.values())
def test_all_reduce_sums_in_fp32(dtype):
    parts = [torch.tensor([[1.0, 256.0]]).to(dtype), torch.tensor([[2.0, 1.0]]).to(dtype)]
    out = call("all_reduce", x=[*parts, -parts[0]], out_dtype="F32")
    assert [rank.tolist() for rank in out] == [[[2.0, 1.0]]] * 3
    rounded = call("all_reduce", x=[*parts, parts[1]], out_dtype="BF16")
    assert [rank.tolist() for rank in rounded] == [[[5.0, 258.0]]] * 3


def test_all_gather_keeps_rank_order():
    parts = [torch.full((2, 3), float(rank)) for rank in range(3)]
    out = call("all_gather", x=parts, world_size=3)
    for rank in out:
        assert torch.equal(rank, torch.tensor([[0.0] * 3 + [1.0] * 3 + [2.0] * 3] * 2))
