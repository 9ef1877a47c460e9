"""The native engine on a GPU: the graph as one list of kernel launches, captured where steps repeat.

open           the engine with its kernels, which are built if they are not there
engine         the native engine: a program for each graph
device_engine  what it shares with that of TensorRT: weights, slabs, networks behind the `Engine` interface
network        one graph's program, its captured graphs by step size, what they read and write
step_program   what a network asks of a program
program        a graph's launches: built once, set to the size of each step
placed         where a tensor is
step_size      how large a step is, and can be
schedule       which stream a node runs on, what it waits for, how long its buffers live
memory         places for buffers in one arena
footprint      what all of that takes beside weights and pools
inputs         a step's arrays in one pinned copy
tables         block tables on the device, kept up to date by what changed
weights        rank files to the device
dummy_weights  weights that are made up there
driver         cuda-python: streams, events, graphs
profile        time by op against its floor
"""
