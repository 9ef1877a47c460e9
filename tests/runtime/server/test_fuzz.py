"""Requests made from the served OpenAPI description: whatever they hold, the server answers as it says."""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.runtime.server.live import fake_server, live_server

pytestmark = pytest.mark.load

MEANT = (503, 504)  # of a server error these are said on purpose: the time of a request is up
BEYOND_SCHEMAS = [positive_data_acceptance]  # a result must follow its call, and the like
LIMITS = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    max_examples=40,
    derandomize=True,
)


@pytest.fixture(scope="module")
def fake(tokenizer_dir):
    with fake_server(tokenizer_dir, "--request_timeout", 2, step_seconds=0.001) as live:
        yield live


@pytest.fixture(scope="module")
def tiny(tiny_engine):
    with live_server(tiny_engine, "--device", "cpu", "--request_timeout", 0.5) as live:
        yield live


def check(case):
    response = case.call()
    if response.status_code in MEANT:
        return
    case.validate_response(response, excluded_checks=BEYOND_SCHEMAS)
    if response.status_code >= 400:
        body = response.json()
        assert body.get("error", {}).get("message"), body


def fuzz(server, limits):
    """Each operation with `limits.max_examples` cases; returns how many operations there are."""
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    for operation in operations:
        limits(given(operation.as_strategy())(check))()
    return len(operations)


def test_the_api_over_a_fake_engine(fake):
    assert fuzz(fake, LIMITS) > 15


def test_the_api_over_the_tiny_model(tiny):
    assert fuzz(tiny, settings(LIMITS, max_examples=8)) > 15


def test_servers_live_on(fake, tiny):
    for live in (fake, tiny):
        assert live.process.poll() is None
        assert "Traceback" not in live.logged
        assert "the executor's process ended" not in live.logged
