"""How an executor serves requests, checked against the engine that it takes over."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dsv4_trt.contract import BuildSpec
from dsv4_trt.errors import ConfigError
from dsv4_trt.kv_plan import check_plan
from dsv4_trt.runtime.engine import Engine
from dsv4_trt.runtime.kv.retention import Retention, tails_per_step


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorConfig:
    """How requests are served."""

    max_num_seqs: int  # that run at the same time
    max_num_tokens: int  # of one step
    max_queue_size: int = 1024  # sequences that may wait
    retention: Retention | None = field(default_factory=Retention)  # None = no prefix cache

    def tails_per_step(self, build: BuildSpec) -> int:
        """Boundaries that the chunk of one sequence can leave behind."""
        return tails_per_step(self.retention, min(self.max_num_tokens, build.max_seq_len))

    def check(self, engine: Engine) -> None:
        """Raise `ConfigError` or `CapacityError` if the engine can not serve like this."""
        build = engine.build
        for name, value, most in (
            ("max_num_seqs", self.max_num_seqs, build.max_batch_size),
            ("max_num_tokens", self.max_num_tokens, build.max_num_tokens),
        ):
            if not 1 <= value <= most:
                raise ConfigError(f"{name} is {value}; expected 1 to {most}, what the engine takes")
        if self.max_num_tokens < self.max_num_seqs:
            raise ConfigError(
                f"max_num_tokens {self.max_num_tokens} is below max_num_seqs {self.max_num_seqs}; a "
                "decode step needs a token for each sequence"
            )
        if self.max_queue_size < 1:
            raise ConfigError(f"max_queue_size is {self.max_queue_size}; expected at least 1")
        plan = replace(engine.plan, layout=engine.plan.layout.trunk)  # nothing is drafted
        check_plan(plan, build.max_seq_len, self.tails_per_step(build))
