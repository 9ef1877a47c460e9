"""Runs bundles: engine, KV pages, batches, sampler. Never imports builder or convert."""

if __name__ != "dsv4_trt.runtime":
    raise ImportError("import dsv4_trt.runtime, not runtime")
