"""A tokenizer's vocabulary as grammars see it: text is spelled by ordinary tokens only.

Markers (`</think>`, `｜DSML｜`, `<｜User｜>`) match where a grammar names their ids, and only there: here
they begin with a byte that stands in no UTF-8, so that no text of a grammar is made of them. Special
tokens match nowhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dsv4_trt.runtime.text.tokenizer import Tokenizer

NO_TEXT = b"\xff"
_CONTROL = re.compile(rb"[\x00-\x09\x0b\x0c\x0e-\x1f]")


@dataclass(frozen=True, slots=True)
class GrammarVocabulary:
    """Plain data, so that it can be sent to another process."""

    tokens: list[bytes]  # by id; empty = special
    marker_ids: tuple[int, ...]
    control_ids: tuple[int, ...]  # with control characters other than line ends
    eos_token_id: int

    @staticmethod
    def of(tokenizer: Tokenizer, vocab_size: int, eos_token_id: int) -> GrammarVocabulary:
        """The first `vocab_size` tokens, which is what the model can put out."""
        markers = sorted(tokenizer.added_ids - tokenizer.special_ids - {eos_token_id})
        is_marker, hidden = set(markers), tokenizer.special_ids | {eos_token_id}
        tokens = [
            b""
            if token_id in hidden
            else NO_TEXT * (token_id in is_marker) + tokenizer.token_bytes(token_id)
            for token_id in range(vocab_size)
        ]
        return GrammarVocabulary(
            tokens,
            tuple(token_id for token_id in markers if token_id < vocab_size),
            tuple(token_id for token_id, token in enumerate(tokens) if _CONTROL.search(token)),
            eos_token_id,
        )
