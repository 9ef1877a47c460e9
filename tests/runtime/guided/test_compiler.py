"""Grammars that are none, that take too much, that crash; and each is compiled once."""

import os
import signal
import threading
import time

import pytest

from dsv4_trt.errors import EngineFault, MissingDependency, QueueFull, RequestError
from dsv4_trt.runtime.guided import compiler as compilers
from dsv4_trt.runtime.guided import trial, trial_process, xgrammar_calls
from dsv4_trt.runtime.guided.compiler import GrammarCompiler
from dsv4_trt.runtime.guided.source import GrammarSource
from dsv4_trt.runtime.sampling.guided_decoding import GuidedDecodingParams
from tests.runtime.guided.walks import EOS, SIZE


def refusal(compiler, **kind):
    (name,) = kind
    with pytest.raises(RequestError) as caught:
        compiler.compile(GuidedDecodingParams(**kind))
    assert caught.value.parameter == f"guided_decoding.{name}"
    assert "/project" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ({"regex": "(a"}, "The parenthesis is not closed"),
        ({"regex": r"(?=a)b"}, "Lookahead is not supported"),
        ({"regex": "(" * 9000 + "a" + ")" * 9000}, "Nest layer exceeded"),
        ({"grammar": 'foo ::= "a"'}, 'The root rule with name "root" is not found'),
        ({"grammar": "root ::= x"}, 'Rule "x" is not defined'),
        ({"grammar": "root ::= a\na ::= root"}, "allows no output at all"),
        ({"json": {"type": "foo"}}, 'Unsupported type "foo"'),
        ({"json": {"enum": []}}, "enum array must not be empty"),
        ({"json": {"$ref": "#"}}, "Circular"),
        ({"json": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}}, "Circular"),
        ({"structural_tag": {"type": "structural_tag", "format": 3}}, "can not be compiled"),
        ({"grammar": f"root ::= Token({SIZE})"}, f"names the token {SIZE}"),
    ],
)
def test_what_is_no_grammar(compiler, kind, found):
    assert found in refusal(compiler, **kind)


def test_one_that_takes_too_long_is_refused_and_known_from_then_on(compiler, monkeypatch):
    monkeypatch.setattr(trial, "SECONDS", 1)
    hostile = "[^a]" * 20000
    assert "takes more than 1 s" in refusal(compiler, regex=hostile)
    with compiler._compiling:  # nothing is left to compile
        assert "takes more than 1 s" in refusal(compiler, regex=hostile)
    compiler.compile(GuidedDecodingParams(regex="still|here"))


def test_equal_grammars_are_compiled_once(compiler):
    first, again = (
        compiler.compile(GuidedDecodingParams(json={"const": "once"}, start_after=start))
        for start in (None, 3)
    )
    assert first is again


def test_as_many_are_kept_as_should_be(compiler, monkeypatch):
    monkeypatch.setattr(compilers, "MAX_GRAMMARS", 3)
    first = compiler.compile(GuidedDecodingParams(regex="x0"))
    for n in range(3):
        compiler.compile(GuidedDecodingParams(regex=f"x{n}"))
    assert compiler.compile(GuidedDecodingParams(regex="x0")) is first
    for n in range(3):
        compiler.compile(GuidedDecodingParams(regex=f"y{n}"))
    assert compiler.compile(GuidedDecodingParams(regex="x0")) is not first


def test_threads_get_the_same_grammar(compiler):
    found = []
    threads = [
        threading.Thread(
            target=lambda: found.append(compiler.compile(GuidedDecodingParams(regex="thread[s]")))
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len({id(grammar) for grammar in found}) == 1


def test_who_waits_too_long_for_others_may_come_back(compiler, monkeypatch):
    monkeypatch.setattr(compilers, "WAIT_SECONDS", 0.05)
    known = compiler.compile(GuidedDecodingParams(regex="known"))
    with compiler._compiling:
        with pytest.raises(QueueFull, match="grammars are being compiled"):
            compiler.compile(GuidedDecodingParams(regex="not known yet"))
        assert compiler.compile(GuidedDecodingParams(regex="known")) is known


class Kills:
    """In the place of a compiler: does what no compiler should."""

    def __init__(self, deed):
        self.deed = deed

    def compile_regex(self, text):
        self.deed()


def kill_itself():
    os.kill(os.getpid(), signal.SIGSEGV)


def take_memory():
    return bytearray(trial_process.MAX_BYTES * 2)


def sleep():
    time.sleep(60)


@pytest.mark.parametrize(
    ("deed", "seconds", "found"),
    [
        (kill_itself, 30, "makes the compiler fail"),
        (take_memory, 30, "takes more than 1024 MiB"),
        (sleep, 1, "takes more than 1 s"),
    ],
)
def test_whatever_a_compiler_does_a_trial_tells(monkeypatch, deed, seconds, found):
    monkeypatch.setattr(trial_process, "PATIENCE", 1)
    source = GrammarSource("regex", "a")
    assert found in trial_process.try_out(Kills(deed), None, source, seconds)


def test_the_process_for_trials_starts_again_after_its_death(compiler):
    compiler.compile(GuidedDecodingParams(regex="before"))
    process = compiler._trial._process
    process.kill()
    process.wait()
    compiler.compile(GuidedDecodingParams(regex="after"))
    assert compiler._trial._process is not process


def test_one_that_does_not_come_up_is_a_fault_not_a_hang(small, monkeypatch):
    monkeypatch.setattr("sys.executable", "/bin/false")
    compiler = GrammarCompiler(small, SIZE, EOS)
    with pytest.raises(EngineFault, match="tries grammars out"):
        compiler.compile(GuidedDecodingParams(regex="a"))
    compiler.close()


def test_without_xgrammar(small, monkeypatch):
    monkeypatch.setattr(xgrammar_calls, "find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match=r"'xgrammar'.*dsv4-trt\[serve\]"):
        GrammarCompiler(small, SIZE, EOS).compile(GuidedDecodingParams(regex="a"))
