"""Steps that are refused, or fail, change nothing; an engine that only records batches is enough."""

from types import SimpleNamespace

import numpy as np
import pytest

from dsv4_trt.contract import BuildSpec
from dsv4_trt.errors import CapacityError, RequestError
from dsv4_trt.kv_layout import solve
from dsv4_trt.kv_plan import plan_for_sequences
from dsv4_trt.presets import TINY
from dsv4_trt.runtime.stepper import Chunk, Stepper


class Recorder:
    """Gives the batch back instead of running it."""

    spec = TINY
    build = BuildSpec(max_batch_size=3, max_num_tokens=600, max_seq_len=700)
    layout = solve(TINY, "fp8", "fp4", mtp=True)
    plan = plan_for_sequences(layout, [700, 700])
    ladders = None

    def step(self, batch, *, want_streams=False):
        return SimpleNamespace(batch=batch, logits=np.zeros((len(batch.logits_rows), 4)))

    def step_mtp(self, batch, streams):
        raise ArithmeticError("the engine failed")


@pytest.fixture
def stepper():
    return Stepper(Recorder())


def free(stepper):
    return {bucket: pool.num_free for bucket, pool in stepper.pools.items()}


def test_a_batch_says_where_every_token_is(stepper):
    one, two = stepper.kv.open(), stepper.kv.open()
    stepper.step([Chunk(row=one, token_ids=[5, 6, 7])])
    chunks = [Chunk(row=one, token_ids=[8]), Chunk(row=two, token_ids=[1, 2], all_logits=True)]
    batch = stepper.step(chunks).batch
    assert batch.token_ids.tolist() == [8, 1, 2]
    assert batch.positions.tolist() == [3, 0, 1]
    assert batch.seq_ids.tolist() == [0, 1, 1]
    assert batch.query_start.tolist() == [0, 1, 3]
    assert batch.seq_lens.tolist() == [4, 2]
    assert batch.logits_rows.tolist() == [0, 1, 2]
    assert batch.num_decodes == 1
    assert stepper.kv.num_tokens[[one, two]].tolist() == [4, 2]


@pytest.mark.parametrize("bad", [-1, TINY.vocab_size, 2**31, 2**70, 1.5, None])
def test_a_token_that_is_none_is_refused_and_costs_no_page(stepper, bad):
    row, before = stepper.kv.open(), free(stepper)
    with pytest.raises(RequestError, match=rf"token id {bad!r}; the vocabulary is 0 to 129279"):
        stepper.step([Chunk(row=row, token_ids=[bad, bad])])
    assert free(stepper) == before
    assert stepper.kv.num_tokens[row] == 0


@pytest.mark.parametrize("counts", [(), (0,), (2, 0), (0, 2)])
def test_every_sequence_of_a_step_feeds_a_token(stepper, counts):
    before = free(stepper)
    chunks = [Chunk(row=stepper.kv.open(), token_ids=[7] * count) for count in counts]
    with pytest.raises(RequestError, match="at least one sequence and one token for each"):
        stepper.step(chunks)
    assert free(stepper) == before


def test_a_sequence_is_open_and_comes_once_in_a_step(stepper):
    one, closed = stepper.kv.open(), stepper.kv.open()
    stepper.kv.close(closed)
    for rows in ([one, one], [one, closed], [closed]):
        before = free(stepper)
        with pytest.raises(AssertionError, match="sequence"):
            stepper.step([Chunk(row=row, token_ids=[1]) for row in rows])
        assert free(stepper) == before


def test_no_more_sequences_than_a_step_takes(stepper):
    for _ in range(3):
        stepper.kv.open()
    with pytest.raises(CapacityError, match="all 3 sequences of the block tables are in use"):
        stepper.kv.open()


@pytest.mark.parametrize("counts", [(601,), (500, 500)])
def test_a_step_takes_max_num_tokens(stepper, counts):
    chunks = [Chunk(row=stepper.kv.open(), token_ids=[7] * count) for count in counts]
    with pytest.raises(CapacityError, match="max_num_tokens 600"):
        stepper.step(chunks)


def test_a_sequence_ends_at_max_seq_len(stepper):
    row = stepper.kv.open()
    for count in (600, 99, 1):
        stepper.step([Chunk(row=row, token_ids=[7] * count)])
    with pytest.raises(CapacityError, match=r"701 tokens in a sequence .* max_seq_len 700"):
        stepper.step([Chunk(row=row, token_ids=[7])])
    assert stepper.kv.num_tokens[row] == 700


def test_a_failing_engine_leaves_the_pages_as_they_were(stepper):
    row, before = stepper.mtp_kv.open(), free(stepper)
    with pytest.raises(ArithmeticError):
        stepper.step_mtp([Chunk(row=row, token_ids=[7] * 300)], streams=np.zeros(0))
    assert free(stepper) == before
    assert stepper.mtp_kv.num_tokens[row] == 0


def test_a_new_stepper_takes_the_engine(stepper):
    """Two would hand out the same pages, and each would overwrite what the other keeps there."""
    row = stepper.kv.open()
    stepper.step([Chunk(row=row, token_ids=[7])])
    later = Stepper(stepper.engine)
    later.step([Chunk(row=later.kv.open(), token_ids=[7])])
    with pytest.raises(AssertionError, match="belong to a stepper made later"):
        stepper.step([Chunk(row=row, token_ids=[7])])
