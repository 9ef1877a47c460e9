"""The token ids of V4's markers, and prompts made of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dsv4_trt.errors import CheckpointError
from dsv4_trt.runtime.chat.markers import DSML, END_THINK, EOS, MARKERS, THINK
from dsv4_trt.runtime.chat.segments import Segment
from dsv4_trt.runtime.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Markup:
    """The id of each marker, by its spelling."""

    ids: Mapping[str, int]

    @staticmethod
    def resolve(tokenizer: Tokenizer) -> Markup:
        """Look up every marker; `CheckpointError` where one is not exactly one added token."""
        ids = {}
        for marker, plain in zip(MARKERS, tokenizer.encode_plain(MARKERS), strict=True):
            found = tokenizer.encode(marker)
            if len(found) != 1 or found[0] not in tokenizer.added_ids:
                raise CheckpointError(
                    f"the tokenizer has no token {marker}, it reads it as the ids {found}; expected "
                    "one added token for each marker of DeepSeek-V4's chat format; use the "
                    "tokenizer.json of a DeepSeek-V4 release"
                )
            if found[0] in plain:
                raise CheckpointError(
                    f"the tokenizer merges text to the token {marker}; expected an added token, which "
                    "text never becomes; use the tokenizer.json of a DeepSeek-V4 release"
                )
            ids[marker] = found[0]
        return Markup(ids)

    @property
    def eos(self) -> int:
        """End of sentence."""
        return self.ids[EOS]

    @property
    def think(self) -> int:
        """`<think>`."""
        return self.ids[THINK]

    @property
    def end_think(self) -> int:
        """`</think>`."""
        return self.ids[END_THINK]

    @property
    def dsml(self) -> int:
        """`｜DSML｜`."""
        return self.ids[DSML]

    def encode(self, segments: Iterable[Segment], tokenizer: Tokenizer) -> list[int]:
        """Token ids of a prompt. Text never becomes an added token, whatever it spells.

        Takes about 2 s for a million tokens on one core, in which other Python threads run. Raises
        `RequestError` where text is not valid Unicode.
        """
        segments = list(segments)
        texts = iter(tokenizer.encode_plain([s.text for s in segments if not s.is_markup]))
        token_ids: list[int] = []
        for segment in segments:
            token_ids.extend([self.ids[segment.text]] if segment.is_markup else next(texts))
        return token_ids
