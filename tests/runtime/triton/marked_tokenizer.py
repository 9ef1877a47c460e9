"""A tokenizer with V4's markers for the golden model's 512 token ids: it can be given conversations."""

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from dsv4_trt.runtime.chat.markers import BOS, EOS, MARKERS


def write_marked_tokenizer(directory, size=512):
    """BOS and EOS, a token for each byte, pairs of letters, and at the end the other markers."""
    markers = [marker for marker in MARKERS if marker not in (BOS, EOS)]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = [a + b for a in letters for b in letters]
    words = [BOS, EOS, *letters, *pairs][: size - len(markers)] + markers
    vocab = {word: token_id for token_id, word in enumerate(words)}
    library = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    library.add_special_tokens([BOS, EOS])
    library.add_tokens(markers)
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    directory.mkdir(exist_ok=True)
    library.save(str(directory / "tokenizer.json"))
    return directory
