"""A small bundle with plans, and the host that runs it."""

import pytest

from tests.runtime.tensorrt.plans import plan_bundle

SMALL = ("--max_batch_size", "4", "--max_num_tokens", "96", "--max_seq_len", "640")


@pytest.fixture(scope="session")
def native_dir(workshop, tiny_a):
    return workshop.bundle_dir(tiny_a, build=SMALL)


@pytest.fixture(scope="session")
def plan_dir(native_dir, tmp_path_factory):
    """For tests that only read it."""
    return plan_bundle(native_dir, tmp_path_factory.mktemp("plans") / "engine")


@pytest.fixture
def host(monkeypatch):
    from tests.runtime.tensorrt.host import Host  # needs cuda-python

    return Host(monkeypatch)
