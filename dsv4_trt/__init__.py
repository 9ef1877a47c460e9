"""dsv4-trt: build and run DeepSeek-V4 on NVIDIA Hopper and Blackwell."""

__version__ = "0.1.0"
