"""All cases, the most important ones first."""

from __future__ import annotations

from op_speed_parts import (
    attention_cases,
    cache_cases,
    expert_cases,
    product_cases,
    residual_cases,
    sampling_cases,
)
from op_speed_parts.case import Case


def cases() -> list[Case]:
    parts = (
        cache_cases,
        product_cases,
        expert_cases,
        attention_cases,
        residual_cases,
        sampling_cases,
    )
    return [case for part in parts for case in part.cases()]
