"""Graphs of models without weights, and real plans of them, built once for the whole run."""

from dataclasses import replace
from functools import cache

from dsv4_trt.builder.bundle import serving_graphs
from dsv4_trt.builder.dummy_checkpoint import dummy_checkpoint
from dsv4_trt.builder.lowering.job import PlanJob
from dsv4_trt.builder.lowering.process import run_job
from dsv4_trt.builder.lowering.profiles import profiles
from dsv4_trt.contract import BuildSpec
from dsv4_trt.mapping import Mapping
from dsv4_trt.presets import FLASH, PRO, TINY, cut_layers

BUILD = BuildSpec(engine="tensorrt-rtx", target="sm_120a", max_seq_len=65536)
MODELS = {
    "tiny": (TINY, 1),
    "tiny-tp2": (TINY, 2),
    "flash-4": (cut_layers(FLASH, 4), 1),
    "pro-4": (cut_layers(PRO, 4), 1),
}


@cache
def graphs(model):
    """`({"trunk": ..., "mtp": ...}, layout)` at the official precision, for one rank of some."""
    spec, ranks = MODELS[model]
    checkpoint = dummy_checkpoint(spec, mtp=True)
    checkpoint = replace(checkpoint, mapping=Mapping(tp_size=ranks, moe_ep_size=ranks))
    return serving_graphs(checkpoint, BUILD)


def job(graph, layout, *, target="sm_120a"):
    """The job of one plan with Python twins."""
    return PlanJob(
        engine="tensorrt-rtx",
        target=target,
        graph=graph,
        profiles=profiles(BUILD, layout),
        plugin_library=None,
    )


def build(model, part, folder, *, target="sm_120a"):
    """The record of a real TensorRT-RTX plan; the plan and its log are in `folder`."""
    found, layout = graphs(model)
    record = run_job(job(found[part], layout, target=target), folder)
    return record.plans[found[part].name]
