import pytest

from dsv4_trt.runtime.guided.compiler import GrammarCompiler
from tests.runtime.guided.walks import EOS, SIZE, small_tokenizer


@pytest.fixture(scope="session")
def small():
    return small_tokenizer()


@pytest.fixture(scope="session")
def compiler(small):
    """One for all tests: its process for trials loads for seconds."""
    compiler = GrammarCompiler(small, SIZE, EOS)
    yield compiler
    compiler.close()
