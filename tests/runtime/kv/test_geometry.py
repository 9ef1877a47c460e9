"""Arithmetic for all classes at once equals what each class's layout says, one number at a time."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dsv4_trt.kv_layout import solve
from dsv4_trt.presets import FLASH, cut_layers
from dsv4_trt.runtime.kv.geometry import Geometry

FORMATS = [("fp8", "fp8"), ("fp8", "fp4"), ("bf16", "bf16"), ("fp32", "fp32")]
LAYOUTS = [solve(cut_layers(FLASH, 4), *formats, mtp=True) for formats in FORMATS]
STEPS = st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 9000)), min_size=1, max_size=5)


def arrays(steps):
    starts = np.array([start for start, _ in steps], np.int32)
    return starts, starts + np.array([size for _, size in steps], np.int32)


@given(st.sampled_from(LAYOUTS), STEPS)
def test_moves_are_what_the_layout_says(layout, steps):
    classes = list(layout.classes.values())
    starts, ends = arrays(steps)
    moves = Geometry(classes).moves(starts, ends)
    flat = moves.flat()
    num = len(classes)
    for c, kv in enumerate(classes):
        for s, (start, size) in enumerate(steps):
            before = set(range(kv.first_page(start), kv.end_page(start)))
            after = set(range(kv.first_page(start + size), kv.end_page(start + size)))
            assert moves.num_new[c, s] == len(after - before)
            for kind, pages in ((c, after - before), (num + c, before - after)):
                mine = (flat.moves == kind) & (flat.seqs == s)
                assert flat.logical[mine].tolist() == sorted(pages)
    assert (np.diff(flat.moves) >= 0).all()


@given(st.sampled_from(LAYOUTS), STEPS.map(lambda steps: [(a, b % 300 + 1) for a, b in steps]))
def test_slots_are_entries_that_are_completed_and_kept(layout, steps):
    classes = list(layout.classes.values())
    starts, ends = arrays(steps)
    lengths = ends - starts
    positions = np.concatenate(
        [np.arange(s, e, dtype=np.int32) for s, e in zip(starts, ends, strict=True)]
    )
    out = np.empty((len(classes), positions.size), np.int32)
    Geometry(classes).slots(ends, lengths, positions, out)
    for kv, slots in zip(classes, out.tolist(), strict=True):
        for position, end, slot in zip(
            positions.tolist(), np.repeat(ends, lengths).tolist(), slots, strict=True
        ):
            completes = (position + 1) % kv.ratio == 0
            if not completes or position < kv.first_token(end):
                assert slot == -1
                continue
            page = position // kv.tokens_per_page
            column = page if kv.window is None else page % kv.window_pages
            entry = position // kv.ratio % kv.entries_per_page
            assert slot == column * kv.entries_per_page + entry
