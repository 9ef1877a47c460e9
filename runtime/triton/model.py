"""What Triton's Python backend looks for; imported by the model.py of an exported repository."""

from __future__ import annotations

import faulthandler
import json
from pathlib import Path
from typing import Any

import triton_python_backend_utils as backend  # type: ignore[import-not-found]  # of Triton's stub

from dsv4_trt import __version__
from dsv4_trt.errors import Dsv4Error
from dsv4_trt.runtime.triton.engine_options import EngineOptions
from dsv4_trt.runtime.triton.gauges import STDERR, Gauges
from dsv4_trt.runtime.triton.orphan import end_with_parent
from dsv4_trt.runtime.triton.service import Service

FINALIZE_SECONDS = 15


class TritonPythonModel:
    """One model instance: an `LLM` in the process of Triton's stub."""

    def initialize(self, args: dict[str, str]) -> None:
        """Open the engine that config.pbtxt names; an error keeps the model from being ready."""
        end_with_parent()
        config = json.loads(args["model_config"])
        try:
            options = EngineOptions.from_parameters(config.get("parameters", {}))
            llm = options.open(Path(args["model_repository"]))
        except Dsv4Error as error:
            raise backend.TritonModelException(str(error)) from error
        backend.Logger.log_info(
            f"dsv4-trt {__version__}: {args['model_name']} serves {llm.bundle.path}"
        )
        self._service = Service(
            llm, backend, has_batch_dim=config["max_batch_size"] > 0, gauges=_gauges(args)
        )

    def execute(self, requests: list[Any]) -> None:
        """Take requests in; their answers go through their response senders."""
        for request in requests:
            self._service.take(request)

    def finalize(self) -> None:
        """End the engine, and the process if that does not end: Triton would wait for it."""
        _end_within(FINALIZE_SECONDS)
        self._service.close()
        _end_within(FINALIZE_SECONDS)  # again: the metrics use the same, only, timer
        del self._service  # with Triton's metrics, while the server still answers


def _gauges(args: dict[str, str]) -> Gauges | None:
    try:
        return Gauges(backend, {"model": args["model_name"], "version": args["model_version"]})
    except backend.TritonModelException as error:
        backend.Logger.log_info(f"dsv4-trt: the engine's metrics are not shown: {error}")
        return None


def _end_within(seconds: float) -> None:
    faulthandler.dump_traceback_later(seconds, exit=True, file=STDERR)
