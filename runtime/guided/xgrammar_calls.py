"""The calls into xgrammar that compile; used by the executor's process and by the one for trials."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from dsv4_trt.errors import MissingDependency
from dsv4_trt.runtime.guided.source import GrammarSource
from dsv4_trt.runtime.guided.vocabulary import GrammarVocabulary

MAX_WHITESPACE = 32  # characters in a row between the parts of a JSON value


def check_installed() -> None:
    """Raise `MissingDependency` where there is no xgrammar; loads nothing."""
    if find_spec("xgrammar") is None:
        raise MissingDependency("xgrammar", "serve", "structured output")


def new_compiler(vocabulary: GrammarVocabulary) -> Any:
    """An xgrammar compiler, without a cache of its own."""
    import xgrammar

    info = xgrammar.TokenizerInfo(
        vocabulary.tokens,
        xgrammar.VocabType.RAW,
        vocab_size=len(vocabulary.tokens),
        stop_token_ids=[vocabulary.eos_token_id],
    )
    return xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)


def new_matcher(compiled: Any) -> Any:
    """A matcher at the beginning of a compiled grammar."""
    import xgrammar

    return xgrammar.GrammarMatcher(compiled)


def compile_source(compiler: Any, source: GrammarSource) -> Any:
    """A compiled grammar; raises whatever xgrammar raises."""
    match source.kind:
        case "json":
            return compiler.compile_json_schema(source.text, max_whitespace_cnt=MAX_WHITESPACE)
        case "regex":
            return compiler.compile_regex(source.text)
        case "grammar":
            return compiler.compile_grammar(source.text)
        case _:
            return compiler.compile_structural_tag(source.text)
