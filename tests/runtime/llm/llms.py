"""Small LLMs over the golden model, and a tokenizer for its 512 token ids."""

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from dsv4_trt.runtime.llm import LLM, SamplingParams

BOS, EOS = "<|begin|>", "<|end|>"
GREEDY = {"temperature": 0, "ignore_eos": True}
BUILD = ("--max_seq_len", "1024")


def greedy(max_tokens, **params):
    """Always that many tokens, always the same."""
    return SamplingParams(max_tokens=max_tokens, **(GREEDY | params))


def open_llm(workshop, checkpoint, **options):
    options = {"device": "cpu", "precision": "exact", "max_batch_size": 4} | options
    return LLM(workshop.bundle_dir(checkpoint, build=BUILD), **options)


def write_tokenizer(directory, size=512):
    """A token for each byte, then pairs of letters; the first two mark begin and end."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = [a + b for a in letters for b in letters]
    words = [BOS, EOS, *letters, *pairs][:size]
    vocab = {word: token_id for token_id, word in enumerate(words)}
    library = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    library.add_special_tokens([BOS, EOS])
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    directory.mkdir(exist_ok=True)
    library.save(str(directory / "tokenizer.json"))
    return directory
