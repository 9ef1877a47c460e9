"""Vocabularies and walks: an output of a grammar without any model, and what must hold of it."""

import json

import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from dsv4_trt.runtime.sampling.sampling_params import SamplingParams
from dsv4_trt.runtime.text.tokenizer import Tokenizer

BOS, EOS, THINK, END_THINK, DSML, USER = range(6)
MARKERS = [
    "<｜begin▁of▁sentence｜>",
    "<｜end▁of▁sentence｜>",
    "<think>",
    "</think>",
    "｜DSML｜",
    "<｜User｜>",
]
SIZE = 512


def small_tokenizer(size=SIZE):
    """The markers, of which the first two are special, a token for each byte, then pairs of them."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = [a + b for a in '{"</>:,ab1 ' for b in alphabet if b.isascii()]
    words = [*MARKERS, *alphabet, *pairs][:size]
    vocab = {word: token_id for token_id, word in enumerate(words)}
    library = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    library.add_special_tokens(MARKERS[:2])
    library.add_tokens(
        [tokenizers.AddedToken(m, special=False, normalized=False) for m in MARKERS[2:]]
    )
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    return Tokenizer(library)


def tiny_tokenizer():
    """64 ids for the fake engine: begin, end, and a token for each of some characters."""
    words = [*MARKERS[:2], *"!abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"][:64]
    library = tokenizers.Tokenizer(models.BPE(vocab={w: i for i, w in enumerate(words)}, merges=[]))
    library.add_special_tokens(MARKERS[:2])
    library.decoder = decoders.ByteLevel()
    return Tokenizer(library)


def allowed_ids(bitmask):
    return np.flatnonzero(np.unpackbits(bitmask.view(np.uint8), bitorder="little")).tolist()


def params(guided, **others):
    return SamplingParams(guided_decoding=guided, **{"max_tokens": 4096, **others})


def walk(grammar, guided, seed, *, hurry=(), limit=3000, **others):
    """Token ids of one output, any that are allowed, in half the cases one that leads to its end."""
    guide, random, out = grammar.begin(params(guided, **others)), np.random.default_rng(seed), []
    while not guide.is_over:
        allowed = allowed_ids(guide.bitmask)
        soon = [i for i in hurry if i in allowed]
        if DSML in soon:
            soon = [DSML]
        out.append(int(random.choice(soon if soon and random.random() < 0.5 else allowed)))
        if out[-1] == EOS:
            return out
        guide.advance(out[-1])
        assert len(out) < limit, "this output has no end"
    return out


def check_json(value, schema):
    """A value against the few keywords that these tests use."""
    if "enum" in schema:
        assert value in schema["enum"]
    kinds = {
        "object": dict,
        "array": list,
        "string": str,
        "boolean": bool,
        "integer": int,
        "number": (int, float),
        "null": type(None),
    }
    if "type" in schema:
        assert isinstance(value, kinds[schema["type"]]), (value, schema)
    if schema.get("type") == "object":
        assert set(schema.get("required", ())) <= set(value)
        for key, inner in value.items():
            check_json(inner, schema["properties"][key])
    if schema.get("type") == "array":
        for inner in value:
            check_json(inner, schema["items"])
    if "minimum" in schema:
        assert schema["minimum"] <= value <= schema["maximum"]


def loads(text):
    return json.loads(text, parse_constant=lambda name: 1 / 0)
