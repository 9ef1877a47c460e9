"""How fast weights go from the rank file to the GPU, beside plain copies of as many bytes.

A load copies twice: from the page cache into pinned memory, and from there to the GPU. Each of the two is
measured alone, with as many threads; the slower one bounds the load.

The file has the tensors of a model of Flash's width with few layers, filled with random bytes, and lies in
the page cache: what is measured is the way through memory, not the disk.

    python benchmarks/weight_load.py --layers 2
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from results_file import circumstances, parser_of, write

from dsv4_trt.builder.bundle import build_bundle
from dsv4_trt.builder.dummy_checkpoint import dummy_checkpoint
from dsv4_trt.contract import BuildSpec
from dsv4_trt.presets import FLASH, cut_layers
from dsv4_trt.rank_tensors import rank_tensors
from dsv4_trt.runtime.bundle import Bundle, open_bundle
from dsv4_trt.runtime.cuda.weights import PIECE_BYTES, load_device_weights

TARGET = 0.8  # of a plain copy from pinned memory to the GPU
REPEATS = 5
SEND_BYTES = 1 << 30


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--layers", type=int, default=2)
    args = parser.parse_args()
    about = circumstances("weight_load", args.note)
    with tempfile.TemporaryDirectory() as folder:
        bundle = _bundle(Path(folder), args.layers)
        loads, reads, sends = [], [], []
        for _ in range(REPEATS):
            reads.append(_read_alone(bundle.rank_files[0]))
            sends.append(_send_alone())
            loads.append(_load(bundle))
        nbytes = bundle.rank_files[0].stat().st_size
    load, read, send = (statistics.median(rates) for rates in (loads, reads, sends))
    share = load / send
    result = {
        **about,
        "gpu": torch.cuda.get_device_name(0),
        "file_bytes": nbytes,
        "load_gbs": [round(rate, 2) for rate in loads],
        "read_gbs": [round(rate, 2) for rate in reads],
        "send_gbs": [round(rate, 2) for rate in sends],
        "share_of_send": round(share, 3),
        "share_of_the_slower": round(load / min(read, send), 3),
        "target": TARGET,
        "target_met": share >= TARGET,
    }
    print(
        f"{nbytes / 1e9:.1f} GB: {load:.1f} GB/s; from the page cache alone {read:.1f}, to the GPU "
        f"alone {send:.1f}: {share:.2f} of that, {load / min(read, send):.2f} of the slower"
    )
    write(args.name, result)
    return 0


def _bundle(folder: Path, layers: int) -> Bundle:
    checkpoint = dummy_checkpoint(cut_layers(FLASH, layers), mtp=False)
    build_bundle(checkpoint, folder / "engine", BuildSpec(mtp=False))
    bundle = open_bundle(folder / "engine")
    file = folder / "rank0.safetensors"
    header, end = {}, 0
    for tensor in rank_tensors(bundle.spec, bundle.mapping, mtp=False):
        place = [end, end + tensor.nbytes]
        header[tensor.name] = {
            "dtype": str(tensor.dtype),
            "shape": list(tensor.shape),
            "data_offsets": place,
        }
        end = place[1]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    block = np.random.default_rng(0).bytes(64 << 20)
    with file.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for start in range(0, end, len(block)):
            out.write(block[: end - start])
    return replace(bundle, rank_files=(file,))


def _load(bundle: Bundle) -> float:
    """GB/s from the call to weights that are there."""
    device = torch.device("cuda", 0)
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    start = time.perf_counter()
    weights = load_device_weights(bundle, [bundle.trunk], device)
    torch.cuda.synchronize()
    return weights.arena.numel() / (time.perf_counter() - start) / 1e9


def _read_alone(file: Path) -> float:
    """GB/s from the page cache into pinned memory, by a thread a core."""
    threads = os.cpu_count() or 1
    buffers = torch.empty((threads, PIECE_BYTES), dtype=torch.uint8, pin_memory=True)
    views = [memoryview(buffer.numpy()) for buffer in buffers]
    pieces = file.stat().st_size // PIECE_BYTES
    number = os.open(file, os.O_RDONLY)

    def read(thread: int) -> None:
        for piece in range(thread, pieces, threads):
            os.preadv(number, [views[thread]], piece * PIECE_BYTES)

    start = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(read, range(threads)))
    seconds = time.perf_counter() - start
    os.close(number)
    return pieces * PIECE_BYTES / seconds / 1e9


def _send_alone() -> float:
    """GB/s of one copy from pinned memory to the GPU."""
    source = torch.empty(SEND_BYTES, dtype=torch.int8, pin_memory=True)
    target = torch.empty(SEND_BYTES, dtype=torch.int8, device="cuda")
    target.copy_(source, non_blocking=True)
    torch.cuda.synchronize()
    start = time.perf_counter()
    target.copy_(source, non_blocking=True)
    torch.cuda.synchronize()
    return SEND_BYTES / (time.perf_counter() - start) / 1e9


if __name__ == "__main__":
    raise SystemExit(main())
