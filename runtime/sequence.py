"""One sequence: its tokens, and how many of them the KV cache holds."""

from __future__ import annotations

from dataclasses import dataclass, field

from dsv4_trt.runtime.kv.cache import SequencePages


@dataclass(slots=True, kw_only=True)
class Sequence:
    """Token ids of prompt and output, and the pages behind those already computed."""

    token_ids: list[int]
    pages: SequencePages
    num_prompt_tokens: int = field(init=False)

    def __post_init__(self) -> None:
        self.num_prompt_tokens = len(self.token_ids)

    @property
    def num_computed(self) -> int:
        """Tokens whose KV entries are in pages."""
        return self.pages.num_tokens

    @property
    def output_ids(self) -> list[int]:
        """Tokens generated so far."""
        return self.token_ids[self.num_prompt_tokens :]
