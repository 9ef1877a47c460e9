"""What the routes of a server share."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from dsv4_trt.errors import Unavailable
from dsv4_trt.runtime.chat.markup import Markup
from dsv4_trt.runtime.server.engine_client import EngineClient
from dsv4_trt.runtime.server.executor_messages import EngineInfo
from dsv4_trt.runtime.server.failures import Failure, Refusal
from dsv4_trt.runtime.server.serve_config import ServeConfig
from dsv4_trt.runtime.text.tokenizer import Tokenizer


@dataclass(slots=True, kw_only=True)
class Served:
    """One model behind one port."""

    config: ServeConfig
    client: EngineClient
    tokenizer: Tokenizer
    markup: Markup
    model_name: str
    started: float = field(default_factory=time.time)  # Unix seconds
    is_draining: bool = False  # running requests end, no new one begins

    @property
    def info(self) -> EngineInfo:
        """Sizes and names of the engine."""
        return self.client.info

    def check_open(self) -> None:
        """Raise `Unavailable` while no request can be taken."""
        if self.is_draining:
            raise Unavailable("the server is shutting down; send the request to another one")
        self.client.check_ready()

    def check_model(self, name: str | None) -> None:
        """Raise `Refusal` for any model but the served one; None means that one."""
        if name not in (None, self.model_name):
            raise Refusal(
                Failure(
                    status=404,
                    kind="invalid_request_error",
                    message=f"there is no model {name!r}; this server has {self.model_name!r}",
                    parameter="model",
                    code="model_not_found",
                )
            )
