"""The interface every engine has; nothing above it knows which one runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from dsv4_trt.contract import BuildSpec
from dsv4_trt.errors import ConfigError
from dsv4_trt.kv_layout import Bucket, KvLayout
from dsv4_trt.kv_plan import KvPlan
from dsv4_trt.ladder import StepLadders
from dsv4_trt.model_spec import ModelSpec
from dsv4_trt.runtime.batch import IntArray, StepBatch, StepOutput

if TYPE_CHECKING:
    import torch

    from dsv4_trt.runtime.cuda.profile import Profiler


def no_mtp_block() -> ConfigError:
    """What `step_mtp` of an engine without the block raises."""
    return ConfigError(
        "this engine was built without the MTP block; build with --mtp from a checkpoint "
        "converted with --mtp keep"
    )


class Engine(Protocol):
    """Weights, KV slabs and a network that turns one step's batch into logits."""

    spec: ModelSpec
    build: BuildSpec
    layout: KvLayout
    plan: KvPlan
    ladders: StepLadders | None  # sizes that steps are padded to
    owner: object  # the claim of who hands out the pages of the plan: the stepper made last

    def step(self, batch: StepBatch, *, want_streams: bool = False) -> StepOutput:
        """Run the trunk; KV pages named by the batch are updated in place."""
        ...

    def step_mtp(self, batch: StepBatch, streams: torch.Tensor) -> StepOutput:
        """Run the MTP block on the trunk's streams; `batch.token_ids` are shifted by one."""
        ...

    def warm_up(self, batch: StepBatch) -> None:
        """Prepare for steps of this batch's size; it holds nothing but padding, and no page changes."""
        ...

    def copy_pages(self, bucket: Bucket, sources: IntArray, targets: IntArray) -> None:
        """Copy whole pages of a bucket, `sources [n]` onto `targets [n]`, before the next step."""
        ...


@runtime_checkable
class CanProfile(Protocol):
    """An engine that can say where its time goes."""

    def profile(self) -> Profiler:
        """From here on the trunk runs launch by launch, and the profiler adds up what each op takes."""
        ...
