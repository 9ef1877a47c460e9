"""Runs that were put together beforehand, and a tokenizer of 512 ids, in place of an engine."""

import json

from dsv4_trt.runtime.sampling.row_state import SampledToken
from dsv4_trt.runtime.server.openai.answer_head import AnswerHead
from dsv4_trt.runtime.text.tokenizer import Tokenizer
from tests.runtime.llm.llms import write_tokenizer

HEAD = AnswerHead(id="x-1", model="tiny", system_fingerprint="fp_1", created=7)


class StoredRun:
    """What a `ChatRun` or `TextRun` would give, step by step."""

    def __init__(self, *steps, error=None, prompt_ids=(0, 1, 2), cached=0):
        self.steps, self.error = steps, error
        self.prompt_ids, self.prompt_tokens = [*prompt_ids], len(prompt_ids)
        self.cached_tokens, self.completion_tokens, self.reasoning_tokens = cached, 0, 0
        self.is_cancelled = False

    def cancel(self):
        self.is_cancelled = True

    async def __aiter__(self):
        for step in self.steps:
            self.completion_tokens += sum(len(delta.tokens) for delta in step)
            yield step
        if self.error is not None:
            raise self.error


def tokens(*ids, top=()):
    return [SampledToken(i, -float(i), top) for i in ids]


def tiny_tokenizer(directory):
    return Tokenizer.load(write_tokenizer(directory))


def parsed(text):
    """The events of a stream's text: JSON data, or what stands there."""
    assert text.endswith("\n\n")
    lines = text[:-2].split("\n\n")
    assert all(line.startswith("data: ") for line in lines)
    return [json.loads(line[6:]) if line != "data: [DONE]" else "[DONE]" for line in lines]


async def collect(chunks):
    return parsed("".join([chunk async for chunk in chunks]))
