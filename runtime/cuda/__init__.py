"""The native engine on a GPU: the graph as one list of kernel launches, captured where steps repeat.

engine    weights, slabs and networks behind the `Engine` interface
network   one graph's programs by step size, its captured graphs, its block tables on the device
program   a graph at fixed sizes: every launch with its addresses
schedule  which stream a node runs on, what it waits for, how long its buffers live
memory    places for buffers in one arena
inputs    a step's arrays in one pinned copy
tables    block tables on the device, kept up to date by what changed
weights   rank files to the device, or weights that are made up there
driver    cuda-python: streams, events, graphs
profile   time by op against its floor
"""
