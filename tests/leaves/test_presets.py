import pytest

from dsv4_trt.errors import ConfigError
from dsv4_trt.mapping import Mapping, legal_mappings
from dsv4_trt.model_spec import LayerKind
from dsv4_trt.presets import FLASH, PRO, SMALL, TINY, cut_layers

PRESETS = {"flash": FLASH, "pro": PRO, "small": SMALL, "tiny": TINY}


def kinds(spec):
    return [spec.layer_kinds.count(kind) for kind in LayerKind]


def test_the_schedules_have_the_published_counts():
    assert kinds(FLASH) == [2, 21, 20]
    assert kinds(PRO) == [0, 30, 31]
    assert [i for i, kind in enumerate(FLASH.layer_kinds) if kind is LayerKind.CSA] == [
        *range(2, 43, 2)
    ]
    assert [i for i, kind in enumerate(PRO.layer_kinds) if kind is LayerKind.HCA] == [
        0,
        *range(1, 60, 2),
    ]


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_has_one_ratio_per_layer_and_fits_one_rank(name):
    spec = PRESETS[name]
    assert len(spec.compress_ratios) == spec.num_hidden_layers
    assert Mapping() in legal_mappings(spec)
    assert set(spec.layer_kinds) >= {LayerKind.CSA, LayerKind.HCA}


@pytest.mark.parametrize("name", PRESETS)
def test_cut_layers_keeps_the_first_layers_and_the_rest_of_the_model(name):
    spec = PRESETS[name]
    for layers in range(1, spec.num_hidden_layers + 1):
        cut = cut_layers(spec, layers)
        assert cut.compress_ratios == spec.compress_ratios[:layers]
        assert cut.num_hidden_layers == layers
        assert cut.num_hash_layers == min(layers, spec.num_hash_layers)
        assert (cut.hidden_size, cut.has_mtp) == (spec.hidden_size, spec.has_mtp)
    assert cut_layers(spec, spec.num_hidden_layers) == spec


@pytest.mark.parametrize("layers", [0, -1, 44])
def test_cut_layers_refuses_other_depths(layers):
    with pytest.raises(ConfigError, match=rf"{layers} layers.*expected 1 to 43"):
        cut_layers(FLASH, layers)
