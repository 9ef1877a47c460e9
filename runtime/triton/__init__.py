"""DeepSeek-V4 as a model of Triton Inference Server: the repository, and the model inside it."""
