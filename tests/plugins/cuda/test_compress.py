"""The compressor's kernels: the scenarios of the reference's tests, many rows at once, and hostile tables.

Sums in another order turn some roundings over; after a Hadamard transform one turned input can turn many
outputs. `LIMITS` are the error of entries relative to their norm, `FLIPS` the share of written bytes that
may differ. What no slot names keeps its bytes.
"""

import pytest
import torch

from dsv4_trt.plugins.reference import REFERENCES
from dsv4_trt.plugins.reference.entries import indexer_entry, kv_entry, plain_entry
from dsv4_trt.plugins.reference.hadamard import hadamard
from dsv4_trt.plugins.reference.norms import normalise
from dsv4_trt.plugins.reference.pages import Place, read
from dsv4_trt.plugins.reference.rope import rotate_tail
from tests.plugins import op_call
from tests.plugins.cuda.cuda_call import (
    assert_close,
    assert_same_bytes,
    kernels,
    on_device,
    run_kernel,
)
from tests.plugins.paged import POISON
from tests.plugins.small_model import CSA, FORMATS, HCA, INDEXER, INV_FREQ
from tests.plugins.test_compress import SHAPES, Compressor, run_in_chunks

pytestmark = pytest.mark.gpu
FLIPS = 5e-3
LIMITS = {"fp32": 2e-6, "bf16": 1e-3, "fp8": 8e-3, "fp4": 2.5e-2}
CLASSES = [CSA, HCA, INDEXER]


def entry_format(arguments):
    if arguments["hadamard"]:
        return indexer_entry(arguments["format"], arguments["width"])
    return kv_entry(arguments["format"], arguments["width"], 64)


def entries(pool, arguments):
    """Every entry of a pool, also of pages that hold something else."""
    per_page, device = arguments["entries_per_page"], pool.device
    pages = torch.arange(len(pool), device=device).repeat_interleave(per_page)
    place = Place(pages, torch.arange(per_page, device=device).repeat(len(pool)))
    return read(pool, place, entry_format(arguments), per_page)


def compare_pools(found, expected, before, arguments):
    """Both pools after the kernel and after the reference."""
    one = arguments["pool"] is arguments["state_pool"]
    if not one:
        assert torch.equal(found["state_pool"], expected["state_pool"])
    for name in ("pool",) if one else ("pool", "state_pool"):
        written = before[name] != expected[name]
        wrong = found[name] != expected[name]
        assert not wrong[~written.any(1)].any(), f"{name}: pages that no slot names have changed"
        allowed = FLIPS if arguments["format"] != "fp32" else 0.5
        assert wrong.sum() <= allowed * written.sum(), f"{name}: {wrong.sum()} of {written.sum()}"
    own = arguments["block_table"][arguments["layer_row"]].unique().to(found["pool"].device)
    own = own[own >= 0].long()  # a pool may be one with that of the state
    own = own[(before["pool"] != expected["pool"])[own].any(1)]
    if len(own):
        values = [entries(side["pool"][own], arguments) for side in (found, expected)]
        assert_close(*values, relative=LIMITS[arguments["format"]])


def both(**arguments):
    """The pools after the reference, on the GPU; raises unless those after the kernel are the same."""
    before = on_device(arguments)
    found = run_kernel("compress", **arguments)
    expected = REFERENCES["compress"](**on_device(arguments))
    compare_pools(found, expected, before, arguments)
    return expected


def in_place(**arguments):
    """`both` as a reference: CPU tensors in, pools overwritten."""
    outputs = both(**arguments)
    return {name: arguments[name].copy_(pool) for name, pool in outputs.items()}


@pytest.fixture
def kernel_beside_reference(monkeypatch):
    monkeypatch.setattr(op_call, "REFERENCES", {"compress": in_place})


@pytest.mark.usefixtures("kernel_beside_reference")
@pytest.mark.parametrize("formats", FORMATS)
@pytest.mark.parametrize("cls", CLASSES)
def test_chunks_of_three_sequences(cls, formats):
    cuts = [[130, 1, 129], [3], [5, 123, 8]]
    if cls is not HCA:
        cuts = [[30, 1, 9], [3], [5, 10, 8]]
    run_in_chunks(Compressor(cls, [sum(c) for c in cuts]), formats, cuts)


@pytest.mark.usefixtures("kernel_beside_reference")
@pytest.mark.parametrize("formats", [("fp8", "fp4")])
@pytest.mark.parametrize("cls", CLASSES)
def test_a_token_at_a_time(cls, formats):
    cuts = [[1] * 9, [5, 1, 1, 1, 2, 1], [2, 1, 1]]
    if cls is HCA:
        cuts = [[126, 1, 1, 1], [254, 1, 1], [2, 125, 1, 1]]
    run_in_chunks(Compressor(cls, [sum(c) for c in cuts]), formats, cuts)


@pytest.mark.usefixtures("kernel_beside_reference")
@pytest.mark.parametrize("cls", CLASSES)
def test_prefill_of_many_rows(cls):
    cuts = [
        [2, 2701],
        [1, 513],
        [3],
    ]  # more than 2048 rows: teams of the small groups take four each
    run_in_chunks(Compressor(cls, [sum(c) for c in cuts]), ("fp8", "fp8"), cuts)


def decoding(cls, num_seqs, format, last=(3, 7, 1027), others=True, seed=0):
    """Sequences that decode one token each, at one of the positions `last` or, if `others`, anywhere.

    Tensors are on the GPU. All pages are there, those of the window before the step full of numbers.
    """
    generator = torch.Generator("cuda").manual_seed(seed)
    ratio, overlap, width = SHAPES[cls]
    per_page, state_per_page, window = (2, 8, 128) if cls is HCA else (64, 4, 8)
    floats = 2 * overlap * width
    ring = -(-window // state_per_page)
    options = {"generator": generator, "device": "cuda"}
    ends = torch.tensor(last, dtype=torch.int32, device="cuda")
    positions = ends[torch.randint(0, len(last), (num_seqs,), **options)]
    if others:
        anywhere = torch.randint(0, 1100, (num_seqs,), dtype=torch.int32, **options)
        positions[1::2] = anywhere[1::2]
    pages = torch.randperm(num_seqs * (ring + 1) + 3, **options)[: num_seqs * (ring + 1)]
    held, newest = pages[: num_seqs * ring].view(num_seqs, ring), pages[num_seqs * ring :]
    state_table = torch.cat((held, held), 1)
    # the new token's page replaces the oldest where the token is the first of a page
    column = positions // state_per_page % ring
    opens = positions % state_per_page == 0
    rows = torch.arange(num_seqs, device="cuda")[opens]
    state_table[rows, ring + column[opens]] = newest[opens]
    state_pool = torch.randn(len(pages) + 3, state_per_page * floats, **options).view(torch.int8)
    columns = 1100 // ratio // per_page + 1
    kept = torch.randperm(num_seqs + 3, **options)[:num_seqs]
    table = torch.full((num_seqs, columns), -1, device="cuda")
    table.scatter_(1, (positions // ratio // per_page).long().unsqueeze(1), kept.unsqueeze(1))
    layout = {"format": format, "hadamard": cls is INDEXER, "width": width}
    raw = sum(entry_format(layout).field_bytes) * per_page
    completes = positions % ratio == ratio - 1
    numbers = torch.arange(num_seqs + 1, dtype=torch.int32, device="cuda")
    return {
        "kv_gate": torch.randn(num_seqs, floats, **options),
        "ape": torch.randn(ratio, floats // 2, **options),
        "norm_weight": torch.randn(width, **options).bfloat16(),
        "inv_freq": INV_FREQ.cuda(),
        "positions": positions,
        "seq_ids": numbers[:-1],
        "table_rows": numbers[:-1].flip(0),
        "query_start": numbers,
        "seq_lens": positions + 1,
        "state_slot_mapping": positions % (ring * state_per_page),
        "state_block_table": state_table.flip(0).int().unsqueeze(0),
        "state_pool": state_pool,
        "slot_mapping": torch.where(completes, positions // ratio, -1).int(),
        "block_table": table.flip(0).int().unsqueeze(0),
        "pool": torch.full(
            (num_seqs + 3, -(-raw // 64) * 64), POISON, dtype=torch.int8, device="cuda"
        ),
        "ratio": ratio,
        "overlap": overlap,
        "act_dtype": "F32" if format == "fp32" else "BF16",
        "eps": 1e-6,
        "layer_row": 0,
        "entries_per_page": per_page,
        "state_entries_per_page": state_per_page,
        "state_window_pages": ring,
        **layout,
    }


@pytest.mark.parametrize(
    ("cls", "num_seqs", "format"),
    [
        (CSA, 1, "fp8"),
        (CSA, 129, "fp8"),
        (CSA, 2100, "fp8"),
        (CSA, 130, "fp32"),
        (INDEXER, 1, "fp4"),
        (INDEXER, 2101, "fp4"),
        (INDEXER, 33, "fp32"),
        (HCA, 1, "fp8"),
        (HCA, 133, "fp8"),
        (HCA, 70, "fp32"),
    ],
)
def test_many_sequences_decoding(cls, num_seqs, format):
    last = (127, 255, 1023) if cls is HCA else (3, 7, 1027)
    arguments = decoding(cls, num_seqs, format, last)
    expected = both(**arguments)
    assert (arguments["pool"] != expected["pool"]).any()
    assert (arguments["state_pool"] != expected["state_pool"]).any()


@pytest.mark.parametrize("value", [-1, -(2**31), 2**31 - 1, 1 << 24])
@pytest.mark.parametrize(
    "names", [("seq_ids",), ("table_rows",), ("slot_mapping", "state_slot_mapping")]
)
@pytest.mark.parametrize("cls", CLASSES)
def test_bad_indices_write_nothing(cls, names, value):
    arguments = decoding(cls, 9, "fp4" if cls is INDEXER else "fp8")
    for name in names:
        arguments[name] = torch.full_like(arguments[name], value)
    found = run_kernel("compress", **arguments)
    for name in ("pool", "state_pool"):
        assert torch.equal(found[name], arguments[name])


@pytest.mark.parametrize("value", [-1, -(2**31), 2**31 - 1])
@pytest.mark.parametrize("cls", CLASSES)
def test_no_page_is_no_term_and_no_place(cls, value):
    arguments = decoding(cls, 9, "fp32", last=(127, 255))
    written = run_kernel("compress", **arguments)
    nowhere = {**arguments, "block_table": torch.full_like(arguments["block_table"], value)}
    found = run_kernel("compress", **nowhere)
    assert torch.equal(found["pool"], arguments["pool"])
    assert torch.equal(found["state_pool"], written["state_pool"])

    state = torch.full_like(arguments["state_block_table"], value)
    found = run_kernel("compress", **{**arguments, "state_block_table": state})
    assert torch.equal(found["state_pool"], arguments["state_pool"])
    # only the own token is left of each group, so its values are the entry
    rows = (arguments["slot_mapping"] >= 0).nonzero().squeeze(1)
    width, at = arguments["width"], arguments["positions"][rows]
    start = (arguments["overlap"] - 1) * width
    alone = arguments["kv_gate"][rows, start : start + width]
    alone = normalise(alone, arguments["norm_weight"], 1e-6)
    alone = rotate_tail(alone, at // arguments["ratio"] * arguments["ratio"], arguments["inv_freq"])
    if cls is INDEXER:
        alone = hadamard(alone)
    slots = arguments["slot_mapping"][rows].long()
    table_rows = arguments["table_rows"][rows].long()
    per_page = arguments["entries_per_page"]
    pages = arguments["block_table"][0, table_rows, slots // per_page].long()
    stored = read(
        found["pool"], Place(pages, slots % per_page), plain_entry("fp32", width), per_page
    )
    assert_close(stored, alone, relative=2e-6)


@pytest.mark.parametrize("cls", [CSA, HCA])
def test_bad_numbers_stay_in_their_entries(cls):
    arguments = decoding(cls, 12, "fp32", last=(127, 255), others=False)
    lanes = arguments["overlap"] * arguments["width"]
    gates = arguments["kv_gate"]
    gates[0, lanes - 1] = torch.nan  # a value
    gates[1, 2 * lanes - 3] = torch.nan
    gates[2, 2 * lanes - 5] = -torch.inf
    gates[3, 2 * lanes - 5] = torch.inf
    gates[4, lanes - 7] = torch.inf
    gates[5, lanes - 64 :] = 3e38
    both(**arguments)


def test_no_tokens():
    arguments = decoding(CSA, 3, "fp8")
    for name in ("positions", "seq_ids", "slot_mapping", "state_slot_mapping", "kv_gate"):
        arguments[name] = arguments[name][:0]
    arguments["query_start"] = torch.zeros_like(arguments["query_start"])
    arguments["seq_lens"] = torch.zeros_like(arguments["seq_lens"])
    found = run_kernel("compress", **arguments)
    for name in ("pool", "state_pool"):
        assert torch.equal(found[name], arguments[name])


@pytest.mark.parametrize("cls", CLASSES)
def test_last_pages_of_pools_beyond_4_gib(cls):
    arguments = decoding(cls, 1, "fp4" if cls is INDEXER else "fp8", last=(127,))
    found = run_kernel("compress", **arguments)
    moved = on_device(arguments)
    for table, pool in (("block_table", "pool"), ("state_block_table", "state_pool")):
        old = arguments[pool]
        count = (1 << 32) // old.shape[1] + len(old)
        moved[pool] = torch.empty(count, old.shape[1], dtype=torch.int8, device="cuda")
        moved[pool][count - len(old) :] = old
        moved[table][moved[table] >= 0] += count - len(old)
    kernels()["compress"](**moved)
    for pool in ("pool", "state_pool"):
        assert_same_bytes(moved[pool][-len(arguments[pool]) :].cpu(), found[pool].cpu())
        assert not torch.equal(found[pool], arguments[pool])
