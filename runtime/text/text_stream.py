"""The text of one generated sequence: detokenizer and stop checker behind one push."""

from __future__ import annotations

from dsv4_trt.runtime.sampling.sampling_params import SamplingParams
from dsv4_trt.runtime.text.detokenizer import IncrementalDetokenizer
from dsv4_trt.runtime.text.stop_checker import StopChecker
from dsv4_trt.runtime.text.tokenizer import Tokenizer


class TextStream:
    """Text of a sequence as its tokens come, ended by what its `SamplingParams` say.

    `mark` is where the markup that the newest token is begins, in characters of the whole text; None for
    any other token. The text there may be shown later, as that of stop strings is held back, or never.
    """

    def __init__(self, tokenizer: Tokenizer, params: SamplingParams, eos_token_id: int) -> None:
        self._tokenizer = tokenizer
        self._text = IncrementalDetokenizer(tokenizer)
        self._length = 0  # characters, those held back included
        self.mark: int | None = None
        self._stops = StopChecker(
            stop=params.stop,
            stop_ids=params.end_token_ids(eos_token_id),
            min_tokens=params.min_tokens,
        )

    @property
    def matched(self) -> str | int | None:
        """The stop string or token id that ended the sequence; None while nothing has."""
        return self._stops.matched

    def push(self, token_id: int) -> str:
        """Text to show now; once `matched` is set it was the last."""
        self.mark = None
        if self._stops.ends(token_id):
            return self._stops.finish(self._text.finish())
        text = self._text.push(token_id)
        self._length += len(text)
        if token_id in self._tokenizer.markup_ids:  # its text is whole, and the last in what came
            self.mark = self._length - len(self._tokenizer.token_bytes(token_id).decode())
        return self._stops.show(text)

    def finish(self) -> str:
        """The rest of the text, where the sequence ends without a stop (at its token limit)."""
        return self._stops.finish(self._text.finish())
