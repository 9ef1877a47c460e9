"""The text of one generated sequence: detokenizer and stop checker behind one push."""

from __future__ import annotations

from dsv4_trt.runtime.sampling.sampling_params import SamplingParams
from dsv4_trt.runtime.text.detokenizer import IncrementalDetokenizer
from dsv4_trt.runtime.text.stop_checker import StopChecker
from dsv4_trt.runtime.text.tokenizer import Tokenizer


class TextStream:
    """Text of a sequence as its tokens come, ended by what its `SamplingParams` say."""

    def __init__(self, tokenizer: Tokenizer, params: SamplingParams, eos_token_id: int) -> None:
        self._text = IncrementalDetokenizer(tokenizer)
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
        if self._stops.ends(token_id):
            return self._stops.finish(self._text.finish())
        return self._stops.show(self._text.push(token_id))

    def finish(self) -> str:
        """The rest of the text, where the sequence ends without a stop (at its token limit)."""
        return self._stops.finish(self._text.finish())
