"""The process that tries grammars out: for each a fork that compiles it and takes some steps, in bounds."""

from __future__ import annotations

import os
import re
import resource
import select
import signal
import sys
from typing import Any

import numpy as np

from dsv4_trt.runtime.guided.source import GrammarSource
from dsv4_trt.runtime.guided.trial import receive, send
from dsv4_trt.runtime.guided.vocabulary import GrammarVocabulary
from dsv4_trt.runtime.guided.xgrammar_calls import compile_source, new_compiler, new_matcher

PATIENCE = 4  # times the seconds of one core that a trial may take, by the clock
MAX_BYTES = 1 << 30  # of memory on top of what the process has
STEPS = 32  # tokens put out as a trial, any that are allowed


def main() -> None:
    """Answer for each grammar what speaks against it, until the owner ends."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a library's prints are no answers
    vocabulary: GrammarVocabulary = receive(sys.stdin.buffer)
    compiler = new_compiler(vocabulary)
    while True:
        try:
            source, seconds = receive(sys.stdin.buffer)
        except EOFError:
            return
        send(out, try_out(compiler, vocabulary, source, seconds))


def try_out(
    compiler: Any, vocabulary: GrammarVocabulary, source: GrammarSource, seconds: int
) -> str | None:
    """What speaks against a grammar; None = nothing does. It may take `seconds` of one core."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _bound(seconds)
        _run(compiler, vocabulary, source, writer)
    os.close(writer)
    told = b""
    while select.select([reader], [], [], seconds * PATIENCE)[0]:
        part = os.read(reader, 1 << 16)
        if not part:
            break
        told += part
    else:
        os.kill(child, signal.SIGKILL)
    os.close(reader)
    _, status = os.waitpid(child, 0)
    if told:
        return told.decode() if told != b"\0" else None
    ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if ended_by in (signal.SIGXCPU, signal.SIGKILL):
        return f"takes more than {seconds} s to compile; write a smaller one"
    return "makes the compiler fail; write a simpler one"


def _run(compiler: Any, vocabulary: GrammarVocabulary, source: GrammarSource, writer: int) -> None:
    """In the fork: compile, take steps, tell, end."""
    try:
        objection = _steps(new_matcher(compile_source(compiler, source)), len(vocabulary.tokens))
    except BaseException as error:
        objection = _objection(error)
    os.write(writer, (objection or "\0").encode()[:4096])
    os._exit(0)


def _bound(seconds: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))  # a fork's time starts anew
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MAX_BYTES, size + MAX_BYTES))


def _steps(matcher: Any, vocab_size: int) -> str | None:
    words = np.full((1, -(-vocab_size // 32)), -1, np.int32)
    random = np.random.default_rng(0)
    for step in range(STEPS):
        matcher.fill_next_token_bitmask(words)
        allowed = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))
        allowed = allowed[allowed < vocab_size]
        if not allowed.size:
            return None if step else "allows no output at all"
        matcher.accept_token(int(random.choice(allowed)))
        if matcher.is_terminated():
            break
    return None


def _objection(error: BaseException) -> str:
    """An error in words: a library's message without its place in the library's source."""
    if isinstance(error, MemoryError) or "bad_alloc" in str(error):
        return f"takes more than {MAX_BYTES >> 20} MiB to compile; write a smaller one"
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return "can not be compiled: " + re.sub(r"^\[[\d:]+\] \S+:\d+: ", "", lines[0])


if __name__ == "__main__":
    main()
