import numpy as np
import pytest

from dsv4_trt.convert.conversion import prepare
from dsv4_trt.dtypes import DType
from dsv4_trt.errors import CheckpointError, ConfigError
from dsv4_trt.rank_checkpoint import load_rank_checkpoint
from tests.convert.checkpoints import LAYOUTS, Loose, left_behind, make, options, run

SCALE = "layers.1.attn.indexer.wq_b.scale"
EXPERT = "layers.2.ffn.experts.3.w2"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    return {layout: make(folder / layout, layout) for layout in LAYOUTS}


@pytest.fixture
def broken(made, tmp_path):
    """Load a layout, let the test change it, write it, and expect a refusal that leaves nothing."""

    def check(change, match, layout="instruct", error=CheckpointError, **choices):
        loose = Loose.load(made[layout])
        change(loose)
        source = loose.write(tmp_path / "hf")
        with pytest.raises(error, match=match) as refused:
            run(source, tmp_path / "out", **choices)
        assert left_behind(tmp_path) == ["hf"]
        return str(refused.value)

    return check


@pytest.mark.parametrize(
    ("layout", "expert_dtype", "scale_dtype"),
    [
        ("instruct", "fp4", DType.F8_E8M0),
        ("base", "fp8", DType.F32),
        ("fp8-e8m0", "fp8", DType.F8_E8M0),
    ],
)
@pytest.mark.parametrize("stated", [True, False])
def test_the_layout_is_told_by_the_tensors(
    made, tmp_path, layout, expert_dtype, scale_dtype, stated
):
    loose = Loose.load(made[layout])
    if not stated:
        del loose.config["expert_dtype"]
    conversion = prepare(options(loose.write(tmp_path / "hf"), tmp_path / "out"))
    assert conversion.plan.layout.expert_dtype == expert_dtype
    assert conversion.plan.layout.scale_dtype is scale_dtype


def test_a_config_that_contradicts_the_tensors_is_refused(broken):
    def change(loose):
        loose.config["expert_dtype"] = "fp8"

    broken(change, "'expert_dtype' is 'fp8', the expert tensors are fp4", error=ConfigError)


def test_an_unknown_expert_dtype_is_refused(broken):
    def change(loose):
        loose.config["expert_dtype"] = "int4"

    broken(change, "'expert_dtype' is 'int4'; expected 'fp4' or 'fp8'", error=ConfigError)


@pytest.mark.parametrize("dtype", ["U8", "BF16", "F32", "I32"])
def test_expert_weights_of_another_dtype_are_refused(broken, dtype):
    def change(loose):
        for name, (_, _, data) in list(loose.tensors.items()):
            if ".experts." in name and name.endswith(".weight"):
                loose.tensors[name] = (dtype, (len(data) // DType(dtype).itemsize,), data)

    broken(change, f"is {dtype}; expected I8 .packed fp4. or F8_E4M3")


@pytest.mark.parametrize(
    "name",
    ["norm.weight", "layers.0.ffn.gate.tid2eid", "layers.1.ffn.gate.bias", f"{EXPERT}.weight"],
)
def test_a_missing_tensor_is_named(broken, name):
    broken(lambda loose: loose.remove(name), f"tensor '{name}' is missing; expected")


@pytest.mark.parametrize("name", [SCALE, f"{EXPERT}.scale", "mtp.0.e_proj.scale"])
def test_a_missing_scale_is_named_with_its_weight(broken, name):
    weight = name.replace(".scale", ".weight")
    broken(lambda loose: loose.remove(name), f"scale '{name}' of .*'{weight}' is missing")


def test_an_extra_tensor_is_named(broken):
    def change(loose):
        loose.add("layers.3.attn_norm.weight", "BF16", np.zeros(128, np.uint16))

    broken(change, "has 1 tensors .*: layers.3.attn_norm.weight; every tensor must be used")


def test_copies_of_shared_tensors_are_no_leftovers_only_under_mtp_0(broken):
    def change(loose):
        loose.tensors["mtp.0.head.bias"] = loose.tensors["mtp.0.head.weight"]
        loose.shards["mtp.0.head.bias"] = loose.shards["mtp.0.head.weight"]

    broken(change, "mtp.0.head.bias", layout="base")


# what an e8m0 byte must never be read as, and what has another size
@pytest.mark.parametrize("dtype", ["U8", "I8", "F8_E4M3", "BF16", "F16", "F32", "I32"])
@pytest.mark.parametrize("every", [True, False])
def test_scales_of_another_dtype_are_never_cast(broken, dtype, every):
    def change(loose):
        for name, (old, shape, data) in list(loose.tensors.items()):
            if old == "F8_E8M0" and (every or name == SCALE):
                loose.tensors[name] = (dtype, shape, data * DType(dtype).itemsize)

    message = broken(change, f"is {dtype}, expected F8_E8M0 with fp4 experts; scales are never")
    assert "120 means 2^-7" in message
    assert every or f"'{SCALE}'" in message


@pytest.mark.parametrize("layout", ["base", "fp8-e8m0"])
def test_block_scales_of_one_checkpoint_have_one_dtype(broken, layout):
    old, new = ("F32", "F8_E8M0") if layout == "base" else ("F8_E8M0", "F32")

    def change(loose):
        _, shape, data = loose.tensors[SCALE]
        count = len(data) // DType(old).itemsize * DType(new).itemsize
        loose.tensors[SCALE] = (new, shape, bytes(count))

    broken(change, f"scale '{SCALE}' is {new}, expected {old} with fp8 experts", layout)


@pytest.mark.parametrize("name", [SCALE, f"{EXPERT}.scale", f"{EXPERT}.weight", "embed.weight"])
def test_a_tensor_of_another_shape_is_named(broken, name):
    def change(loose):
        dtype, shape, data = loose.tensors[name]
        loose.tensors[name] = (dtype, (shape[1], shape[0]), data)
        if shape[0] == shape[1]:
            loose.tensors[name] = (dtype, (1, *shape), data)

    broken(change, f"tensor '{name}' is .* expected .* by config.json")


def test_a_checkpoint_without_block_scales_is_refused(broken):
    def change(loose):
        for name in [n for n in loose.tensors if n.endswith(".scale")]:
            loose.remove(name)

    broken(change, "has no block scales")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda loose: loose.add("mtp.1.norm.weight", "BF16", np.zeros(128, "<u2")), "mtp.1.norm"),
        (
            lambda loose: loose.add("mtp.0.main_proj.weight", "BF16", np.zeros(4, "<u2")),
            "main_proj",
        ),
        (lambda loose: loose.add("mtp.0.markov.w", "BF16", np.zeros(4, "<u2")), "markov"),
        (lambda loose: loose.config.update(num_nextn_predict_layers=3), "num_nextn_predict_layers"),
    ],
)
def test_a_dspark_drafter_is_refused_by_name_and_skipped_on_request(made, tmp_path, change, found):
    loose = Loose.load(made["instruct"])
    change(loose)
    loose.config["compress_ratios"] = [0, 4, 128, 0, 0, 0]  # layers + 3, as DSpark configs have
    source = loose.write(tmp_path / "hf")
    with pytest.raises(CheckpointError, match=f"DSpark checkpoint .*{found}.*--mtp skip"):
        run(source, tmp_path / "out")
    assert left_behind(tmp_path) == ["hf"]
    run(source, tmp_path / "out", mtp="skip")
    checkpoint = load_rank_checkpoint(tmp_path / "out")
    assert (checkpoint.mtp, checkpoint.spec.num_nextn_predict_layers) == (False, 0)
    assert not [n for n in checkpoint.manifest["ranks"][0]["tensors"] if n.startswith("mtp")]


def test_a_promised_mtp_block_must_be_there(broken):
    def change(loose):
        for name in [n for n in loose.tensors if n.startswith("mtp.")]:
            loose.remove(name)

    broken(change, "has no mtp.\\* tensors.* num_nextn_predict_layers 1; use --mtp skip")


def test_an_mtp_block_must_be_promised(broken):
    def change(loose):
        loose.config["num_nextn_predict_layers"] = 0

    broken(change, "has mtp.\\* tensors.* num_nextn_predict_layers 0; use --mtp skip")


def test_a_checkpoint_without_mtp_converts(made, tmp_path):
    source = make(tmp_path / "hf", mtp=False)
    run(source, tmp_path / "out")
    assert load_rank_checkpoint(tmp_path / "out").mtp is False


def test_unequal_copies_of_shared_tensors_are_refused(broken):
    def change(loose):
        head = loose.array("mtp.0.head.weight", np.uint16)
        head[63, 127] ^= 1
        loose.add("mtp.0.head.weight", "BF16", head)

    broken(change, "'mtp.0.head.weight' .* differs from .*'head.weight' at byte 16382", "base")


def test_copies_of_another_shape_are_refused(broken):
    def change(loose):
        loose.add("mtp.0.head.weight", "BF16", np.zeros((2, 128), np.uint16))

    broken(change, "'mtp.0.head.weight' is BF16 .2, 128.*expected equal copies", "base")


def test_unequal_copies_do_not_matter_where_mtp_is_skipped(made, tmp_path):
    loose = Loose.load(made["base"])
    loose.add("mtp.0.head.weight", "BF16", np.zeros((2, 128), np.uint16))
    run(loose.write(tmp_path / "hf"), tmp_path / "out", mtp="skip")
    assert load_rank_checkpoint(tmp_path / "out").mtp is False


@pytest.mark.parametrize("value", [0.75, 0.0, -0.5, 120.0, np.inf, np.nan])
def test_a_base_scale_that_is_no_power_of_two_is_named(broken, value):
    def change(loose):
        scales = loose.array(SCALE, np.float32)
        scales[0, 0] = value
        loose.add(SCALE, "F32", scales)

    broken(change, f"'{SCALE}' holds {value} at \\[0, 0\\].*not a power of two", "base")


@pytest.mark.parametrize("experts", ["keep", "fp8"])
def test_a_nan_scale_is_named(broken, experts):
    def change(loose):
        scales = loose.array(f"{EXPERT}.scale", np.uint8)
        scales[77, 3] = 255
        loose.add(f"{EXPERT}.scale", "F8_E8M0", scales)

    broken(change, f"'{EXPERT}.scale' holds NaN at \\[77, 3\\]", experts=experts)


def test_a_config_that_promises_billions_of_experts_is_soon_refused(broken):
    def change(loose):
        loose.config["n_routed_experts"] = 2**31 - 1

    broken(change, "'layers.0.ffn.experts.4.w1.weight' is missing")


def test_an_expert_id_outside_the_experts_is_named(broken):
    def change(loose):
        table = loose.array("layers.0.ffn.gate.tid2eid", np.int64)
        table[9, 1] = 4
        loose.add("layers.0.ffn.gate.tid2eid", "I64", table)

    broken(change, "tid2eid' holds 4 at \\[9, 1\\], expected an expert id below 4")


def test_fp4_that_fp8_can_not_hold_is_named(broken):
    def change(loose):
        scales = loose.array(f"{EXPERT}.scale", np.uint8)
        scales[:] = 120
        scales[5, 2] = 100
        loose.add(f"{EXPERT}.scale", "F8_E8M0", scales)
        weight = loose.array(f"{EXPERT}.weight", np.uint8)
        weight[5] = 0
        weight[5, 33] = 0x01  # column 66, in the third group of 32
        loose.add(f"{EXPERT}.weight", "I8", weight)

    message = broken(change, f"'{EXPERT}.weight' holds 0.5 .* at \\[5, 66\\]", experts="fp8")
    assert "--experts keep" in message


@pytest.mark.parametrize(
    ("tp", "ep", "match"),
    [
        (3, 1, "num_attention_heads 4 is not divisible by 3. Legal combinations: tp 1 ep 1"),
        (4, 1, "over 4 ranks leaves 64, which is not a multiple of 128"),
        (2, 4, "moe_ep_size 4 must divide tp_size 2"),
    ],
)
def test_sizes_that_ranks_do_not_divide_are_refused(broken, tp, ep, match):
    broken(lambda loose: None, match, error=ConfigError, tp=tp, ep=ep)
