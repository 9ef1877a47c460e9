"""Bundles with plans for `fake_tensorrt`: native ones, with records as the builder makes them."""

import hashlib
import json
import os
import shutil

from dsv4_trt.builder.lowering.layers import lower
from dsv4_trt.builder.lowering.profiles import profiles
from dsv4_trt.contract import CONFIG_FILE, MANIFEST_FILE, PLAN_FILE, engine_file
from dsv4_trt.plan_record import BuildRecord, PlanLayer, PlanRecord
from dsv4_trt.runtime.bundle import open_bundle
from tests.runtime.tensorrt.fake_tensorrt import MAGIC

TARGET = "sm_120a"
VERSIONS = {"tensorrt": "11.1.0.106", "tensorrt-rtx": "1.7.1.116"}


def plan_bundle(native_dir, path, engine="tensorrt", **changes):
    """Write a bundle with plans of a native one's graphs; `changes` are of its record."""
    shutil.copytree(native_dir, path, copy_function=os.link)
    for name in (CONFIG_FILE, MANIFEST_FILE):  # links so far
        data = (path / name).read_bytes()
        (path / name).unlink()
        (path / name).write_bytes(data)
    rewrite(path, CONFIG_FILE, lambda d: d["build_config"].update(engine=engine, target=TARGET))
    bundle = open_bundle(native_dir)
    ranges = profiles(bundle.build, bundle.layout)
    plans = {graph.name: record_of(graph, ranges) for graph in bundle.graphs}
    record = BuildRecord(
        engine=engine,
        target=TARGET,
        tensorrt_version=VERSIONS[engine],
        plugins="11.1.0",
        plans=plans,
    )
    write(path, PLAN_FILE, json.dumps(record.to_json() | changes))
    for graph in bundle.graphs:
        plan = plan_of(graph, plans[graph.name], VERSIONS[engine])
        write(path, engine_file(0, graph.name), json.dumps(plan))
    return path


def record_of(graph, ranges):
    """What the builder records of a graph's plan."""
    lowered = lower(graph)
    layers = []
    for layer in lowered.layers:
        outputs = [tensor.name for tensor in layer.outputs]
        layers.append(
            PlanLayer(
                name=layer.name,
                kind="PLUGIN_V3" if layer.op else layer.kind.upper(),
                op=layer.op,
                attrs=layer.attrs,
                inputs=layer.inputs,
                outputs=tuple(outputs),
                aliases={outputs[to]: layer.inputs[i] for to, i in layer.aliases.items()},
            )
        )
    return PlanRecord(
        graph=graph.name,
        nbytes=0,
        inputs=lowered.inputs,
        outputs=lowered.outputs,
        layers=tuple(layers),
        profiles=ranges,
        num_streams=3,
        stream_of={},
        device_code=(),
        seconds=0.0,
        peak_bytes=0,
    )


def plan_of(graph, record, version):
    """A plan as the fake TensorRT reads it."""
    modes = {"INPUT": record.inputs, "OUTPUT": record.outputs}
    tensors = {
        tensor.name: {
            "mode": mode,
            "dtype": tensor.dtype,
            "shape": tensor.shape,
            "location": "DEVICE",
            "format": "LINEAR",
            "aliased": None,
        }
        for mode, found in modes.items()
        for tensor in found
    }
    return {
        "magic": MAGIC,
        "version": version,
        "host_code": False,
        "graph": graph.to_json(),
        "tensors": tensors,
        "profiles": [profile.sizes for profile in record.profiles],
        "memory": [1 << 16, 1 << 20],
        "num_aux_streams": 2,
    }


def write(path, name, text):
    """Write a file of a bundle, and its digest into the manifest."""
    (path / name).write_text(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    manifest = json.loads((path / MANIFEST_FILE).read_text())
    manifest["files"][name] = digest
    (path / MANIFEST_FILE).write_text(json.dumps(manifest))


def rewrite(path, name, change):
    """Change a JSON file of a bundle by a function of its data."""
    data = json.loads((path / name).read_text())
    change(data)
    write(path, name, json.dumps(data))
