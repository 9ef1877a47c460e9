"""How fast weights go from the rank file to the GPU, beside plain copies of as many bytes.

A load copies twice: from the page cache into pinned memory, and from there to the GPU. No load is faster
than the second copy alone. Beside it stands what one line of torch does: `.cuda()` of the mapped file.

The file has the tensors of a model of Flash's width with few layers, filled with random bytes, and lies in
the page cache: what is measured is the way through memory, not the disk.

    python benchmarks/weight_load.py --layers 2
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from results_file import circumstances, parser_of, require_gpu, write

from dsv4_trt.builder.bundle import build_bundle
from dsv4_trt.builder.dummy_checkpoint import dummy_checkpoint
from dsv4_trt.contract import BuildSpec
from dsv4_trt.plugins.library import Library
from dsv4_trt.presets import FLASH, cut_layers
from dsv4_trt.rank_tensors import rank_tensors
from dsv4_trt.runtime.bundle import Bundle, open_bundle
from dsv4_trt.runtime.cuda.open import device_library
from dsv4_trt.runtime.cuda.weights import load_device_weights

TARGET = 0.8  # of a plain copy from pinned memory to the GPU
REPEATS = 5
SEND_BYTES = 1 << 30
PLAIN_BYTES = 4 << 30


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--layers", type=int, default=2, help="of Flash's width in the file [default: 2]"
    )
    args = parser.parse_args()
    require_gpu()
    about = circumstances("weight_load", args.note)
    with tempfile.TemporaryDirectory() as folder:
        bundle = _bundle(Path(folder), args.layers)
        library = device_library()
        loads, sends, plains = [], [], []
        for _ in range(REPEATS):
            sends.append(_send_alone())
            loads.append(_load(bundle, library))
            plains.append(_plain(bundle.rank_files[0]))
        nbytes = bundle.rank_files[0].stat().st_size
    load, send, plain = (statistics.median(rates) for rates in (loads, sends, plains))
    share = load / send
    result = {
        **about,
        "gpu": torch.cuda.get_device_name(0),
        "file_bytes": nbytes,
        "load_gbs": [round(rate, 2) for rate in loads],
        "send_gbs": [round(rate, 2) for rate in sends],
        "plain_gbs": [round(rate, 2) for rate in plains],
        "share_of_send": round(share, 3),
        "times_plain": round(load / plain, 2),
        "target": TARGET,
        "target_met": share >= TARGET,
    }
    print(
        f"{nbytes / 1e9:.1f} GB: {load:.1f} GB/s; pinned memory to the GPU alone {send:.1f}: "
        f"{share:.2f} of that; the mapped file by torch {plain:.1f}"
    )
    write(args.name, result)
    return 0


def _bundle(folder: Path, layers: int) -> Bundle:
    """A bundle with a rank file of random bytes."""
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


def _load(bundle: Bundle, library: Library) -> float:
    """GB/s from the call to weights that are there."""
    device = torch.device("cuda", 0)
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    start = time.perf_counter()
    weights = load_device_weights(bundle, [bundle.trunk], library, device)
    torch.cuda.synchronize()
    return weights.arena.numel() / (time.perf_counter() - start) / 1e9


def _plain(file: Path) -> float:
    """GB/s of one copy of the mapped file."""
    nbytes = min(file.stat().st_size, PLAIN_BYTES)
    mapped = torch.from_file(str(file), shared=False, size=nbytes, dtype=torch.uint8)
    torch.cuda.synchronize()
    start = time.perf_counter()
    mapped.cuda()
    torch.cuda.synchronize()
    return nbytes / (time.perf_counter() - start) / 1e9


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
