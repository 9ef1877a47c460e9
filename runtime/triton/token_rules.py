"""Which tokens a request favours or demands: weights of words, and grammars."""

from __future__ import annotations

import json
from typing import Any

from dsv4_trt.runtime.sampling.guided_decoding import GuidedDecodingParams
from dsv4_trt.runtime.sampling.sampling_params import MAX_LOGIT_BIAS
from dsv4_trt.runtime.text.tokenizer import Tokenizer
from dsv4_trt.runtime.triton.fields import Fields
from dsv4_trt.runtime.triton.model_text import ModelText
from dsv4_trt.runtime.triton.prompts import read_thinking

# TensorRT-LLM's types of guides -> the kind of grammar, and whether the guide is JSON
_GUIDES = {
    "json_schema": ("json", True),
    "regex": ("regex", False),
    "ebnf_grammar": ("grammar", False),
    "structural_tag": ("structural_tag", True),
}


def read_biases(fields: Fields, num_prompts: int, text: ModelText) -> list[dict[int, float]] | None:
    """`embedding_bias_words`: of each word every token gets the word's weight, added up."""
    if ("bias_words" in fields) != ("bias_weights" in fields):
        missing = "bias_weights" if "bias_words" in fields else "bias_words"
        raise fields.error(missing, "is missing; words and weights come together")
    if "bias_words" not in fields:
        return None
    tokenizer = text.need_tokenizer(fields.name("bias_words"))
    pairs = zip(
        fields.lists("bias_words", num_prompts),
        fields.lists("bias_weights", num_prompts),
        strict=True,
    )
    return [_bias(fields, words, weights, tokenizer) for words, weights in pairs]


def _bias(
    fields: Fields, words: list[str], weights: list[float], tokenizer: Tokenizer
) -> dict[int, float]:
    if len(words) != len(weights):
        raise fields.error(
            "bias_words", f"has {len(words)} words and there are {len(weights)} weights"
        )
    bias: dict[int, float] = {}
    for word, weight in zip(words, weights, strict=True):
        for token in tokenizer.encode(word):
            bias[token] = bias.get(token, 0.0) + weight
    for token, weight in bias.items():
        if not -MAX_LOGIT_BIAS <= weight <= MAX_LOGIT_BIAS:
            raise fields.error(
                "bias_weights",
                f"add up to {weight:g} for the token {token}; expected {MAX_LOGIT_BIAS:g} at most",
            )
    return bias


def read_guides(
    fields: Fields, num_prompts: int, text: ModelText
) -> list[GuidedDecodingParams | None] | None:
    """Grammars by TensorRT-LLM's types; while the model thinks they hold from `</think>` on."""
    if "guide_type" not in fields:
        if "guide" in fields:
            raise fields.error("guide_type", f"is missing; expected {_types()}")
        return None
    types = fields.for_each("guide_type", num_prompts)
    guides = fields.for_each("guide", num_prompts) if "guide" in fields else [""] * num_prompts
    thinking = read_thinking(fields, num_prompts)
    starts = [text.need_markup("thinking").end_think if thinks else None for thinks in thinking]
    return [_guide(fields, *one) for one in zip(types, guides, starts, strict=True)]


def _guide(
    fields: Fields, guide_type: str, guide: str, start_after: int | None
) -> GuidedDecodingParams | None:
    if not guide_type and not guide:
        return None
    if guide_type == "json":
        return GuidedDecodingParams(json_object=True, start_after=start_after)
    if guide_type not in _GUIDES:
        raise fields.error("guide_type", f"is '{guide_type}'; expected {_types()}")
    kind, is_json = _GUIDES[guide_type]
    value: Any = guide
    if is_json:
        try:
            value = json.loads(guide)
        except (ValueError, RecursionError) as error:
            raise fields.error("guide", f"is no JSON ({error})") from None
    if not value:
        raise fields.error("guide", f"is empty; a guide of type '{guide_type}' needs one")
    return GuidedDecodingParams(**{kind: value}, start_after=start_after)


def _types() -> str:
    return ", ".join(["json", *_GUIDES])
