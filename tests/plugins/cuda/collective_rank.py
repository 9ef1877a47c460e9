"""One rank of several: runs collectives with the others and compares each with the reference.

python -m tests.plugins.cuda.collective_rank UNIQUE_ID RANK WORLD_SIZE
"""

import sys

import torch

from dsv4_trt.plugins.communicator import Communicator
from dsv4_trt.plugins.cuda_ops import bind
from dsv4_trt.plugins.reference import REFERENCES
from tests.plugins.cuda.cuda_call import POISON, assert_close, library

FLOATS = {"F32": torch.float32, "BF16": torch.bfloat16}
# NCCL adds in an order of its own: a rounding of fp32 for each rank, then one of the output's
RELATIVE = {torch.float32: 1e-6, torch.bfloat16: 4e-3}


def calls(world_size):
    """Op, shape, dtype and attributes; the same ones in the same order on every rank."""
    for shape in ((1, 7), (1, 7168), (33, 255), (1030, 4096)):
        for dtype in FLOATS:
            for out_dtype in FLOATS:
                yield "all_reduce", shape, dtype, {"out_dtype": out_dtype}
    for shape in ((0, 16), (1, 16160), (3, 1), (5, 33), (64, 16160), (300, 1000)):
        yield "all_gather", shape, "F32", {"world_size": world_size}


def check(op, shape, dtype, attrs, rank, world_size):
    """Launched once, and then replayed from a captured graph with other numbers."""
    generator = torch.Generator().manual_seed(0)
    first, second = (
        [torch.randn(shape, generator=generator).to(FLOATS[dtype]) for _ in range(world_size)]
        for _ in range(2)
    )
    x = first[rank].cuda()
    bound = bind(library(), op, poison=True, x=x, **attrs)
    out = bound.outputs["out"]

    def compare(ranks):
        torch.cuda.synchronize()
        expected = REFERENCES[op](x=ranks, **attrs)["out"][rank]
        exact = op == "all_gather" or world_size == 2  # one addition has one result
        relative = 0.0 if exact else RELATIVE[expected.dtype]
        assert_close(out.cpu(), expected, relative=relative)

    bound.launch()
    compare(first)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        bound.launch()
    x.copy_(second[rank])
    for tensor in (out, bound.workspace):
        tensor.view(torch.int8).fill_(POISON)
    graph.replay()
    compare(second)
    graph.reset()


def main():
    unique_id, rank, world_size = bytes.fromhex(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    torch.cuda.set_device(rank)
    count = 0
    with Communicator(library(), rank, rank, world_size, unique_id):
        for call in calls(world_size):
            check(*call, rank, world_size)
            count += 1
        torch.cuda.synchronize()
    print(f"{count} calls are right")


if __name__ == "__main__":
    main()
