"""Loads the plugin library into a real TensorRT registry and prints what came of it, as JSON.

python -m tests.plugins.trt.registry_check PACKAGE LIBRARY
"""

import importlib
import json
import sys

import numpy as np
import torch

from dsv4_trt.plugins.ops import OPS
from dsv4_trt.plugins.plugin_fields import fields_of
from tests.plugins.graph_calls import all_calls

ARRAYS = {"INT32": np.int32, "FLOAT32": np.float32, "CHAR": np.int8}


def logger(trt, messages):
    class Logger(trt.ILogger):
        def __init__(self):
            trt.ILogger.__init__(self)

        def log(self, severity, message):
            if severity.name in ("ERROR", "INTERNAL_ERROR"):
                messages.append(message)

    return Logger()


def collection(trt, fields):
    return trt.PluginFieldCollection(
        [
            trt.PluginField(
                f.name, np.frombuffer(f.data, ARRAYS[f.type]), getattr(trt.PluginFieldType, f.type)
            )
            for f in fields
        ]
    )


def create_all(trt, registry, phase):
    """How many plugins of real calls were made, and which were not."""
    refused, made = [], 0
    for name, call in all_calls().items():
        creator = registry.get_creator(call.op.name, "1", "dsv4")
        plugin = creator.create_plugin(name, collection(trt, fields_of(call.op, call.attrs)), phase)
        made += plugin is not None
        if plugin is None:
            refused.append(name)
    return made, refused


def main(package, library):
    trt = importlib.import_module(package)
    messages = []
    log = logger(trt, messages)
    runtime = make_runtime(
        trt, package, log
    )  # whose logger the registry knows, where one can be made
    registry = trt.get_plugin_registry()
    report = {"version": trt.__version__, "loaded": bool(registry.load_library(library))}
    report["creators"] = {
        op: registry.get_creator(op, "1", "dsv4").name
        for op in OPS
        if registry.get_creator(op, "1", "dsv4") is not None
    }
    report["other_namespace"] = registry.get_creator("linear", "1", "") is not None
    for phase in (trt.TensorRTPhase.BUILD, trt.TensorRTPhase.RUNTIME):
        report[phase.name] = create_all(trt, registry, phase)
    messages.clear()
    wrong = {
        "missing": [],
        "choice": fields_of(OPS["linear"], dict.fromkeys(OPS["linear"].attrs, "fp9")),
        "unknown": fields_of(OPS["rms_norm"], {"eps": 1.0}),
    }
    for name, fields in wrong.items():
        plugin = registry.get_creator("linear", "1", "dsv4").create_plugin(
            "wrong", collection(trt, fields), trt.TensorRTPhase.BUILD
        )
        assert plugin is None, name
    report["messages"] = messages
    report["has_runtime"] = runtime is not None
    print(json.dumps(report))


def make_runtime(trt, package, log):
    """A runtime, or None where the package makes none: the process would crash when it ends.

    The lean runtime needs a GPU; that of TensorRT-RTX none, or one of the architectures that it knows.
    """
    if (package == "tensorrt_lean") != torch.cuda.is_available():
        return None
    return trt.Runtime(log)


if __name__ == "__main__":
    main(*sys.argv[1:])
