"""The op table, each op in plain torch under reference/, and the kernels."""

if __name__ != "dsv4_trt.plugins":
    raise ImportError("import dsv4_trt.plugins, not plugins")
