"""What random prompts are made of: token ids, and pieces of text that are one token each."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dsv4_trt.errors import ConfigError
from dsv4_trt.runtime.text.tokenizer import Tokenizer

MAX_PIECES = 4096
MAX_ROUNDS = 64  # of bringing a text to its length
# words that about every English vocabulary has as one token, for a server that only tells counts
WORDS = (
    "time year people way day man thing woman life child world school state family student group "
    "country problem hand part place case week company system program question work government "
    "number night point home water room mother area money story fact month lot right study book eye "
    "job word business issue side kind head house service friend father power hour game line end "
    "member law car city community name president team minute idea kid body information back parent "
    "face others level office door health person art war history party result change morning reason "
    "research girl guy moment air teacher force education"
)


class Encoder(Protocol):
    """Text to token ids, with nothing put in front or behind."""

    def encode(self, text: str) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Token ids to draw from, and pieces to draw from where text is needed."""

    token_ids: list[int]
    pieces: Sequence[str] = ()
    encoder: Encoder | None = None  # where text is needed

    def random_ids(self, rng: np.random.Generator, count: int) -> list[int]:
        """`count` ids, each as likely as any other."""
        drawn = rng.integers(0, len(self.token_ids), count).tolist()
        return [self.token_ids[i] for i in drawn]

    def random_text(
        self, rng: np.random.Generator, count: int, prefix: str = "", num_prefix: int = 0
    ) -> str:
        """`prefix`, which has `num_prefix` tokens, and a random text that adds exactly `count`.

        Raises `ConfigError` if no such text was found.
        """
        assert self.encoder is not None
        assert self.pieces
        pieces: list[str] = []
        missing, count = count, count + num_prefix
        for _ in range(MAX_ROUNDS):
            if missing > 0:
                drawn = rng.integers(0, len(self.pieces), missing).tolist()
                pieces += [self.pieces[i] for i in drawn]
            elif missing < 0:
                del pieces[missing:]
            text = prefix + "".join(pieces)
            missing = count - len(self.encoder.encode(text))
            if missing == 0:
                return text
        raise ConfigError(
            f"no random text of {count} tokens was found in {MAX_ROUNDS} tries, the last was off by "
            f"{missing}; use --endpoint completions, whose prompts are token ids, or a dataset"
        )


def vocabulary_of(tokenizer: Tokenizer, vocab_size: int, seed: int) -> Vocabulary:
    """All ids below `vocab_size` but special ones; as pieces, words that are one token."""
    most = min(vocab_size, tokenizer.vocab_size)
    token_ids = [i for i in range(most) if i not in tokenizer.special_ids]
    words: list[str] = []
    for i in np.random.default_rng(seed).permutation(token_ids).tolist():
        word = tokenizer.token_bytes(i).decode("utf-8", errors="replace")
        if word[:1] == " " and word[1:].isascii() and word[1:].isalpha():
            words.append(word)
            if len(words) == MAX_PIECES:
                break
    pieces = _pieces(tokenizer, words)
    return Vocabulary(token_ids, list(pieces), tokenizer)


def vocabulary_behind(encoder: Encoder) -> Vocabulary:
    """What can be learnt from an encoder alone: common words that it has as one token."""
    pieces = _pieces(encoder, [f" {word}" for word in WORDS.split()])
    return Vocabulary(list(pieces.values()), list(pieces), encoder)


def _pieces(encoder: Encoder, words: Sequence[str]) -> dict[str, int]:
    found = single_tokens(encoder, words) or single_tokens(encoder, string.ascii_letters)
    if not found:
        raise ConfigError(
            "the tokenizer has neither a common word nor a letter as one token, so random text can "
            "not be made; use a dataset"
        )
    return found


def single_tokens(encoder: Encoder, pieces: Sequence[str]) -> dict[str, int]:
    """Of `pieces` those that are one token, with their ids: few calls where most are.

    Halves are looked at apart until each has as many tokens as pieces. Where that is so by chance some
    are none, which costs `random_text` a further round.
    """
    if not pieces:
        return {}
    token_ids = encoder.encode("".join(pieces))
    if len(token_ids) == len(pieces):
        return dict(zip(pieces, token_ids, strict=True))
    if len(pieces) == 1:
        return {}
    half = len(pieces) // 2
    return single_tokens(encoder, pieces[:half]) | single_tokens(encoder, pieces[half:])
