"""What the model knows of text: its tokenizer, where there is one, and the markers of its chat format."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from dsv4_trt.errors import CheckpointError, RequestError
from dsv4_trt.runtime.chat.markup import Markup
from dsv4_trt.runtime.text.tokenizer import Tokenizer
from dsv4_trt.runtime.triton.failures import UnsupportedInput


@dataclass(frozen=True)
class ModelText:
    """Tokenizer, end of sentence and markup of one engine."""

    eos_id: int
    tokenizer: Tokenizer | None

    def need_tokenizer(self, name: str) -> Tokenizer:
        """The tokenizer; `RequestError` about the tensor `name` without one."""
        if self.tokenizer is None:
            raise RequestError(
                f"{name} needs a tokenizer and this engine has none; give input_ids, or export the "
                "model with --tokenizer_dir",
                parameter=name,
            )
        return self.tokenizer

    def need_markup(self, name: str) -> Markup:
        """The markers' ids; `UnsupportedInput` about the tensor `name` if the tokenizer lacks one."""
        self.need_tokenizer(name)
        try:
            return self._markup
        except CheckpointError as error:
            raise UnsupportedInput(f"{name} can not be used: {error}", parameter=name) from error

    @cached_property
    def _markup(self) -> Markup:
        assert self.tokenizer is not None
        return Markup.resolve(self.tokenizer)
