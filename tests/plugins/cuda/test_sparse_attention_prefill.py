"""Sparse attention of prefill chunks (rows from `num_decodes` on), bf16 on the GPU, against the reference.

Probabilities are rounded to bf16 for the values (relative to another peak than the reference's, so to other
numbers) and so is the output: 2^-9 each. A key too many or too few moves a row by 4% or more.
"""

import math

import pytest
import torch

from dsv4_trt.plugins.reference import pages
from tests.plugins.cuda.cuda_call import run_both, run_kernel
from tests.plugins.paged import PagedSequences
from tests.plugins.small_model import CSA, HCA, INV_FREQ, SWA, entry_format, layout, ragged

pytestmark = pytest.mark.gpu

LAYER = {0: 0, 4: 1, 128: 2}
ENTRIES = {4: CSA, 128: HCA}
FIRST_CHUNKS = [(0, 131), (0, 3), (0, 1), (0, 4)]  # (tokens before, tokens in the step)
LATER_CHUNKS = [(127, 5), (128, 2), (129, 1), (0, 130), (300, 90), (1, 1)]
LONG = [(8990, 70), (8191, 3)]


class Chunks:
    """The inputs of one step of one layer."""

    def __init__(self, ratio, format, heads, chunks, *, picks=100, padding=3, decodes=0, seed=0):
        self.generator = torch.Generator().manual_seed(seed)
        self.ratio, self.rows = ratio, sum(count for _, count in chunks)
        ends = [start + count for start, count in chunks]
        self.paged = PagedSequences(layout(format, format), len(chunks), max(ends), seed)
        self.store_window([start for start, _ in chunks])
        self.step = self.paged.step([count for _, count in chunks], padding)
        self.arguments = {
            "q": 2 * self.randn(self.rows, heads, 512),
            "kv": self.randn(self.rows, 512),
            "sinks": torch.randn(heads, generator=self.generator) + 3,
            "inv_freq": INV_FREQ,
            **ragged(self.step),
            "decode_carrier": torch.zeros(decodes, dtype=torch.int8),
            "swa_block_table": self.step.tables[SWA],
            "swa_pool": self.paged.pool(SWA),
            "ratio": ratio,
            "sm_scale": 512**-0.5,
            "window": 128,
            "format": format,
            "prob_dtype": "BF16",
            "inverse_rope": True,
            "swa_layer_row": LAYER[ratio],
            "swa_entries_per_page": self.paged.layout[SWA].entries_per_page,
            "swa_window_pages": self.paged.layout[SWA].window_pages,
            "layer_row": 0,
            "entries_per_page": 0,
        }
        for name in ("q", "kv"):
            rows = self.arguments[name]
            none = torch.full_like(rows[:1], math.nan).expand(padding, *rows.shape[1:])
            self.arguments[name] = torch.cat((rows, none))
        if ratio:
            self.store_entries(ends)
        if ratio == 4:
            self.arguments["topk"] = self.picks(picks, padding)

    def randn(self, *shape):
        return torch.randn(*shape, generator=self.generator).bfloat16()

    def store_window(self, starts):
        """Window rows of the tokens before the step; those of the step stay NaN in their pages."""
        step = self.paged.step(starts)
        kv = self.paged.layout[SWA]
        rows = self.paged.named_rows(step, SWA, LAYER[self.ratio])
        self.write(kv, pages.Place(*torch.tensor(rows, dtype=torch.int64).view(-1, 2).unbind(1)))
        self.paged.commit(step)

    def store_entries(self, ends):
        kv = self.paged.layout[ENTRIES[self.ratio]]
        for seq, end in enumerate(ends):
            row = self.step.tables[kv.cache_class][0, self.step.table_rows[seq]]
            entries = torch.arange(end // self.ratio)
            self.write(kv, pages.entry_places(row, entries, kv.entries_per_page))
        self.arguments |= {
            "block_table": self.step.tables[kv.cache_class],
            "pool": self.paged.pool(kv.cache_class),
            "entries_per_page": kv.entries_per_page,
        }

    def write(self, kv, place):
        values = torch.randn(len(place.pages), 512, generator=self.generator)
        pages.write(
            self.paged.pool(kv.cache_class), place, entry_format(kv), kv.entries_per_page, values
        )

    def picks(self, count, padding):
        """Ascending entries filled up with -1; in every third row anything, in every seventh nothing."""
        topk = torch.full((self.rows + padding, count), -1, dtype=torch.int32)
        hostile = torch.tensor([-(2**31), -2, 2**31 - 1, 10**6])
        for row, position in enumerate(self.step.positions[: self.rows].tolist()):
            visible = (position + 1) // 4
            if row % 7 == 6:
                continue
            if row % 3 == 2:
                found = torch.randint(-2, visible + 3, (count,), generator=self.generator)
                found[:: count // 8] = hostile[row % 4]
            else:
                found = torch.randperm(visible, generator=self.generator)[:count].sort().values
            topk[row, : len(found)] = found.int()
        return topk

    def check(self, reference_device="cuda", **more):
        found, expected = run_both("sparse_attention", reference_device, **(self.arguments | more))
        assert_rows(found["out"][: self.rows], expected["out"][: self.rows])


def assert_rows(found, expected):
    """Every head of every token: the error's norm within 1% of the row's."""
    found, expected = found.double(), expected.double()
    assert torch.equal(found.isnan(), expected.isnan()), "NaN positions differ"
    found, expected = found.nan_to_num(0), expected.nan_to_num(0)
    error, size = (found - expected).norm(dim=-1), expected.norm(dim=-1)
    wrong = (error > 0.01 * size).nonzero()
    assert not len(wrong), (
        f"{len(wrong)} of {error.numel()} rows, first (token, head) {wrong[0].tolist()}: "
        f"off by {error[tuple(wrong[0])]:.3g} of {size[tuple(wrong[0])]:.3g}"
    )
    assert error.norm() <= 4e-3 * size.norm()


@pytest.mark.parametrize("chunks", [FIRST_CHUNKS, LATER_CHUNKS], ids=["first", "later"])
@pytest.mark.parametrize("heads", [16, 64, 128])
@pytest.mark.parametrize("format", ["fp8", "bf16"])
@pytest.mark.parametrize("ratio", [0, 4, 128])
def test_chunks(ratio, format, heads, chunks):
    device = "cpu" if heads == 16 and chunks is FIRST_CHUNKS else "cuda"
    Chunks(ratio, format, heads, chunks, seed=heads).check(device)


@pytest.mark.parametrize("ratio", [4, 128])
@pytest.mark.parametrize("heads", [32, 64])
def test_many_entries(ratio, heads):
    Chunks(ratio, "fp8", heads, LONG, picks=512).check()


@pytest.mark.parametrize("ratio", [0, 4, 128])
@pytest.mark.parametrize("heads", [1, 8, 72])
def test_other_numbers_of_heads(ratio, heads):
    Chunks(ratio, "fp8", heads, [(250, 9), (0, 5), (130, 1)]).check(inverse_rope=False)


def test_decodes_before_chunks():
    Chunks(4, "fp8", 64, [(200, 1), (13, 1), (140, 30)], decodes=2).check()


@pytest.mark.parametrize("ratio", [0, 4, 128])
def test_sinks(ratio):
    chunks = Chunks(ratio, "fp8", 64, [(100, 60)])
    chunks.arguments["sinks"][:4] = torch.tensor([math.inf, -math.inf, 1e30, -1e30])
    chunks.check()


def test_a_nan_stays_in_its_row():
    chunks = Chunks(128, "fp8", 16, [(300, 20)])
    chunks.arguments["q"][7, 3, 5] = math.nan
    found = run_kernel("sparse_attention", **chunks.arguments)["out"][: chunks.rows]
    assert found.isnan().all(-1).nonzero().tolist() == [[7, 3]]
    assert found.isnan().any(-1).sum() == 1


@pytest.mark.parametrize("page", [-1, -(2**31), 2**31 - 1, 10**6])
def test_entries_without_a_page_are_no_keys(page):
    chunks = Chunks(4, "fp8", 64, [(1400, 20)])
    picks = chunks.arguments["topk"]
    lost = (picks >= 64) & (picks < 128)
    table = chunks.arguments["block_table"].clone()
    table[:, :, 1] = page
    found = run_kernel("sparse_attention", **chunks.arguments | {"block_table": table})["out"].cpu()
    _, expected = run_both(
        "sparse_attention", **chunks.arguments | {"topk": picks.where(~lost, -1)}
    )
    assert lost[: chunks.rows].any()
    assert_rows(found[: chunks.rows], expected["out"][: chunks.rows])


@pytest.mark.parametrize("ratio", [0, 4, 128])
def test_a_big_chunk(ratio):
    Chunks(ratio, "fp8", 64, [(4990, 1000)], picks=512, padding=0).check()


def test_replay_gives_the_same():
    """One launch again, and again: nothing is left over in barriers or races."""
    arguments = Chunks(4, "fp8", 64, LATER_CHUNKS).arguments
    outs = [run_kernel("sparse_attention", **arguments)["out"][:200].cpu() for _ in range(5)]
    assert all(torch.equal(outs[0], out) for out in outs)
