"""Inputs of the op `sample` from rows that say what they ask for."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import torch


@dataclass
class Row:
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition: float = 1.0
    share: float = 0.0  # what is drawn with
    allowed: set[int] | None = None
    bias: dict[int, float] = field(default_factory=dict)
    seen: list[int] = field(default_factory=list)
    penalties: dict[int, float] = field(default_factory=dict)
    num_top: int = 0


def mask_words(allowed, vocab):
    bits = np.zeros(-(-vocab // 32) * 32, np.uint8)
    bits[sorted(allowed)] = 1
    return np.packbits(bits, bitorder="little").view(np.int32)


def lists(name, items):
    """`items`: ids, or a mapping of ids to values, of each row."""
    start = np.cumsum([0, *(len(each) for each in items)])
    out = {
        f"{name}_start": torch.tensor(start, dtype=torch.int32),
        f"{name}_ids": torch.tensor([i for each in items for i in each], dtype=torch.int32),
    }
    if name != "seen":
        values = [value for each in items for value in each.values()]
        out[f"{name}_values"] = torch.tensor(values, dtype=torch.float32)
    return out


def inputs(logits, rows):
    """Arguments of the op, `num_top` as the row that wants most."""
    vocab = logits.shape[1]
    masked = [i for i, row in enumerate(rows) if row.allowed is not None]
    masks = [mask_words(rows[i].allowed, vocab) for i in masked]
    words = np.stack(masks) if masks else np.zeros((0, -(-vocab // 32)), np.int32)
    place = {row: at for at, row in enumerate(masked)}
    limits = [[r.top_k, place.get(i, -1), r.num_top] for i, r in enumerate(rows)]
    doubles = np.array([[r.top_p, r.share] for r in rows], np.float64).reshape(len(rows), 2)
    return {
        "logits": logits,
        "scales": torch.tensor([[r.temperature, r.min_p, r.repetition] for r in rows]).view(-1, 3),
        "doubles": torch.from_numpy(doubles.view(np.int32)),
        "limits": torch.tensor(limits, dtype=torch.int32).view(-1, 3),
        "masks": torch.from_numpy(words),
        **lists("bias", [r.bias for r in rows]),
        **lists("seen", [r.seen for r in rows]),
        **lists("penalty", [r.penalties for r in rows]),
        "num_top": max((r.num_top for r in rows), default=0),
    }


def any_row(vocab, seed):
    """A row that asks for some of everything; most tokens stay allowed."""
    rng = random.Random(seed)
    some = [rng.randrange(vocab) for _ in range(rng.choice([0, 1, 5, 300]))]
    banned = set(rng.sample(range(vocab), vocab // 3))
    return Row(
        temperature=rng.choice([0.0, 0.3, 1.0, 1.0, 1.7]),
        top_k=rng.choice([0, 0, 1, 5, 50, 3000, vocab]),
        top_p=rng.choice([1.0, 1.0, 0.9, 0.33]),
        min_p=rng.choice([0.0, 0.0, 0.013, 1.0]),
        repetition=rng.choice([1.0, 1.31, 0.7]),
        share=rng.getrandbits(53) * 2.0**-53,
        allowed=set(range(vocab)) - banned if rng.random() < 0.3 else None,
        bias={i: rng.uniform(-3, 3) for i in some} if rng.random() < 0.5 else {},
        seen=sorted({*some}) if rng.random() < 0.5 else [],
        penalties={i: rng.uniform(-2, 2) for i in some} if rng.random() < 0.5 else {},
        num_top=rng.choice([0, 0, 1, 5, 20]) if vocab >= 20 else rng.randrange(vocab + 1),
    )
