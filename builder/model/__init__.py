"""DeepSeek-V4 as a graph: one file per part of the model."""
