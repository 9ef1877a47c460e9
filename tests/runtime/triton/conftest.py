from __future__ import annotations

import pytest

from dsv4_trt.runtime.triton.service import Service
from tests.runtime.llm.llms import open_llm, write_tokenizer
from tests.runtime.triton import backends
from tests.runtime.triton.marked_tokenizer import write_marked_tokenizer


@pytest.fixture(scope="session")
def small_tokenizer_dir(tmp_path_factory):
    return write_tokenizer(tmp_path_factory.mktemp("triton") / "tokenizer")


@pytest.fixture(scope="session")
def marked_tokenizer_dir(tmp_path_factory):
    return write_marked_tokenizer(tmp_path_factory.mktemp("triton") / "marked")


@pytest.fixture(scope="module")
def llm(workshop, tiny_a, small_tokenizer_dir):
    with open_llm(workshop, tiny_a, tokenizer=small_tokenizer_dir, max_queue_size=20) as llm:
        yield llm


@pytest.fixture(scope="module")
def services(llm):
    """By whether tensors have a batch dimension."""
    both = {has: Service(llm, backends, has_batch_dim=has) for has in (False, True)}
    yield both
    for service in both.values():
        service.close()


@pytest.fixture
def ask(services):
    """Give a request to the model without a batch dimension."""

    def take(request_id="", *, batched=False, **tensors):
        request = backends.Request(request_id, **tensors)
        services[batched].take(request)
        return request

    return take
