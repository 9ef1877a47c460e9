"""dsv4-trt: build and run DeepSeek-V4, on a CPU or on one NVIDIA GPU."""

__version__ = "0.1.0"
