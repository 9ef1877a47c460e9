"""The model that a request names must be the one that is served."""

from __future__ import annotations

from dsv4_trt.runtime.server.failures import Failure, Refusal
from dsv4_trt.runtime.server.served import Served


def check_model(served: Served, model: str | None) -> None:
    """Refuse any other model with 404, as OpenAI's API does; none means the served one."""
    if model not in (None, served.model_name):
        raise Refusal(
            Failure(
                status=404,
                kind="invalid_request_error",
                message=f"there is no model {model!r}; this server has {served.model_name!r}",
                parameter="model",
                code="model_not_found",
            )
        )
