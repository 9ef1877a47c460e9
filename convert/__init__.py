"""Official DeepSeek-V4 checkpoints in, rank checkpoints in kernel layout out."""

if __name__ != "dsv4_trt.convert":
    raise ImportError("import dsv4_trt.convert, not convert")
