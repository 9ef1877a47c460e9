import pytest

from tests.engine.workshop import Workshop, golden_roots


@pytest.fixture(scope="session")
def workshop(tmp_path_factory):
    return Workshop(tmp_path_factory.mktemp("workshop"))


@pytest.fixture(scope="session")
def tiny_a():
    """The golden model that travels with the repository."""
    return golden_roots()["tiny-a"] / "checkpoint"
