from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest

from dsv4_trt.convert.layout import SourceLayout
from dsv4_trt.convert.names import official_tensors
from dsv4_trt.convert.plan import Plan, matrix_shape
from dsv4_trt.dtypes import DType
from dsv4_trt.errors import ConfigError
from dsv4_trt.mapping import Mapping, legal_mappings
from dsv4_trt.model_spec import LayerKind
from dsv4_trt.presets import FLASH, PRO, TINY, cut_layers
from dsv4_trt.rank_tensors import rank_tensors
from tests.convert.checkpoints import MICRO, MICRO_FP8

SPECS = {
    "micro": MICRO,
    "micro-fp8": MICRO_FP8,
    "tiny": TINY,
    "flash-4": replace(cut_layers(FLASH, 4), n_routed_experts=16),
    "pro-4": replace(cut_layers(PRO, 4), n_routed_experts=16),
}


def make_plan(spec, mapping, *, source_experts=None, scale_dtype=DType.F8_E8M0, mtp=True):
    source = replace(spec, expert_dtype=source_experts or spec.expert_dtype)
    official = {t.name: t for t in official_tensors(source, scale_dtype=scale_dtype, mtp=mtp)}
    layout = SourceLayout(source.expert_dtype, scale_dtype)
    return Plan.make(spec, layout, mapping, official, mtp=mtp)


def cases():
    for name, spec in SPECS.items():
        for mapping in legal_mappings(spec):
            yield pytest.param(
                spec, mapping, id=f"{name}-tp{mapping.tp_size}-ep{mapping.moe_ep_size}"
            )


@pytest.mark.parametrize("spec", [*SPECS.values(), FLASH, PRO], ids=[*SPECS, "flash", "pro"])
def test_names_are_bijective(spec):
    for names in (
        [t.name for t in official_tensors(spec, scale_dtype=DType.F8_E8M0, mtp=True)],
        [t.name for t in rank_tensors(spec, Mapping(), mtp=True)],
    ):
        assert max(Counter(names).values()) == 1


def test_counts_of_the_released_checkpoints():
    """145,116 tensors of Pro; 69,187 of Flash, 66,048 of them experts of the trunk."""
    flash = [t.name for t in official_tensors(FLASH, scale_dtype=DType.F8_E8M0, mtp=True)]
    pro = list(official_tensors(PRO, scale_dtype=DType.F8_E8M0, mtp=True))
    assert (len(flash), len(pro)) == (69187, 145116)
    assert sum(".experts." in n and n.startswith("layers.") for n in flash) == 66048
    assert sum(n.startswith("mtp.") for n in flash) == 1575


@pytest.mark.parametrize(("spec", "mapping"), list(cases()))
@pytest.mark.parametrize("experts", ["keep", "fp8"])
def test_pieces_fill_every_rank_tensor(spec, mapping, experts):
    out = replace(spec, expert_dtype="fp8") if experts == "fp8" else spec
    plan = make_plan(out, mapping, source_experts=spec.expert_dtype)
    for rank in range(mapping.world_size):
        for tensor in plan.tensors():
            literal = plan.literal(tensor.name, rank)
            pieces = list(plan.pieces(tensor.name, rank))
            assert (literal is None) == bool(pieces)
            filled = len(literal) if literal is not None else sum(p.nbytes for p in pieces)
            assert filled == tensor.nbytes, tensor.name


@pytest.mark.parametrize(("spec", "mapping"), list(cases()))
def test_every_official_element_is_used_once_or_once_per_rank(spec, mapping):
    plan = make_plan(spec, mapping)
    areas = defaultdict(list)
    for rank in range(mapping.world_size):
        seen = Counter(piece.source for t in plan.tensors() for piece in plan.pieces(t.name, rank))
        assert max(seen.values()) == 1  # a rank never holds two parts of one tensor
        for tensor in plan.tensors():
            for piece in plan.pieces(tensor.name, rank):
                areas[piece.source].append((piece.rows, piece.cols))
    assert set(areas) == set(plan.official)
    for name, parts in areas.items():
        rows, cols = matrix_shape(plan.official[name])
        area = sum((r[1] - r[0]) * (c[1] - c[0]) for r, c in parts)
        if parts.count(((0, rows), (0, cols))) == len(parts):
            holders = mapping.moe_tp_size if ".ffn.experts." in name else mapping.world_size
            assert len(parts) == holders, name
        else:
            assert area == rows * cols, name
            assert len(set(parts)) == len(parts), name


# which official tensors are cut, and where: written out here by hand, from the model's structure
@pytest.mark.parametrize(
    ("name", "rows", "cols"),
    [
        ("embed.weight", (32, 64), (0, 128)),
        ("head.weight", (32, 64), (0, 128)),
        ("norm.weight", (0, 128), (0, 1)),
        ("layers.1.attn.wq_a.weight", (0, 128), (0, 128)),
        ("layers.1.attn.wkv.scale", (0, 1), (0, 1)),
        ("layers.1.attn.wq_b.weight", (256, 512), (0, 128)),  # heads 2, 3 of 4 x 128
        ("layers.1.attn.wq_b.scale", (2, 4), (0, 1)),
        ("layers.1.attn.attn_sink", (2, 4), (0, 1)),
        ("layers.1.attn.wo_a.weight", (256, 512), (0, 128)),  # groups 2, 3 of 4 x 128
        ("layers.1.attn.wo_b.weight", (0, 128), (256, 512)),
        ("layers.1.attn.wo_b.scale", (0, 1), (2, 4)),
        ("layers.1.attn.indexer.wq_b.weight", (0, 128), (0, 128)),
        ("layers.1.attn.compressor.wkv.weight", (0, 256), (0, 128)),
        ("layers.1.ffn.gate.weight", (0, 4), (0, 128)),
        ("layers.1.ffn.shared_experts.w1.weight", (128, 256), (0, 128)),
        ("layers.1.ffn.shared_experts.w2.weight", (0, 128), (128, 256)),
        ("layers.1.ffn.experts.3.w1.weight", (128, 256), (0, 64)),
        ("layers.1.ffn.experts.3.w3.scale", (128, 256), (0, 4)),
        ("layers.1.ffn.experts.3.w2.weight", (0, 128), (64, 128)),
        ("layers.1.ffn.experts.3.w2.scale", (0, 128), (4, 8)),
        ("layers.1.hc_attn_fn", (0, 24), (0, 512)),
        ("mtp.0.attn.wq_b.weight", (256, 512), (0, 128)),
        ("mtp.0.e_proj.weight", (0, 128), (0, 128)),
    ],
)
def test_the_second_of_two_ranks_holds(name, rows, cols):
    plan = make_plan(MICRO, Mapping(tp_size=2))
    found = [p for t in plan.tensors() for p in plan.pieces(t.name, 1) if p.source == name]
    assert [(p.rows, p.cols) for p in found] == [(rows, cols)]


def test_experts_go_whole_to_their_ep_rank():
    plan = make_plan(MICRO, Mapping(tp_size=2, moe_ep_size=2))
    pieces = list(plan.pieces("layers.2.ffn.experts.w13.weight", 1))
    assert [p.source for p in pieces] == [
        f"layers.2.ffn.experts.{e}.{w}.weight" for e in (2, 3) for w in ("w1", "w3")
    ]
    assert {p.rows for p in pieces} == {(0, 256)}


def test_a_shared_expert_too_narrow_to_cut_is_on_every_rank():
    spec = replace(MICRO, moe_intermediate_size=128)
    plan = make_plan(spec, Mapping(tp_size=2, moe_ep_size=2))
    (piece,) = plan.pieces("layers.0.ffn.shared_experts.w2.weight", 1)
    assert (piece.rows, piece.cols) == ((0, 128), (0, 128))


@pytest.mark.parametrize("mapping", legal_mappings(MICRO), ids=str)
def test_literals(mapping):
    plan = make_plan(MICRO, mapping)
    owners = np.zeros(4, int)
    for rank in range(mapping.world_size):
        offset = np.frombuffer(plan.literal("embed.row_offset", rank), "<i4")
        assert offset.tolist() == [rank * 64 // mapping.tp_size]
        table = np.frombuffer(plan.literal("expert_map", rank), "<i4")
        held = np.flatnonzero(table >= 0)
        np.testing.assert_array_equal(table[held], np.arange(len(held)))
        owners[held] += 1
        first = next(plan.pieces("layers.0.ffn.experts.w2.weight", rank)).source
        assert first == f"layers.0.ffn.experts.{held[0]}.w2.weight"
    assert owners.tolist() == [mapping.moe_tp_size] * 4


def test_rotation_frequencies_are_the_published_ones():
    plan = make_plan(FLASH, Mapping(), mtp=False)
    swa = np.frombuffer(plan.literal("rope.swa.inv_freq", 0), "<f4")
    compress = np.frombuffer(plan.literal("rope.compress.inv_freq", 0), "<f4")
    np.testing.assert_allclose(swa, 10000.0 ** (-np.arange(32) / 32), rtol=1e-7)
    known = {
        1: 0.687656,
        15: 3.63554e-3,
        16: 2.26562e-3,
        20: 2.96978e-4,
        24: 1.95313e-5,
        25: 5.37231e-6,
        31: 5.68053e-7,
    }
    for i, value in known.items():
        assert compress[i] == pytest.approx(value, rel=3e-6)
    assert FLASH.inv_freq(LayerKind.HCA) == FLASH.inv_freq(LayerKind.CSA)


def test_pro_on_16_ranks_is_refused_with_the_reason():
    with pytest.raises(ConfigError, match=r"3072 over 16 ranks leaves 192.*multiple of 128"):
        make_plan(PRO, Mapping(tp_size=16))
    assert Mapping(tp_size=16, moe_ep_size=2) in legal_mappings(PRO)
