"""A rank checkpoint's spec in, an engine bundle with V4 as a typed graph out."""

if __name__ != "dsv4_trt.builder":
    raise ImportError("import dsv4_trt.builder, not builder")
