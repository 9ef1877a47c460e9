"""Index scores and their best entries on the GPU against the reference."""

import pytest
import torch

from dsv4_trt.plugins.reference import REFERENCES, pages
from dsv4_trt.plugins.reference.codecs import FLOATS, act4
from dsv4_trt.plugins.reference.entries import indexer_entry
from dsv4_trt.plugins.reference.indexer import index_scores, query_values
from tests.plugins.cuda.cuda_call import kernels, run_both, run_kernel
from tests.plugins.small_model import INDEXER, layout

pytestmark = pytest.mark.gpu
DEVICE = "cuda"  # of inputs and of the reference: it is quick there
RATIO, HEADS, TOPK = 4, 64, 64
FORMATS = ["fp4", "fp8", "bf16", "fp32"]
# (length after the step, tokens of the step): around a page, `TOPK` entries, tiles of keys and of tokens
DECODES = [(3, 1), (4, 1), (259, 1), (260, 1), (264, 1), (1031, 1), (2600, 1)]
PROMPTS = [(300, 300), (1, 1), (700, 129), (515, 3), (1025, 34)]


class Case:
    """A step of several sequences, its keys in shuffled pages; everything else in the pool is NaN."""

    def __init__(self, format, sequences, *, decodes=0, heads=HEADS, columns=0, per_page=64, pages=0,
                 padding=3, seed=0):  # fmt: skip
        self.format, self.heads, self.per_page = format, heads, per_page
        self.generator = torch.Generator(device=DEVICE).manual_seed(seed)
        shuffle = torch.Generator().manual_seed(seed)
        self.sequences = sequences
        self.entry = indexer_entry(format, 128)
        needed = [-(-length // (RATIO * per_page)) for length, _ in sequences]
        page_bytes = layout("bf16", format)[INDEXER].page_bytes
        shape = (pages or sum(needed) + 4, page_bytes)
        self.pool = torch.full(shape, -1, dtype=torch.int8, device=DEVICE)
        ids = (
            torch.randperm(sum(needed) + 4, generator=shuffle)[: sum(needed)]
            + shape[0]
            - sum(needed)
            - 4
        )
        counts = [new for _, new in sequences]
        ends = torch.tensor(counts).cumsum(0).tolist()
        self.rows = torch.randperm(len(sequences) + 2, generator=shuffle)[: len(sequences)]
        width = max(columns, *needed)
        # strided, and two layers of which the second is used
        self.table = torch.full((2, width, len(sequences) + 2), -1, dtype=torch.int32).transpose(
            1, 2
        )
        for row, page_ids in zip(self.rows, ids.split(needed), strict=True):
            self.table[1, row, : len(page_ids)] = page_ids.int()
        self.table = self.table.to(DEVICE)
        positions = [range(length - new, length) for length, new in sequences]
        self.step = {
            "positions": self.ints([p for row in positions for p in row] + [0] * padding),
            "seq_ids": self.ints(
                [s for s, n in enumerate(counts) for _ in range(n)] + [-1] * padding
            ),
            "table_rows": self.ints(self.rows.tolist()),
            "query_start": self.ints([0, *ends]),
            "seq_lens": self.ints([length if new else 0 for length, new in sequences]),
            "decode_carrier": torch.zeros(decodes, dtype=torch.int8, device=DEVICE),
        }
        self.tokens = ends[-1] + padding

    def ints(self, values):
        return torch.tensor(values, dtype=torch.int32, device=DEVICE)

    def place(self, seq):
        every = torch.arange(self.sequences[seq][0] // RATIO, device=DEVICE)
        return pages.entry_places(self.table[1, self.rows[seq]], every, self.per_page)

    def store(self, seq, keys):
        pages.write(self.pool, self.place(seq), self.entry, self.per_page, keys)

    def keys(self, seq):
        return pages.read(self.pool, self.place(seq), self.entry, self.per_page)

    def random(self, *shape):
        return torch.randn(shape, generator=self.generator, device=DEVICE)

    def integers(self, *shape, most=2):
        size = {"generator": self.generator, "device": DEVICE}
        return torch.randint(-most, most + 1, shape, **size).float()

    def fill(self, make):
        """Keys and queries of `make(*shape)`; returns the queries' arguments."""
        for seq, (length, _) in enumerate(self.sequences):
            self.store(seq, make(length // RATIO, 128))
        return self.queries(make(self.tokens, self.heads, 128), make(self.tokens, self.heads))

    def queries(self, q, weights):
        if self.format == "fp4":
            codes, scale = act4(q)
            return {"q": codes, "q_scale": scale, "weights": weights}
        dtype = {"fp8": torch.float8_e4m3fn, "bf16": torch.bfloat16, "fp32": torch.float32}
        return {"q": q.to(dtype[self.format]), "weights": weights}

    def arguments(self, queries, score_dtype="BF16", topk=TOPK):
        return {
            **queries,
            **self.step,
            "block_table": self.table,
            "pool": self.pool,
            "topk": topk,
            "ratio": RATIO,
            "head_dim": 128,
            "format": self.format,
            "score_dtype": score_dtype,
            "layer_row": 1,
            "entries_per_page": self.per_page,
        }


def run(case, queries, **options):
    found, expected = run_both("index_topk", DEVICE, **case.arguments(queries, **options))
    return found["topk"], expected["topk"]


def assert_same_picks(case, queries, score_dtype="BF16", topk=TOPK):
    """The same picks, but for entries whose score is next to that of the last pick.

    Dot products are summed in another order: one that lies at the edge between two bf16 numbers may round
    to the other one, which moves a score by 2^-8 of that head's part. So a pick may differ where its score
    is within 2^-7 of the largest part (or of the last pick's score) from the last pick's; in fp32 2^-18.
    Few rows may differ at all.
    """
    found, expected = run(case, queries, score_dtype=score_dtype, topk=topk)
    assert torch.equal((found >= 0).sum(1), (expected >= 0).sum(1))
    different = (found != expected).any(1).nonzero().squeeze(1).tolist()
    assert len(different) <= max(1, 0.1 * len(found)), f"{len(different)} of {len(found)} rows"
    slack = 2.0**-7 if score_dtype == "BF16" else 2.0**-18
    for row in different:
        assert (expected[row] >= 0).all()
        picks = found[row][found[row] >= 0]
        assert (picks.diff() > 0).all()
        only = set(found[row].tolist()) ^ set(expected[row].tolist())
        seq = int(case.step["seq_ids"][row])
        keys = case.keys(seq)
        q = query_values(*(queries[n][[row]] if n in queries else None for n in ("q", "q_scale")))
        weights = queries["weights"][[row]]
        scores = index_scores(q, weights, keys, FLOATS[score_dtype])[0].cpu()
        parts = ((q[0] @ keys.T).relu() * weights[0].unsqueeze(1)).abs().amax(0).cpu()
        last = scores[expected[row].long()].min()
        for entry in only:
            assert entry < (int(case.step["positions"][row]) + 1) // RATIO
            room = slack * max(abs(last), parts[entry])
            assert abs(scores[entry] - last) <= room, (row, entry, scores[entry], last)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("score_dtype", ["BF16", "F32"])
def test_random_keys(format, score_dtype):
    case = Case(format, DECODES + PROMPTS, decodes=len(DECODES))
    assert_same_picks(case, case.fill(case.random), score_dtype)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("score_dtype", ["BF16", "F32"])
@pytest.mark.parametrize("decodes", [0, len(DECODES)])
def test_integers_are_exact(format, score_dtype, decodes):
    """Every sum is exact in fp32 whatever its order, and ties abound: the picks are the same."""
    case = Case(format, DECODES + PROMPTS, decodes=decodes, seed=1)
    found, expected = run(case, case.fill(case.integers), score_dtype=score_dtype)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("topk", [1, 31, 200, 512])
@pytest.mark.parametrize(("heads", "per_page"), [(64, 64), (64, 32), (8, 64), (64, 2), (5, 48)])
def test_shapes_that_tensor_cores_take_and_do_not(topk, heads, per_page):
    case = Case("fp4", DECODES[-2:] + PROMPTS, decodes=2, heads=heads, per_page=per_page, seed=2)
    found, expected = run(case, case.fill(case.integers), topk=topk)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("format", FORMATS)
def test_equal_scores_go_to_the_lower_entry(format):
    case = Case(format, [(2600, 1), (1025, 34)], decodes=1)
    queries = case.fill(case.integers)
    ones = torch.ones(case.tokens, HEADS, 128, device=DEVICE)
    for seq, (length, _) in enumerate(case.sequences):
        case.store(seq, -torch.ones(length // RATIO, 128, device=DEVICE))
    queries = case.queries(
        ones, queries["weights"]
    )  # every dot is below 0; weights have both signs
    found, expected = run(case, queries)
    assert torch.equal(found, expected)
    assert found[0].tolist() == list(range(TOPK))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("score_dtype", ["BF16", "F32"])
def test_nan_ranks_last(format, score_dtype):
    case = Case(format, [(2600, 1), (1400, 34)], decodes=1, seed=3)
    queries = case.fill(case.integers)
    for seq, (length, _) in enumerate(case.sequences):
        keys = case.integers(length // RATIO, 128)
        numbers = case.random(length // RATIO) > 1.7  # fewer than picks
        keys[~numbers] = torch.nan
        case.store(seq, keys)
    queries["weights"][3] = torch.nan
    queries["weights"][5, 7] = torch.inf  # times zero is NaN as well
    queries["weights"][6, 7] = -torch.inf
    found, expected = run(case, queries, score_dtype=score_dtype)
    assert torch.equal(found, expected)
    assert found[3].tolist() == list(range(TOPK))


def test_scales_of_any_size():
    """Scales of fp4 blocks and fp8 keys over most of their range."""
    for format in ("fp4", "fp8"):
        case = Case(format, [(4000, 5)], seed=4)
        size = case.integers(1000, 1, most=30)
        queries = case.fill(case.integers)
        case.store(0, case.integers(1000, 128) * 2.0**size)
        found, expected = run(case, queries)
        assert torch.equal(found, expected)


@pytest.mark.parametrize("format", ["fp4", "fp32"])
def test_hostile_ids(format):
    """Pages, sequences and table rows that do not exist: no fault, no pick, other tokens as before."""
    case = Case(format, [(2600, 1), (1400, 34), (1100, 2)], decodes=1, seed=5)
    queries = case.fill(case.integers)
    clean = run_kernel("index_topk", **case.arguments(queries))["topk"].cpu()
    missing = case.rows[0]
    case.table[1, missing, 1:4] = torch.tensor([-1, case.pool.shape[0], 2**31 - 1])
    case.step["seq_ids"][1:3] = torch.tensor([99, -7])
    case.step["table_rows"][2] = 1000
    found = run_kernel("index_topk", **case.arguments(queries))["topk"].cpu()
    assert torch.equal(found[3:35], clean[3:35])
    assert (found[1:3] == -1).all()
    assert (found[0].diff() > 0).all()
    assert found[0, 0] >= 0
    assert not ((found[0] >= 64) & (found[0] < 256)).any()
    assert (found[37:] == -1).all()


def test_no_tokens_and_nothing_to_choose():
    case = Case("fp4", [(0, 0), (0, 0)], padding=0)
    assert run(case, case.fill(case.integers))[0].shape == (0, TOPK)
    case = Case("fp4", [(255, 255), (8, 1)], padding=5)  # the table is no wider than topk
    found, expected = run(case, case.fill(case.random))
    assert torch.equal(found, expected)
    assert (found[-5:] == -1).all()


@pytest.mark.parametrize("score_dtype", ["BF16", "F32"])
def test_a_wide_table_takes_several_passes(score_dtype):
    case = Case("fp8", [(5000, 1), (300, 1), (900, 300), (1100, 400)], decodes=2, columns=5000)
    found, expected = run(case, case.fill(case.integers), score_dtype=score_dtype)
    assert torch.equal(found, expected)


@pytest.mark.parametrize(("topk", "format"), [(512, "fp4"), (1024, "fp8"), (512, "bf16")])
@pytest.mark.parametrize("exact", [False, True])
def test_long_contexts(topk, format, exact):
    """A decode at 1M tokens beside shorter ones, and a chunk on a long prefix."""
    lengths = [(1 << 20, 1), (70001, 1), (9000, 1), (2047, 1), (133000, 200)]
    case = Case(format, lengths, decodes=4)
    queries = case.fill(case.integers if exact else case.random)
    if exact:
        found, expected = run(case, queries, topk=topk)
        assert torch.equal(found, expected)
    else:
        assert_same_picks(case, queries, topk=topk)


@pytest.mark.parametrize("rows", [1, 9, 40, 70])
def test_long_rows_in_clusters_of_any_size(rows):
    """Equal scores by the thousand, so that ties cross from block to block."""
    case = Case("fp4", [(150000, 1)] + [(70000, 1)] * (rows - 1), decodes=rows)
    queries = case.fill(lambda *shape: case.integers(*shape, most=1))
    for seq, (length, _) in enumerate(case.sequences):
        few = case.integers(3, 128)
        which = torch.randint(3, (length // RATIO,), generator=case.generator, device=DEVICE)
        case.store(seq, few[which])
    found, expected = run(case, queries, topk=512)
    assert torch.equal(found, expected)


def test_last_page_of_a_large_pool():
    pages = (1 << 32) // 4608 + 100
    case = Case("fp4", [(9000, 1), (3000, 20)], decodes=1, pages=pages)
    found, expected = run(case, case.fill(case.integers))
    assert torch.equal(found, expected)


def test_one_graph_serves_all_lengths():
    """Captured while short, replayed while long, and short again."""
    plans = [
        [(8, 1), (100, 1), (60, 30)],
        [(400000, 1), (3001, 1), (40030, 30)],
        [(0, 0), (9, 1), (31, 30)],
    ]
    cases = [Case("fp4", plan, decodes=2, columns=1600, pages=2000, padding=3 + plan.count((0, 0)),
                  seed=i) for i, plan in enumerate(plans)]  # fmt: skip
    calls = [case.arguments(case.fill(case.integers), topk=512) for case in cases]
    held = {name: v.clone() if isinstance(v, torch.Tensor) else v for name, v in calls[0].items()}
    kernels()["index_topk"](**held)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = kernels()["index_topk"](**held)["topk"]
    for call in (*calls, calls[1]):
        for name, value in call.items():
            if isinstance(value, torch.Tensor):
                held[name].copy_(value)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out, REFERENCES["index_topk"](**call)["topk"])
