"""Compiles grammars for one vocabulary, each once, and only those that a trial has found harmless."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np

from dsv4_trt.errors import QueueFull
from dsv4_trt.runtime.guided.guide import Guide, Words
from dsv4_trt.runtime.guided.source import ANY_OBJECT, GrammarSource, refused
from dsv4_trt.runtime.guided.trial import Trial
from dsv4_trt.runtime.guided.vocabulary import GrammarVocabulary
from dsv4_trt.runtime.guided.xgrammar_calls import (
    check_installed,
    compile_source,
    new_compiler,
    new_matcher,
)
from dsv4_trt.runtime.sampling.guided_decoding import GuidedDecodingParams
from dsv4_trt.runtime.sampling.sampling_params import SamplingParams
from dsv4_trt.runtime.text.tokenizer import Tokenizer

MAX_GRAMMARS = 64  # that are kept, compiled or refused
WAIT_SECONDS = 30.0  # for the compilations of other requests


@dataclass(frozen=True, slots=True)
class Grammar:
    """A compiled grammar; any number of sequences may follow it."""

    compiled: Any
    allowed: Words  # tokens that it may put out at all
    eos_token_id: int

    def begin(self, params: SamplingParams) -> Guide:
        """The guide of a new sequence."""
        return Guide(new_matcher(self.compiled), self.allowed, params, self.eos_token_id)


class GrammarCompiler:
    """Grammars of requests over one tokenizer. May be used from any thread; no call here is short.

    xgrammar, and the process for trials, are loaded at the first use: that takes seconds.
    """

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, eos_token_id: int) -> None:
        self._tokenizer = tokenizer
        self._vocab_size, self._eos = vocab_size, eos_token_id
        self._vocabulary: GrammarVocabulary | None = None
        self._trial: Trial | None = None
        self._compiler: Any = None
        self._compiling, self._keeping = Lock(), Lock()
        self._kept: OrderedDict[GrammarSource, Grammar | str] = OrderedDict()

    def compile(self, guided: GuidedDecodingParams) -> Grammar:
        """The grammar that is asked for.

        Raises:
            RequestError: it is no grammar, or takes too much to compile or to follow.
            QueueFull: others are being compiled, and that took too long to wait for.
            MissingDependency: xgrammar is not installed.
        """
        source = GrammarSource.of(guided)
        found = self._look_up(source)
        if found is None:
            if not self._compiling.acquire(timeout=WAIT_SECONDS):
                raise QueueFull("other requests' grammars are being compiled; try again later")
            try:
                found = self._look_up(source) or self._keep(source, self._compile(source))
            finally:
                self._compiling.release()
        if isinstance(found, str):
            raise refused(guided.kind, found)
        return found

    def warm_up(self) -> None:
        """Load what the first grammar needs; raises `MissingDependency` without xgrammar."""
        self.compile(GuidedDecodingParams(regex="warm"))

    def close(self) -> None:
        """End the process for trials."""
        if self._trial is not None:
            self._trial.close()

    def _look_up(self, source: GrammarSource) -> Grammar | str | None:
        with self._keeping:
            if source in self._kept:
                self._kept.move_to_end(source)
            return self._kept.get(source)

    def _keep(self, source: GrammarSource, found: Grammar | str) -> Grammar | str:
        with self._keeping:
            self._kept[source] = found
            while len(self._kept) > MAX_GRAMMARS:
                self._kept.popitem(last=False)
        return found

    def _compile(self, source: GrammarSource) -> Grammar | str:
        """A grammar, or what speaks against it."""
        vocabulary, trial = self._loaded()
        wrong = sorted(source.token_ids - set(range(len(vocabulary.tokens))))
        if wrong:
            return (
                f"names the token {wrong[0]}; the vocabulary ends at {len(vocabulary.tokens) - 1}"
            )
        if source.text != ANY_OBJECT:
            objection = trial.objection(source)
            if objection is not None:
                return objection
        compiled = compile_source(self._compiler, source)
        return Grammar(compiled, _allowed(vocabulary, source), vocabulary.eos_token_id)

    def _loaded(self) -> tuple[GrammarVocabulary, Trial]:
        if self._vocabulary is None or self._trial is None:
            check_installed()
            self._vocabulary = GrammarVocabulary.of(self._tokenizer, self._vocab_size, self._eos)
            self._trial = Trial(self._vocabulary)
            self._trial.start()  # loads while this process does
        if self._compiler is None:
            self._compiler = new_compiler(self._vocabulary)
        return self._vocabulary, self._trial


def _allowed(vocabulary: GrammarVocabulary, source: GrammarSource) -> Words:
    """All ordinary tokens, the markers that the grammar names, and the end of text.

    In JSON no control characters: xgrammar lets them into strings that have a length.
    """
    size = len(vocabulary.tokens)
    bits = np.zeros(-(-size // 32) * 32, np.bool_)
    bits[:size] = [bool(token) for token in vocabulary.tokens]
    bits[list(vocabulary.marker_ids)] = False
    if source.kind == "json":
        bits[list(vocabulary.control_ids)] = False
    bits[list(source.token_ids)] = True
    bits[vocabulary.eos_token_id] = True
    return np.packbits(bits, bitorder="little").view(np.int32)
