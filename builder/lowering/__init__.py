"""From a graph to a TensorRT plan.

layers           what a graph is to TensorRT: plugins, and a few native layers
lower_rtx        those as ONNX, which TensorRT-RTX parses
lower_tensorrt   those as layers of a TensorRT 11 network
fields           a plugin's attributes as TensorRT's fields
twins            plugins in Python, for builds without the plugin library
profiles         ranges of sizes that a plan is good for
plan             builds a plan and looks for copies that should not be
log              what TensorRT says meanwhile
record           what the plan turned out to be
timing_cache     the file of timings that builds can share
job              one build as data
process          runs a job in a process of its own
child            that process
process_state    what it begins with, so that the same job gives the same plan
"""
