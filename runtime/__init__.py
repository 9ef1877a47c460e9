"""Runs bundles. Never imports builder or convert.

llm.py             the Python API; llm_*, kv_cache_config, pool_plan: what it opens and how
request_output.py  a caller's handle; completion_output, executor_thread: how it fills
executor.py        the loop over steps; generation, update, metrics: what it keeps and tells
schedule/          which sequences run in a step
stepper.py         one step: step_arrays (metadata), kv/ (pages), engine
engine.py          the interface; native, open, bundle, weights, slabs: the engine that is there
cuda/, tensorrt/   engines on a GPU: kernels launched by us, or by TensorRT
sampling/, text/   logits to tokens, tokens to text
chat/, guided/     V4's chat format, structured output
server/, triton/   HTTP APIs and a page; Triton Inference Server
bench/             load for servers and engines
logits.py          the model's numbers for given prompts, without any of the above but the stepper
"""

if __name__ != "dsv4_trt.runtime":
    raise ImportError("import dsv4_trt.runtime, not runtime")
