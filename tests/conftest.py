"""Shared fixtures; tests that need a GPU are skipped, and counted, where there is none."""

import signal

import pytest
from hypothesis import settings

from tests.workshop import Workshop, golden_roots

# the same examples in every run; --hypothesis-profile=default looks for new ones
settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def workshop(tmp_path_factory):
    """Builds engines through the command line and keeps them for the whole run."""
    return Workshop(tmp_path_factory.mktemp("workshop"))


@pytest.fixture(scope="session")
def tiny_a():
    """The golden model that travels with the repository."""
    return golden_roots()["tiny-a"] / "checkpoint"


@pytest.fixture
def signals_as_usual():
    """Signals do here, and in processes started here, what they do by default: nohup ignores one."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.SIG_DFL) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def pytest_collection_modifyitems(items):
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not gpu:
        return
    import torch

    if not torch.cuda.is_available():
        for item in gpu:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))
