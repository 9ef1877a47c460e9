"""Every error this project raises on purpose.

    Dsv4Error
    ├── ConfigError        a config file or option has a missing, unknown or illegal value
    ├── CheckpointError    a Hugging Face or rank checkpoint is not what it should be
    ├── BuildError         a graph or bundle can not be built as asked
    ├── BundleMismatch     a bundle and what it is used with do not belong together
    ├── PluginError        an op is called with tensors or attributes its table entry refuses
    ├── CapacityError      a limit (pages, tokens, disk) would be passed
    │   └── QueueFull      too many requests wait already; the same one may be accepted later
    ├── RequestError       a request asks for something illegal
    │   └── TooLong        prompt and output together pass max_seq_len
    ├── CompletionError    a model's output is not in the format that was to be parsed
    ├── EngineFault        the engine produced something it never should (NaN logits)
    ├── Unavailable        nothing can be served at the moment; the same request may be accepted later
    └── MissingDependency  an optional package is needed; names the extra that brings it

Messages say what was found, what was expected and what to do. Callers classify by type, never by text.
"""

from __future__ import annotations

import sys


class Dsv4Error(Exception):
    """Base of all our errors; the command line prints it as one line and exits with 1."""


class ConfigError(Dsv4Error):
    """A config file or an option has a missing, unknown or illegal value."""


class CheckpointError(Dsv4Error):
    """A checkpoint, ours or Hugging Face's, is not what it should be."""


class BuildError(Dsv4Error):
    """A graph or a bundle can not be built as asked."""


class BundleMismatch(Dsv4Error):
    """A bundle and the weights or the runtime it is used with do not belong together."""


class PluginError(Dsv4Error):
    """An op is called with tensors or attributes that its table entry refuses."""


class CapacityError(Dsv4Error):
    """A limit (pages, tokens, sequence length, disk) would be passed."""


class QueueFull(CapacityError):
    """As many requests wait as may; the client should come back later."""


class RequestError(Dsv4Error):
    """A request asks for something illegal; `parameter` names the field at fault, where there is one."""

    def __init__(self, message: str, *, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


class TooLong(RequestError):
    """Prompt and output together are longer than the engine was built, or is served, for."""


class CompletionError(Dsv4Error):
    """A model's output is not in the format that a strict parser reads."""


class EngineFault(Dsv4Error):
    """The engine produced something it never should, such as a row of NaN logits."""


class Unavailable(Dsv4Error):
    """A server can not take requests now: it drains, or its engine starts again."""

    def __init__(self, message: str, *, retry_after: int = 10) -> None:
        super().__init__(message)
        self.retry_after = retry_after  # seconds


class MissingDependency(Dsv4Error):
    """An optional package is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package '{package}', which is not installed; "
            f"install it with: {sys.executable} -m pip install 'dsv4-trt[{extra}]'"
        )
        self.package = package
        self.extra = extra
        self.purpose = purpose

    def __reduce__(self) -> tuple[type[MissingDependency], tuple[str, str, str]]:
        return MissingDependency, (self.package, self.extra, self.purpose)  # `args` are not these
