"""Tries grammars out in a process of its own, where one that hangs, crashes or eats memory hurts nobody."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import weakref
from threading import Lock
from typing import IO, Any

from dsv4_trt.errors import EngineFault
from dsv4_trt.runtime.guided.source import GrammarSource
from dsv4_trt.runtime.guided.vocabulary import GrammarVocabulary

MODULE = "dsv4_trt.runtime.guided.trial_process"
SECONDS = 5  # of one core that a trial may take


class Trial:
    """The process, started at the first use and again after its death; ends with its owner.

    One trial runs at a time.
    """

    def __init__(self, vocabulary: GrammarVocabulary) -> None:
        self._vocabulary = vocabulary
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = Lock()

    def start(self) -> None:
        """Start the process, which loads for seconds, without waiting for it."""
        with self._lock:
            self._started()

    def objection(self, source: GrammarSource) -> str | None:
        """What speaks against compiling a grammar here; None = nothing does.

        Raises `EngineFault` if the process can not be started or does not answer.
        """
        with self._lock:
            process = self._started()
            try:
                send(process.stdin, (source, SECONDS))
                return str(found) if (found := receive(process.stdout)) is not None else None
            except (OSError, EOFError, pickle.UnpicklingError) as error:
                _stop(process)
                raise EngineFault(
                    f"the process that tries grammars out has ended (code {process.returncode}); run "
                    "the request again"
                ) from error

    def close(self) -> None:
        """End the process; a later use starts another."""
        with self._lock:
            if self._process is not None:
                _stop(self._process)

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._process = _start()
        weakref.finalize(self, _stop, self._process)
        try:
            send(self._process.stdin, self._vocabulary)
        except OSError as error:
            raise EngineFault("the process that tries grammars out did not start") from error
        return self._process


def send(stream: IO[bytes] | None, message: Any) -> None:
    """Write one message."""
    assert stream is not None
    pickle.dump(message, stream)
    stream.flush()


def receive(stream: IO[bytes] | None) -> Any:
    """Read one message; `EOFError` once the other side has ended."""
    assert stream is not None
    return pickle.load(stream)


def _start() -> subprocess.Popen[bytes]:
    """With the modules that this process finds, and deaf to what it prints."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        return subprocess.Popen(
            [sys.executable, "-m", MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # a Ctrl-C is for its owner, whose end it notices
        )
    except OSError as error:
        raise EngineFault(
            f"the process that tries grammars out can not be started: {error}; structured output "
            "needs one"
        ) from error


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            try:
                stream.close()
            except OSError:  # what was not sent yet has nobody to go to
                continue
