"""Steps padded to the rungs of ladders: an engine meets few shapes, and says the same."""

import pytest

from dsv4_trt.ladder import Ladder, StepLadders
from tests.runtime.executor.fake_engine import BUILD, FakeEngine
from tests.runtime.executor.serving import Serving, prompt, request

SEQS, TOKENS = Ladder((1, 2, 5, 8)), Ladder((4, 16, 64, 200, 512))


def laddered(**config):
    return Serving(FakeEngine(ladders=StepLadders(seqs=SEQS, tokens=TOKENS)), **config)


@pytest.mark.parametrize("tokens", [512, 64])
@pytest.mark.parametrize("retention", ["newest", "every"])
def test_ladders_change_nothing(tokens, retention):
    serving = laddered(tokens=tokens, retention=retention)
    requests = [
        request(
            f"{n}", prompt(length, n), max_tokens=5 + 3 * n, n=1 + n % 2, temperature=1.0, seed=n
        )
        for n, length in enumerate((1, 3, 600, 127, 130, 257, 20, 9, 400, 5, 70, 800))
    ]
    serving.finish(*requests, check=True).check_outputs()
    serving.check_no_leak()


def test_every_step_is_on_a_rung():
    serving = laddered()
    serving.finish(*(request(f"{n}", prompt(30 * n + 1, n), max_tokens=9) for n in range(20)))
    serving.check_outputs()
    for seqs, tokens, logits in serving.engine.shapes:
        assert seqs in SEQS.rungs or seqs > SEQS.maximum
        assert tokens in TOKENS.rungs
        assert logits in SEQS.rungs
    assert len(serving.engine.shapes) < 30


@pytest.mark.parametrize("decodes", range(1, 8))
def test_prompts_find_room_beside_padded_decodes(decodes):
    """As many sequences as may run, some of which only begin."""
    serving = laddered()
    serving.submit(*(request(f"d{n}", prompt(9, n), max_tokens=20) for n in range(decodes)))
    serving.step(3)
    late = [request(f"p{n}", prompt(40, n)) for n in range(BUILD.max_batch_size - decodes)]
    serving.finish(*late).check_outputs()
