from dataclasses import replace

import pytest

from dsv4_trt.parameters import count_parameters
from dsv4_trt.presets import FLASH, PRO, TINY


@pytest.mark.parametrize(
    ("spec", "total", "active", "mtp"),
    [(FLASH, 284.33e9, 13.27e9, 6.61e9), (PRO, 1572.99e9, 48.85e9, 25.84e9)],
    ids=["flash", "pro"],
)
def test_released_models_have_the_published_counts(spec, total, active, mtp):
    counts = count_parameters(spec)
    assert counts.total == pytest.approx(total, abs=0.008e9)
    assert counts.active == pytest.approx(active, abs=0.005e9)
    assert counts.mtp == pytest.approx(mtp, abs=0.005e9)


def test_flash_differs_from_the_reported_count_only_by_router_biases():
    biases = 40 * FLASH.n_routed_experts
    assert count_parameters(FLASH).total == 284_332_230_231 + biases


def test_storage_and_mtp_do_not_change_the_trunk():
    counts = count_parameters(TINY)
    assert count_parameters(replace(TINY, expert_dtype="fp8")) == counts
    without = count_parameters(replace(TINY, num_nextn_predict_layers=0))
    assert (without.total, without.active, without.mtp) == (counts.total, counts.active, 0)


def test_active_grows_with_the_experts_of_a_token():
    more = replace(TINY, num_experts_per_tok=3)
    expert = 3 * TINY.hidden_size * TINY.moe_intermediate_size
    grown = count_parameters(more).active - count_parameters(TINY).active
    assert grown == TINY.num_hidden_layers * expert
