"""Whatever steps the runtime makes, some profile of the build holds each of them."""

from dataclasses import replace

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4_trt.builder.lowering.profiles import profiles
from dsv4_trt.contract import BuildSpec
from dsv4_trt.kv_layout import Bucket, solve
from dsv4_trt.kv_plan import KvPlan
from dsv4_trt.presets import TINY, cut_layers
from dsv4_trt.runtime.batch import StepOutput, StepRecord
from dsv4_trt.runtime.cuda.step_size import StepSize
from dsv4_trt.runtime.kv.retention import Retention, tails_per_step
from dsv4_trt.runtime.stepper import Stepper
from dsv4_trt.step_ladders import step_ladders

SPEC = cut_layers(TINY, 3)
LAYOUT = solve(SPEC, "fp8", "fp4")


class Recorder:
    """An engine that only notes the sizes of its steps and tables."""

    def __init__(self, build):
        self.spec, self.build, self.layout, self.owner = SPEC, build, LAYOUT, None
        self.ladders = step_ladders(build)
        self.plan = KvPlan(layout=LAYOUT, num_pages=dict.fromkeys(Bucket, 1 << 12))
        self.sizes, self.tables = [], {}

    def step(self, batch, *, want_streams=False):
        self.warm_up(batch)
        return StepOutput(logits=torch.zeros(batch.logits_rows.size, 1), streams=None)

    def warm_up(self, batch):
        self.sizes.append(StepSize.of(batch))
        self.tables |= {name: table.shape for name, table in batch.block_tables.items()}


@st.composite
def builds(draw):
    """A build, and what a runtime that asks for less makes of it."""
    most = draw(st.integers(1, 40))
    build = BuildSpec(
        max_batch_size=most,
        max_num_tokens=draw(st.just(most) | st.integers(most, 700)),
        max_seq_len=draw(st.sampled_from([1, 2, 255, 257, 1024])),
        mtp=False,
    )
    if draw(st.booleans()):
        return build, build
    seqs = draw(st.integers(1, build.max_batch_size))
    smaller = replace(
        build,
        max_batch_size=seqs,
        max_num_tokens=draw(st.integers(seqs, build.max_num_tokens)),
        max_seq_len=draw(st.integers(1, build.max_seq_len)),
    )
    return build, smaller


def draw_record(draw, kv, build):
    """A step: some of the open sequences decode, others begin or go on, up to the limits."""
    ladders = step_ladders(build)
    rows = [row for row in range(build.max_batch_size) if kv.is_open(row)]
    going = [row for row in rows if 0 < kv.num_tokens[row] < build.max_seq_len]
    decodes = going[: draw(st.integers(0, len(going)))]
    left = build.max_num_tokens - (ladders.seqs.rung(len(decodes)) if decodes else 0)
    chunks, lengths = list(decodes), [1] * len(decodes)
    for row in rows:
        room = min(left, build.max_seq_len - int(kv.num_tokens[row]))
        if row in decodes or room < 1 or draw(st.booleans()):
            continue
        lengths.append(draw(st.just(room) | st.integers(1, room)))
        chunks.append(row)
        left -= lengths[-1]
    if not chunks:
        return None
    wanted = draw(st.sampled_from(["none", "last", "all", "some"]))
    logits = {"none": [0] * len(chunks), "last": [1] * len(chunks), "all": lengths}.get(wanted)
    if logits is None:
        logits = [draw(st.integers(0, length)) for length in lengths]
    return StepRecord(
        rows=np.array(chunks, np.int32),
        lengths=np.array(lengths, np.int32),
        token_ids=np.zeros(sum(lengths), np.int32),
        num_logits=np.array(logits, np.int32),
        num_decodes=len(decodes),
    )


def holds(profile, sizes):
    return all(profile.sizes[name][0] <= n <= profile.sizes[name][2] for name, n in sizes.items())


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_every_step_fits_a_profile(data):
    build, asked = data.draw(builds())
    found = profiles(build, LAYOUT)
    retention = data.draw(st.sampled_from([None, Retention(), Retention(1), Retention(3)]))
    tails = tails_per_step(retention, min(asked.max_num_tokens, asked.max_seq_len))
    engine = Recorder(asked)
    stepper = Stepper(engine, tails_per_step=tails)
    for _ in stepper.warm_up():
        pass
    for _ in range(asked.max_batch_size):
        stepper.kv.open()
    for _ in range(4):
        record = draw_record(data.draw, stepper.kv, asked)
        if record is not None:
            stepper.run(record)
    for size in engine.sizes:
        fitting = [p.name for p in found if holds(p, size.by_name())]
        assert fitting, size
        assert not size.is_decode or fitting[0] == "decode", size
    for name, (_, rows, pages) in engine.tables.items():
        for profile in found:
            assert holds(profile, {"num_table_rows": rows, f"pages.{name}": pages})
