"""The engine of TensorRT plans, behind the `Engine` interface, on the GPU that they are built for.

All around a plan is that of the native engine on a GPU (`runtime/cuda`): weights, slabs, networks.

open            the engine with its plugin library
engine          a program for each graph, from its plan
bindings        the Python bindings of a bundle's TensorRT, its runtime and its plugins
log             what TensorRT complains about
plan            a deserialised plan: what it asks for, which profile holds a step
contract_check  holds a plan against its graph and its record
workspace_check holds its workspaces against the library
context         one execution context: shapes, addresses, the run of a step
program         a plan as the program of a network: a context a size of decode step, one for all others

Only `bindings` imports TensorRT, when an engine is opened.
"""
