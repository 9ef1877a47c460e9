"""Token ids in, text out as soon as it is certain: a character split over tokens waits for its end."""

from __future__ import annotations

import codecs

from dsv4_trt.runtime.text.tokenizer import Tokenizer


class IncrementalDetokenizer:
    """Streams the text of one sequence.

    All pieces joined equal `Tokenizer.decode` of all ids. Tokens marked special are hidden unless
    `skip_special` is false; markers that are not (`</think>`, tool calls) always come through.
    """

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool = True) -> None:
        self._tokenizer = tokenizer
        self._hidden = tokenizer.special_ids if skip_special else frozenset[int]()
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        """Text that `token_id` completes; may be empty."""
        if token_id in self._hidden:
            return ""
        return self._decoder.decode(self._tokenizer.token_bytes(token_id))

    def finish(self) -> str:
        """What an unfinished character at the end decodes to: U+FFFD, or nothing."""
        return self._decoder.decode(b"", final=True)
