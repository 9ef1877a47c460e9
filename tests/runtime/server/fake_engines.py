"""Executors over the fake engine, opened inside the executor's process as a real one is."""

import os
import time

from dsv4_trt.contract import ENCODER_REVISION
from dsv4_trt.errors import ConfigError
from dsv4_trt.runtime.server.executor_messages import EngineInfo
from dsv4_trt.runtime.server.executor_process import Opened
from tests.runtime.executor.serving import Serving

DEADLY_TOKEN = 63  # a prompt that begins with it ends the process in the next step
FAULTY_TOKEN = 62  # the executor itself fails


def open_fake(options):
    """`options`: "refuse" raises, "exit" ends the process, "step_seconds" slows steps down.

    "exit_while" is a file that ends the process once, if it is there.
    """
    if options.get("refuse"):
        raise ConfigError("the fake engine was told to refuse")
    if options.get("exit"):
        os._exit(7)
    if (file := options.get("exit_while")) is not None and file.exists():
        file.unlink()
        os._exit(7)
    serving = Serving(**options.get("serving", {}))
    executor = serving.executor
    executor.clock = time.monotonic
    step = executor.step

    def deadly_step():
        first = {live.request.prompt_ids[0] for live in list(executor._live.values())}
        if DEADLY_TOKEN in first:
            os._exit(3)
        if FAULTY_TOKEN in first:
            raise ArithmeticError("the executor was told to fail")
        time.sleep(options.get("step_seconds", 0))
        return step()

    executor.step = deadly_step
    info = EngineInfo(
        spec=serving.engine.spec,
        build=serving.engine.build,
        engine="native",
        device="cpu",
        precision="exact",
        identity="fake",
        encoder_revision=ENCODER_REVISION,
        pool_pages={},
    )
    return Opened(executor, info)
