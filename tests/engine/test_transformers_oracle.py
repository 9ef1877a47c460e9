"""Logits of random models against transformers, fp32 and eager: a second, unrelated implementation."""

import logging
import warnings
from dataclasses import replace

import pytest
import torch

from dsv4_trt.convert.random_checkpoint import write_random_checkpoint
from dsv4_trt.presets import TINY
from tests.workshop import logits, random_ids

pytestmark = pytest.mark.oracle

LIMIT = 1e-3  # logits of scale 5
LENGTHS = [*range(1, 10), *range(127, 131), *range(255, 259), 513]
MODELS = {
    "csa-hca": replace(TINY, vocab_size=512),
    "no-swa": replace(
        TINY,
        vocab_size=512,
        num_hidden_layers=3,
        num_hash_layers=1,
        compress_ratios=(128, 4, 4),
        num_attention_heads=16,
        o_groups=4,
        index_topk=8,
        num_experts_per_tok=4,
    ),
}


def load_oracle(checkpoint):
    """transformers' model with every weight dequantized to fp32."""
    transformers = pytest.importorskip("transformers", minversion="5.17")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    transformers.utils.logging.disable_progress_bar()
    config = transformers.FineGrainedFP8Config(dequantize=True, weight_block_size=(128, 128))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = transformers.AutoModelForCausalLM.from_pretrained(
            checkpoint,
            quantization_config=config,
            dtype=torch.float32,
            attn_implementation="eager",
        )
    return model.float().eval()


@pytest.fixture(scope="module", params=MODELS, ids=list(MODELS))
def models(request, tmp_path_factory, workshop):
    checkpoint = tmp_path_factory.mktemp(request.param) / "hf"
    write_random_checkpoint(MODELS[request.param], checkpoint, seed=7)
    return load_oracle(checkpoint), workshop.engine(checkpoint)


@pytest.mark.parametrize("length", LENGTHS)
def test_logits_equal_transformers(models, length):
    oracle, engine = models
    ids = random_ids(length, seed=length)
    with torch.inference_mode():
        expected = oracle(torch.tensor([ids])).logits[0]
    found = logits(engine, ids)["prefill"]
    assert 0.5 < expected.std() < 20, "the random model is not well conditioned"
    assert (found - expected).abs().max() < LIMIT
    assert found.argmax(dim=-1).tolist() == expected.argmax(dim=-1).tolist()
