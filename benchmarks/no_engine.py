"""An engine that does nothing, to measure and simulate all that is around one."""

from __future__ import annotations

from typing import cast

import numpy as np

from dsv4_trt.contract import BuildSpec
from dsv4_trt.kv_plan import KvPlan
from dsv4_trt.presets import FLASH
from dsv4_trt.runtime.batch import StepBatch, StepOutput
from dsv4_trt.runtime.engine import Engine


class NoEngine:
    """What a stepper asks of an engine."""

    spec = FLASH
    ladders = None
    owner: object = None

    def __init__(self, plan: KvPlan, build: BuildSpec) -> None:
        self.plan = plan
        self.layout = plan.layout
        self.build = build

    def step(self, batch: StepBatch, *, want_streams: bool = False) -> StepOutput:
        logits = np.empty((len(batch.logits_rows), 0), np.float32)
        return StepOutput(logits=logits, streams=None)  # type: ignore[arg-type]


def no_engine(plan: KvPlan, build: BuildSpec) -> Engine:
    """A `NoEngine` as the engine that it passes for."""
    return cast(Engine, NoEngine(plan, build))
